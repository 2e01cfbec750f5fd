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
func (r *replay) ended(i int, e *entry, d record.TaskStep, was api.TaskState) error {
	t := &r.tasks[i]
	h := r.histories[t.Dispatch]
	if h == nil || h.last() == nil {
		return r.endedUndispatched(i, e, d, was)
	}
	final := h.last().final()
	switch {
	case final == nil || final.seq >= e.seq:
		return fmt.Errorf("settled before its dispatch %s ended", t.Dispatch)
	case final.Kind == record.KindDispatchFinished:
		return fmt.Errorf("not done, but its dispatch %s finished", t.Dispatch)
	}
	end := detail[record.DispatchEnd](final)
	cancelled := final.Kind == record.KindDispatchCancelled
	switch e.Kind { //nolint:exhaustive // the ends of a task that is not done
	case record.KindTaskCancelled:
		return r.cancel(i, cancelled, was)
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
	case !cancelled && d.Reason != end.Reason:
		return fmt.Errorf("failed for reason %.40q, but its dispatch %s for %.40q", d.Reason, t.Dispatch, end.Reason)
	case t.Answered:
		return errors.New("failed after it was answered and before it resumed")
	}
	task := &r.plan.Tasks[i]
	if was == api.TaskRunning && !t.Resumed && !r.ending(i) && t.Attempt < plan.Attempts(task) && plan.Retries(task, api.Reason(d.Reason)) {
		return fmt.Errorf("failed after attempt %d of %d without a retry", t.Attempt, plan.Attempts(task))
	}
	return nil
}

// endedUndispatched verifies the end of a task without a dispatch.
func (r *replay) endedUndispatched(i int, e *entry, d record.TaskStep, was api.TaskState) error {
	switch e.Kind { //nolint:exhaustive // likewise
	case record.KindTaskCancelled:
		return r.cancel(i, false, was)
	case record.KindTaskDenied:
		if h := r.histories[r.tasks[i].Dispatch]; h == nil || h.denied == nil || h.denied.seq >= e.seq {
			return errors.New("denied, but no entry denies its dispatch")
		}
		return nil
	}
	if was != api.TaskRunning || d.Reason != string(api.ReasonIntegrity) && d.Reason != string(api.ReasonContext) {
		return fmt.Errorf("failed for reason %.40q without a dispatch", d.Reason)
	}
	return nil
}

// cancel verifies why a task was cancelled: on request, or with its dispatch.
func (r *replay) cancel(i int, dispatch bool, was api.TaskState) error {
	t := &r.tasks[i]
	h := r.histories[t.Dispatch]
	open := was == api.TaskRunning || t.Asks
	switch {
	case open && dispatch:
		return nil
	case open && h != nil && h.last() != nil && !t.Answered:
		return fmt.Errorf("cancelled, but its dispatch %s failed", t.Dispatch)
	}
	if !r.ending(i) {
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
