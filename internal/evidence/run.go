package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// replay applies the entries of a run as the engine did, by the same table of
// transitions, and so verifies that every task of the plan is accounted for
// exactly once.
type replay struct {
	id        api.RunID
	submitted *entry
	settled   *entry
	plan      *plan.Plan
	tasks     []taskReplay
	histories map[api.DispatchID]*history
	before    *replay // the run that it retries; nil: none

	paused    bool
	cancelled bool // its cancellation was requested, or it reached a limit
	leases    leases
	late      error // the first step that is valid only after its wall time expired
}

type taskReplay struct {
	state    api.TaskState
	attempt  int
	dispatch api.DispatchID
	starts   []*entry
	begun    map[api.DispatchID]bool // the dispatches of starts
	admitted bool                    // the run has an entry that admits its dispatch
	asks     bool                    // it waits for an answer
	answered bool
	by       api.Principal // that answered last
	option   int64         // that it chose
	resumed  bool          // its last start resumes with an answer
	used     bool          // and its dispatch has resumed with it
	stopped  bool          // its cancellation was requested
	cause    int           // of a skipped task: index of the task that ended without being done
}

// step applies the next entry of the run.
func (r *replay) step(e *entry) error {
	switch {
	case e.Kind == record.KindRunDenied: // of a request for a run of that id that was denied
		return nil
	case r.settled != nil:
		return errors.New("after the run settled")
	case e.Kind == record.KindRunSubmitted:
		if r.submitted != nil {
			return errors.New("submitted a second time")
		}
		r.submitted = e
		return nil
	case r.submitted == nil:
		return errors.New("before the run was submitted")
	case r.plan == nil:
		return nil // already reported
	}
	switch e.Kind { //nolint:exhaustive // the others change no task
	case record.KindRunSettled:
		r.settled = e
		return r.balance(e)
	case record.KindRunPaused, record.KindRunResumed:
		r.paused = e.Kind == record.KindRunPaused
		return nil
	case record.KindRunCancelled:
		if e.Task == "" {
			r.cancelled = true
			return nil
		}
	case record.KindRunExpired:
		r.cancelled = true
		return r.expire(e)
	case record.KindDispatchAccepted, record.KindDispatchAnswered:
	case record.KindTaskStarted, record.KindTaskWaiting, record.KindTaskAnswered, record.KindTaskDone,
		record.KindTaskFailed, record.KindTaskSkipped, record.KindTaskCancelled, record.KindTaskDenied:
	default:
		return nil
	}
	i, ok := r.plan.Index(api.TaskID(e.Task))
	if !ok {
		return fmt.Errorf("the plan has no task %.80q", e.Task)
	}
	was := r.tasks[i].state
	if err := r.task(i, e); err != nil {
		return fmt.Errorf("task %s: %w", e.Task, err)
	}
	if was == api.TaskRunning && r.tasks[i].state != api.TaskRunning {
		r.leases.release(&r.plan.Tasks[i])
	}
	return nil
}

// move takes steps of the table of transitions.
func (t *taskReplay) move(events ...plan.Event) error {
	for _, e := range events {
		to, ok := plan.Next(t.state, e)
		if !ok {
			return fmt.Errorf("event %s in state %s", e, t.state)
		}
		t.state = to
	}
	return nil
}

