package evidence

import (
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// ended compares the end of a task that is not done with that of its dispatch. was
// is the task's state before.
func (s *taskStep) ended() error {
	t := s.task()
	h := s.r.histories[t.Dispatch]
	if h == nil || h.last() == nil {
		return s.endedUndispatched()
	}
	final := h.last().final()
	switch {
	case final == nil || final.seq >= s.e.seq:
		return fmt.Errorf("settled before its dispatch %s ended", t.Dispatch)
	case final.Kind == record.KindDispatchFinished:
		return fmt.Errorf("not done, but its dispatch %s finished", t.Dispatch)
	}
	end := detail[record.DispatchEnd](final)
	cancelled := final.Kind == record.KindDispatchCancelled
	switch s.e.Kind { //nolint:exhaustive // the ends of a task that is not done
	case record.KindTaskCancelled:
		return s.cancel(cancelled)
	case record.KindTaskDenied:
		// A denied answer ends its dispatch.
		if cancelled && t.Resumed || !cancelled && end.Reason == string(api.ReasonDenied) {
			return nil
		}
		return fmt.Errorf("denied, but its dispatch %s was admitted", t.Dispatch)
	}
	switch {
	case cancelled && !t.Resumed:
		return fmt.Errorf("failed, but its dispatch %s was cancelled", t.Dispatch)
	case !cancelled && s.d.Reason != end.Reason:
		return fmt.Errorf("failed for reason %.40q, but its dispatch %s for %.40q", s.d.Reason, t.Dispatch, end.Reason)
	case t.Answered:
		return errors.New("failed after it was answered and before it resumed")
	}
	task := s.planned()
	if s.was.State == api.TaskRunning && !t.Resumed && !s.r.ending(s.i) && t.Attempt < plan.Attempts(task) && plan.Retries(task, api.Reason(s.d.Reason)) {
		return fmt.Errorf("failed after attempt %d of %d without a retry", t.Attempt, plan.Attempts(task))
	}
	return nil
}

// endedUndispatched verifies the end of a task without a dispatch.
func (s *taskStep) endedUndispatched() error {
	switch s.e.Kind { //nolint:exhaustive // likewise
	case record.KindTaskCancelled:
		return s.cancel(false)
	case record.KindTaskDenied:
		if h := s.r.histories[s.task().Dispatch]; h == nil || h.denied == nil || h.denied.seq >= s.e.seq {
			return errors.New("denied, but no entry denies its dispatch")
		}
		return nil
	}
	if s.was.State != api.TaskRunning || s.d.Reason != string(api.ReasonIntegrity) && s.d.Reason != string(api.ReasonContext) {
		return fmt.Errorf("failed for reason %.40q without a dispatch", s.d.Reason)
	}
	return nil
}

// cancel verifies why a task was cancelled: on request, or with its dispatch.
func (s *taskStep) cancel(dispatch bool) error {
	t := s.task()
	h := s.r.histories[t.Dispatch]
	open := s.was.State == api.TaskRunning || t.Asks
	switch {
	case open && dispatch:
		return nil
	case open && h != nil && h.last() != nil && !t.Answered:
		return fmt.Errorf("cancelled, but its dispatch %s failed", t.Dispatch)
	}
	if !s.r.ending(s.i) {
		return errors.New("cancelled without a request")
	}
	return nil
}

// expire verifies that a run reached its limit of time.
func (r *replay) expire(e *entry) error {
	d := detail[record.RunExpiry](e)
	wall := time.Duration(r.plan.Limits.Wall)
	switch {
	case wall == 0 || d.Limit != record.LimitWall || d.Millis != wall.Milliseconds():
		return fmt.Errorf("the run reached a %.40q of %d ms, which is not in its plan", d.Limit, d.Millis)
	case e.At.Sub(r.submitted.At) < wall-setBack:
		return fmt.Errorf("the run reached its limit of time after %s, which is %s", e.At.Sub(r.submitted.At), wall)
	}
	return nil
}

// setBack is how far a clock may be set back during a run.
const setBack = 5 * time.Second

// balance compares the end of the run with its tasks.
func (r *replay) balance(e *entry) error {
	d := detail[record.RunEnd](e)
	for i := range r.tasks {
		if t := &r.tasks[i]; !t.State.Settled() {
			return fmt.Errorf("the run settled, but task %s is %s", r.plan.Tasks[i].ID, t.State)
		}
	}
	counts := r.plan.Counts(func(i int) (api.TaskState, int) { return r.tasks[i].State, r.tasks[i].cause })
	if final := plan.Settle(plan.RunState(r.paused, false), counts, r.cancelled); api.RunState(d.State) != final {
		return fmt.Errorf("the run settled as %.40q, but its tasks make it %s", d.State, final)
	}
	return nil
}
