package evidence

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// skip is the end of what will not be done because of another: one that is not
// done by itself, and that it comes after, however far away.
func (r *replay) skip(i int, d record.TaskStep) error {
	cause, ok := r.plan.Index(api.TaskID(d.Cause))
	if !ok || !r.tasks[cause].state.Settled() || r.tasks[cause].state == api.TaskDone || r.tasks[cause].state == api.TaskSkipped {
		return fmt.Errorf("skipped because of %.80q, which may still be done", d.Cause)
	}
	if !slices.ContainsFunc(r.plan.Deps(i), func(d int32) bool {
		return int(d) == cause || r.tasks[d].state == api.TaskSkipped && r.tasks[d].cause == cause
	}) {
		return fmt.Errorf("skipped because of task %s, which it does not come after", d.Cause)
	}
	r.tasks[i].cause = cause
	return r.tasks[i].move(plan.EventSkip)
}

// ended holds the end of a task that is not done against that of its dispatch.
func (r *replay) ended(i int, e *entry, d record.TaskStep) error {
	t := &r.tasks[i]
	h := r.histories[t.dispatch]
	if h == nil || h.last() == nil {
		return r.without(i, e, d, h)
	}
	final := h.last().final()
	switch {
	case final == nil || final.seq >= e.seq:
		return fmt.Errorf("over before its dispatch %s", t.dispatch)
	case final.Kind == record.KindDispatchFinished:
		return fmt.Errorf("not done, and its dispatch %s finished", t.dispatch)
	}
	end, _ := detailOf(final)
	cancelled := final.Kind == record.KindDispatchCancelled
	switch e.Kind { //nolint:exhaustive // the ends of a task that is not done
	case record.KindTaskCancelled:
		return r.cancel(i, cancelled)
	case record.KindTaskDenied:
		// An answer that may not be used ends its dispatch.
		if cancelled && t.resumed || !cancelled && end.Reason == string(api.ReasonDenied) {
			return nil
		}
		return fmt.Errorf("denied, and its dispatch %s had been admitted", t.dispatch)
	}
	switch {
	case cancelled && !t.resumed:
		return fmt.Errorf("failed, and its dispatch %s was cancelled", t.dispatch)
	case !cancelled && d.Reason != end.Reason:
		return fmt.Errorf("failed for the reason %.40q, and its dispatch %s for %.40q", d.Reason, t.dispatch, end.Reason)
	case t.answered:
		return errors.New("failed between its answer and what would go on with it")
	}
	task := &r.plan.Tasks[i]
	if t.state == api.TaskRunning && !t.resumed && !t.stopped && !r.cancelled && t.attempt < plan.Attempts(task) && plan.Retries(task, api.Reason(d.Reason)) {
		r.onlyLate(fmt.Errorf("task %s was given up after attempt %d of %d", task.ID, t.attempt, plan.Attempts(task)))
	}
	return nil
}

// without is the end of a task of which nothing was dispatched.
func (r *replay) without(i int, e *entry, d record.TaskStep, h *history) error {
	t := &r.tasks[i]
	switch e.Kind { //nolint:exhaustive // likewise
	case record.KindTaskCancelled:
		return r.cancel(i, false)
	case record.KindTaskDenied:
		if h == nil || h.denied == nil || h.denied.seq >= e.seq {
			return errors.New("denied, and nothing denied it")
		}
		return nil
	}
	if t.state != api.TaskRunning || d.Reason != string(api.ReasonIntegrity) && d.Reason != string(api.ReasonContext) {
		return fmt.Errorf("failed for the reason %.40q, and nothing was dispatched", d.Reason)
	}
	return nil
}

// cancel looks at who asked for the end of a task: somebody did, or its dispatch
// was cancelled, or the run had no more time.
func (r *replay) cancel(i int, dispatch bool) error {
	t, id := &r.tasks[i], r.plan.Tasks[i].ID
	h := r.histories[t.dispatch]
	open := t.state == api.TaskRunning || t.asks
	switch {
	case open && dispatch:
		return nil
	case open && h != nil && h.last() != nil && !t.answered:
		return fmt.Errorf("cancelled, and its dispatch %s failed", t.dispatch)
	}
	if !t.stopped && !r.cancelled {
		r.onlyLate(fmt.Errorf("task %s was cancelled, and nobody asked for it", id))
	}
	return nil
}

// onlyLate notes what is right only in a run that had no more time, which is
// known at its end.
func (r *replay) onlyLate(err error) {
	if r.late == nil {
		r.late = err
	}
}

// setBack is how far a clock may have been set back while a run went on.
const setBack = 5 * time.Second

// balance holds the end of the run against its tasks.
func (r *replay) balance(e *entry) error {
	d, _ := e.Detail.(record.RunEnd)
	ask, _ := r.submitted.Detail.(record.RunRequest)
	counts := map[api.TaskState]int{}
	for i := range r.tasks {
		t := &r.tasks[i]
		if !t.state.Settled() {
			return fmt.Errorf("the run is over, and task %s is %s", r.plan.Tasks[i].ID, t.state)
		}
		counts[t.state]++
	}
	got := []int{counts[api.TaskDone], counts[api.TaskFailed], counts[api.TaskDenied], counts[api.TaskCancelled], counts[api.TaskSkipped]}
	switch {
	case !slices.EqualFunc(got, []int64{d.Done, d.Failed, d.Denied, d.Cancelled, d.Skipped}, func(a int, b int64) bool { return int64(a) == b }):
		return fmt.Errorf("the end of the run counts other tasks than there are: done, failed, denied, cancelled, skipped are %v", got)
	case ask.Tasks != int64(len(r.tasks)):
		return fmt.Errorf("%d tasks were submitted, and the plan has %d", ask.Tasks, len(r.tasks))
	}
	// Where a service was started again after the limit was reached, its clock may
	// have been set back.
	wall := time.Duration(r.plan.Limits.Wall).Milliseconds()
	late := wall > 0 && d.Millis >= wall
	perhaps := wall > 0 && d.Millis >= wall-setBack.Milliseconds()
	before := plan.RunState(r.paused, false)
	final := plan.Settle(before, counts, r.cancelled || late)
	if state := api.RunState(d.State); state != final && (!perhaps || state != plan.Settle(before, counts, true)) {
		return fmt.Errorf("the run is %.40q, and by its tasks it is %s", d.State, final)
	}
	if !perhaps {
		return r.late
	}
	return nil
}