// task applies the next entry of a task. That a task is ready is not logged: it
// follows from other entries.
func (r *replay) task(i int, e *entry) error {
	t := &r.tasks[i]
	d, _ := e.Detail.(record.TaskStep)
	switch e.Kind { //nolint:exhaustive // see step
	case record.KindRunCancelled:
		t.stopped = true
		return nil
	case record.KindTaskStarted:
		return r.start(i, e)
	case record.KindTaskAnswered:
		return r.answer(t, e)
	}
	if e.Dispatch != t.dispatch || e.Attempt != t.attempt && e.Kind != record.KindDispatchAccepted && e.Kind != record.KindDispatchAnswered {
		return fmt.Errorf("it is in attempt %d as dispatch %s, but the entry is of attempt %d as dispatch %s", t.attempt, t.dispatch, e.Attempt, e.Dispatch)
	}
	switch e.Kind { //nolint:exhaustive // these are left
	case record.KindDispatchAccepted:
		if t.state != api.TaskRunning || t.resumed {
			return fmt.Errorf("dispatched while %s, or a second time", t.state)
		}
		t.admitted = true
		return nil
	case record.KindDispatchAnswered:
		return t.resume(e)
	}
	if h := r.histories[t.dispatch]; h != nil && h.last() != nil && !t.admitted {
		return fmt.Errorf("its dispatch %s was not admitted for it", t.dispatch)
	}
	switch e.Kind { //nolint:exhaustive // likewise
	case record.KindTaskWaiting:
		return r.wait(i, e, d)
	case record.KindTaskDone:
		if h := r.histories[t.dispatch]; h == nil || h.finished(e.seq) == nil {
			return fmt.Errorf("done, but its dispatch %s had not finished", t.dispatch)
		}
		return t.move(plan.EventDone)
	case record.KindTaskSkipped:
		return r.skip(i, d)
	}
	if err := r.ended(i, e, d); err != nil {
		return err
	}
	switch e.Kind { //nolint:exhaustive // likewise
	case record.KindTaskFailed:
		return t.move(plan.EventFail)
	case record.KindTaskDenied:
		return t.move(plan.EventDeny)
	}
	return t.move(plan.EventCancel)
}

// answer applies an answer to the question of a task.
func (r *replay) answer(t *taskReplay, e *entry) error {
	switch {
	case t.state != api.TaskWaiting || !t.asks || t.answered:
		return errors.New("answered without a question")
	case r.cancelled || t.stopped:
		return errors.New("answered after its cancellation was requested")
	}
	d, _ := e.Detail.(record.RunAction)
	t.answered, t.by, t.option = true, e.Principal, d.Option
	return nil
}

// resume applies that the task's dispatch resumes, which must be with the answer
// given to the task.
func (t *taskReplay) resume(e *entry) error {
	d, _ := e.Detail.(record.AnswerRequest)
	if t.state != api.TaskRunning || !t.resumed || t.used || e.Principal != t.by || t.option != 0 && d.Option != t.option {
		return errors.New("its dispatch resumes with an answer that was not given to the task")
	}
	t.used = true
	return nil
}

// start applies the start of a task, also if it is invalid, so that the entries
// after it can be verified.
func (r *replay) start(i int, e *entry) error {
	t := &r.tasks[i]
	d, _ := e.Detail.(record.TaskStart)
	err := r.mayStart(i, e)
	switch {
	case err != nil:
	case r.paused:
		err = errors.New("started while its run was paused")
	case r.cancelled || t.stopped:
		err = errors.New("started after its cancellation was requested")
	}
	if taken := r.leases.take(&r.plan.Tasks[i], d); err == nil {
		err = taken
	}
	t.resumed, t.admitted = t.asks, t.admitted && t.dispatch == e.Dispatch
	t.state, t.attempt, t.dispatch, t.asks, t.answered, t.used = api.TaskRunning, e.Attempt, e.Dispatch, false, false, false
	if t.begun == nil {
		t.begun = map[api.DispatchID]bool{}
	}
	t.starts, t.begun[e.Dispatch] = append(t.starts, e), true
	return err
}

// mayStart refuses a start that cannot be the next step of a task.
func (r *replay) mayStart(i int, e *entry) error {
	t := &r.tasks[i]
	switch {
	case t.state == api.TaskPending:
		for _, d := range r.plan.Deps(i) {
			if r.tasks[d].state != api.TaskDone {
				return fmt.Errorf("started before task %s was done", r.plan.Tasks[d].ID)
			}
		}
		if e.Attempt != 1 {
			return fmt.Errorf("its first attempt is %d", e.Attempt)
		}
		return t.move(plan.EventDeps, plan.EventStart)
	case t.state == api.TaskWaiting && t.asks:
		if !t.answered || e.Attempt != t.attempt || e.Dispatch != t.dispatch {
			return errors.New("resumed without an answer, or as another dispatch")
		}
		return t.move(plan.EventAnswer, plan.EventStart)
	}
	if e.Attempt != t.attempt+1 || t.begun[e.Dispatch] {
		return fmt.Errorf("attempt %d after attempt %d, or the same dispatch again", e.Attempt, t.attempt)
	}
	return t.move(plan.EventDue, plan.EventStart)
}

// wait applies that a task waits for an answer, or for its next attempt.
func (r *replay) wait(i int, e *entry, d record.TaskStep) error {
	t, task, h := &r.tasks[i], &r.plan.Tasks[i], r.histories[r.tasks[i].dispatch]
	if h == nil || h.last() == nil {
		return errors.New("waiting without a dispatch")
	}
	if d.Until == "" {
		t.asks = true
		if a := h.at(e.seq); a == nil || a.end == nil || a.end.seq >= e.seq || a.end.Kind != record.KindDispatchNeedsInput {
			return errors.New("waiting for an answer, but its dispatch has no question")
		}
		return t.move(plan.EventAsk)
	}
	final := h.last().final()
	end, _ := detailOf(final)
	switch {
	case r.cancelled || t.stopped:
		return errors.New("retried after its cancellation was requested")
	case final == nil || final.Kind != record.KindDispatchFailed || final.seq >= e.seq:
		return errors.New("retried, but its dispatch had not failed")
	case t.attempt >= plan.Attempts(task):
		return fmt.Errorf("retried after attempt %d of %d", t.attempt, plan.Attempts(task))
	case d.Reason != end.Reason || !plan.Retries(task, api.Reason(d.Reason)):
		return fmt.Errorf("retried for reason %.40q, which the plan does not list or its dispatch does not have", d.Reason)
	}
	return t.move(plan.EventBackoff)
}

func detailOf(e *entry) (record.DispatchEnd, bool) {
	if e == nil {
		return record.DispatchEnd{}, false
	}
	d, ok := e.Detail.(record.DispatchEnd)
	return d, ok
}

// reuseDone marks the tasks as done that it takes over from the run that it retries.
func (r *replay) reuseDone() error {
	request, _ := r.submitted.Detail.(record.RunRequest)
	if request.RetryOf == "" {
		if request.Taken != 0 || len(request.From) > 0 || len(request.Changed) > 0 {
			return errors.New("it reuses tasks, but names no run")
		}
		return nil
	}
	b := r.before
	if b == nil || b.plan == nil || b.settled == nil || b.settled.seq >= r.submitted.seq {
		return fmt.Errorf("it retries run %.80q, which is not in the bundle or had not settled", request.RetryOf)
	}
	from := make([]api.TaskID, len(request.From))
	for i, t := range request.From {
		from[i] = api.TaskID(t)
	}
	retry, err := r.plan.RetryOf(b.plan, func(i int) bool { return b.tasks[i].state == api.TaskDone }, from)
	if err != nil {
		return err
	}
	r.leases.last = b.leases.last // fencing tokens only grow
	taken := int64(0)
	for i, yes := range retry.Taken {
		if yes {
			taken++
			r.tasks[i] = taskReplay{state: api.TaskDone, dispatch: b.tasks[i].dispatch, attempt: b.tasks[i].attempt}
		}
	}
	switch {
	case taken != request.Taken:
		return fmt.Errorf("it reuses %s, but %d are done in run %s and unchanged", record.Plural(request.Taken, "task"), taken, b.id)
	case !slices.Equal(retry.Changed, request.Changed):
		return fmt.Errorf("its plan differs from that of run %s in %.400q, but its entry says %.400q", b.id, retry.Changed, request.Changed)
	}
	return nil
}
