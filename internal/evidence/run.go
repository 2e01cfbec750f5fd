package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// replay goes through the entries of a run as the orchestrator did, by the same
// table of what follows what, and so finds out whether every task of the plan
// is accounted for, once.
type replay struct {
	id        api.RunID
	submitted *entry
	settled   *entry
	plan      *plan.Plan
	tasks     []taskReplay
	histories map[api.DispatchID]*history
	before    *replay // the run that it goes on from; nil: none
}

type taskReplay struct {
	state    api.TaskState
	attempt  int
	dispatch api.DispatchID
	starts   []*entry
	asks     bool // it waits for an answer
	answered bool
	last     *entry
}

// step takes the next entry of the run.
func (r *replay) step(e *entry) error {
	switch {
	case e.Kind == record.KindRunDenied: // somebody asked for a run of that id, which never was
		return nil
	case r.settled != nil:
		return errors.New("it follows the end of the run")
	case e.Kind == record.KindRunSubmitted:
		if r.submitted != nil {
			return errors.New("submitted a second time")
		}
		r.submitted = e
		return nil
	case r.submitted == nil:
		return errors.New("it comes before the run was submitted")
	case r.plan == nil:
		return nil // and that is said already
	}
	switch e.Kind { //nolint:exhaustive // the others change no task
	case record.KindRunSettled:
		r.settled = e
		return r.balance(e)
	case record.KindTaskStarted, record.KindTaskWaiting, record.KindTaskAnswered, record.KindTaskDone,
		record.KindTaskFailed, record.KindTaskSkipped, record.KindTaskCancelled, record.KindTaskDenied:
		i, ok := r.plan.Index(api.TaskID(e.Task))
		if !ok {
			return fmt.Errorf("the plan has no task %.80q", e.Task)
		}
		if err := r.task(i, e); err != nil {
			return fmt.Errorf("task %s: %w", e.Task, err)
		}
		r.tasks[i].last = e
	}
	return nil
}

// move takes steps of the table.
func (t *taskReplay) move(events ...plan.Event) error {
	for _, e := range events {
		to, ok := plan.Next(t.state, e)
		if !ok {
			return fmt.Errorf("%s cannot happen to a task that is %s", e, t.state)
		}
		t.state = to
	}
	return nil
}

// task takes the next entry of a task. That a task is ready is not logged: it
// follows from what is.
func (r *replay) task(i int, e *entry) error {
	t := &r.tasks[i]
	if e.Kind != record.KindTaskStarted && e.Kind != record.KindTaskAnswered && (e.Dispatch != t.dispatch || e.Attempt != t.attempt) {
		return fmt.Errorf("it is in attempt %d as dispatch %s, and this is of attempt %d as %s", t.attempt, t.dispatch, e.Attempt, e.Dispatch)
	}
	d, _ := e.Detail.(record.TaskStep)
	switch e.Kind { //nolint:exhaustive // see step
	case record.KindTaskStarted:
		return r.start(i, e)
	case record.KindTaskAnswered:
		if t.state != api.TaskWaiting || !t.asks || t.answered {
			return errors.New("answered where it asks nothing")
		}
		t.answered = true
		return nil
	case record.KindTaskWaiting:
		return r.wait(i, e, d)
	case record.KindTaskDone:
		if h := r.histories[t.dispatch]; h == nil || h.finished(e.seq) == nil {
			return fmt.Errorf("done, and its dispatch %s had not finished", t.dispatch)
		}
		return t.move(plan.EventDone)
	case record.KindTaskSkipped:
		return r.skip(i, d)
	}
	if err := r.ended(t, e); err != nil {
		return err
	}
	switch e.Kind { //nolint:exhaustive // these are left
	case record.KindTaskFailed:
		return t.move(plan.EventFail)
	case record.KindTaskDenied:
		return t.move(plan.EventDeny)
	}
	return t.move(plan.EventCancel)
}

func (r *replay) start(i int, e *entry) error {
	t := &r.tasks[i]
	switch {
	case t.state == api.TaskPending:
		for _, d := range r.plan.Deps(i) {
			if r.tasks[d].state != api.TaskDone {
				return fmt.Errorf("started before task %s was done", r.plan.Tasks[d].ID)
			}
		}
		if e.Attempt != 1 {
			return fmt.Errorf("it begins with attempt %d", e.Attempt)
		}
		if err := t.move(plan.EventDeps, plan.EventStart); err != nil {
			return err
		}
	case t.state == api.TaskWaiting && t.asks:
		if !t.answered || e.Attempt != t.attempt || e.Dispatch != t.dispatch {
			return errors.New("it goes on without an answer, or as another dispatch")
		}
		if err := t.move(plan.EventAnswer, plan.EventStart); err != nil {
			return err
		}
	default:
		if e.Attempt != t.attempt+1 || slices.ContainsFunc(t.starts, func(s *entry) bool { return s.Dispatch == e.Dispatch }) {
			return fmt.Errorf("attempt %d follows attempt %d, or is the same dispatch again", e.Attempt, t.attempt)
		}
		if err := t.move(plan.EventDue, plan.EventStart); err != nil {
			return err
		}
	}
	t.attempt, t.dispatch, t.asks, t.answered = e.Attempt, e.Dispatch, false, false
	t.starts = append(t.starts, e)
	return nil
}

// wait is for an answer, or for the next attempt.
func (r *replay) wait(i int, e *entry, d record.TaskStep) error {
	t, task, h := &r.tasks[i], &r.plan.Tasks[i], r.histories[r.tasks[i].dispatch]
	if h == nil || h.last() == nil {
		return errors.New("waiting after a dispatch that never was")
	}
	if d.Until == "" {
		t.asks = true
		if a := h.at(e.seq); a == nil || a.end == nil || a.end.seq >= e.seq || a.end.Kind != record.KindDispatchNeedsInput {
			return errors.New("waiting for an answer, and its dispatch asked nothing")
		}
		return t.move(plan.EventAsk)
	}
	on := task.Retry.On
	if len(on) == 0 {
		on = api.DefaultRetryReasons()
	}
	final := h.last().final()
	end, _ := detailOf(final)
	switch {
	case final == nil || final.Kind != record.KindDispatchFailed || final.seq >= e.seq:
		return errors.New("to be tried again, and its dispatch had not failed")
	case t.attempt >= max(1, task.Retry.Attempts):
		return fmt.Errorf("to be tried again after attempt %d, and the plan has %d", t.attempt, max(1, task.Retry.Attempts))
	case d.Reason != end.Reason || !slices.Contains(on, api.Reason(d.Reason)):
		return fmt.Errorf("to be tried again for the reason %.40q, which is not one of the plan's", d.Reason)
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

// skip is the end of what will not be done because of another.
func (r *replay) skip(i int, d record.TaskStep) error {
	cause, ok := r.plan.Index(api.TaskID(d.Cause))
	if !ok || !r.tasks[cause].state.Settled() || r.tasks[cause].state == api.TaskDone {
		return fmt.Errorf("skipped because of %.80q, which may still be done", d.Cause)
	}
	if !slices.ContainsFunc(r.plan.Deps(i), func(d int32) bool {
		s := r.tasks[d].state
		return s.Settled() && s != api.TaskDone
	}) {
		return errors.New("skipped, and all that it comes after is done or may be")
	}
	return r.tasks[i].move(plan.EventSkip)
}

// ended holds the end of a task that is not done against that of its dispatch.
func (r *replay) ended(t *taskReplay, e *entry) error {
	h := r.histories[t.dispatch]
	if h == nil || h.last() == nil {
		return nil // it was never to be had, or never asked for
	}
	final := h.last().final()
	switch {
	case final == nil || final.seq >= e.seq:
		return fmt.Errorf("over before its dispatch %s", t.dispatch)
	case final.Kind == record.KindDispatchFinished:
		return fmt.Errorf("not done, and its dispatch %s finished", t.dispatch)
	case e.Kind == record.KindTaskFailed && t.state == api.TaskRunning:
		return nil // its dispatch failed, or was cancelled as its answer could not be used
	}
	return nil
}

// balance holds the end of the run against its tasks.
func (r *replay) balance(e *entry) error {
	d, _ := e.Detail.(record.RunEnd)
	ask, _ := r.submitted.Detail.(record.RunAsk)
	counts := map[api.TaskState]int64{}
	for i := range r.tasks {
		t := &r.tasks[i]
		if !t.state.Settled() {
			return fmt.Errorf("the run is over, and task %s is %s", r.plan.Tasks[i].ID, t.state)
		}
		counts[t.state]++
	}
	got := [5]int64{counts[api.TaskDone], counts[api.TaskFailed], counts[api.TaskDenied], counts[api.TaskCancelled], counts[api.TaskSkipped]}
	switch {
	case got != [5]int64{d.Done, d.Failed, d.Denied, d.Cancelled, d.Skipped}:
		return fmt.Errorf("the end of the run counts other tasks than there are: done, failed, denied, cancelled, skipped are %v", got)
	case ask.Tasks != int64(len(r.tasks)):
		return fmt.Errorf("%d tasks were submitted, and the plan has %d", ask.Tasks, len(r.tasks))
	case (d.State == string(api.RunDone)) != (d.Done == ask.Tasks), d.State != string(api.RunDone) && d.State != string(api.RunFailed) && d.State != string(api.RunCancelled),
		d.State == string(api.RunCancelled) && d.Cancelled == 0:
		return fmt.Errorf("the run is %.40q, with %d of %d tasks done", d.State, d.Done, ask.Tasks)
	}
	return nil
}

// takeOver notes what was done in the run before.
func (r *replay) takeOver() error {
	ask, _ := r.submitted.Detail.(record.RunAsk)
	if ask.RetryOf == "" {
		if ask.Taken != 0 {
			return errors.New("it takes over tasks and names no run")
		}
		return nil
	}
	b := r.before
	if b == nil || b.plan == nil || b.settled == nil || b.settled.seq >= r.submitted.seq {
		return fmt.Errorf("it goes on from run %.80q, which is not here, or was not over", ask.RetryOf)
	}
	same, err := b.plan.WithID(r.plan.ID)
	if err != nil || same.Digest() != r.plan.Digest() {
		return fmt.Errorf("it goes on from run %s with another plan", b.id)
	}
	taken := int64(0)
	for i := range r.tasks {
		if b.tasks[i].state == api.TaskDone {
			taken++
			r.tasks[i] = taskReplay{state: api.TaskDone, dispatch: b.tasks[i].dispatch, attempt: b.tasks[i].attempt}
		}
	}
	if taken != ask.Taken {
		return fmt.Errorf("it takes over %d tasks, and %d were done in run %s", ask.Taken, taken, b.id)
	}
	return nil
}

// planned says why what m describes is not what the plan of its run has.
func (v *verification) planned(a *attempt, m *record.Manifest) error {
	r := v.replayed[m.Run]
	if m.Run == "" || r == nil || r.plan == nil {
		return nil // one dispatch of a run can be shown without the run
	}
	i, ok := r.plan.Index(m.Task)
	if !ok {
		return fmt.Errorf("the plan of run %s has no task %s", m.Run, m.Task)
	}
	t := &r.plan.Tasks[i]
	input := t.Input
	if len(input) == 0 {
		input = []byte("{}")
	}
	canonical, err := canon.Canonicalize(input)
	source, target := api.Name(""), api.Name("")
	if m.Source != nil {
		source = m.Source.Name
	}
	if target = t.Target; target == "" {
		target = m.Target
	}
	wanted := api.Name("")
	if t.Source != nil {
		wanted = t.Source.Name
	}
	start := r.startOf(i, m.ID, a.admitted.seq)
	switch {
	case err != nil || api.DigestOf(canonical) != m.Input:
		return fmt.Errorf("its input is not that of task %s of the plan", m.Task)
	case m.Subagent != t.Subagent || m.Target != target || source != wanted || !slices.Equal(m.Envs, t.Envs):
		return fmt.Errorf("it is other work than task %s of the plan", m.Task)
	case !slices.Equal(extras(t.Capabilities, m.Capabilities), t.Capabilities):
		return fmt.Errorf("it lacks capabilities of task %s of the plan", m.Task)
	case start == nil:
		return fmt.Errorf("no entry of task %s starts it", m.Task)
	}
	if d, _ := start.Detail.(record.TaskStart); d.Fence < 0 || uint64(d.Fence) != m.Fence {
		return fmt.Errorf("it runs under the fencing number %d, and entry #%d has %d", m.Fence, start.seq, d.Fence)
	}
	return neededOf(t, m)
}

// extras returns those of wanted that are among have.
func extras(wanted, have []api.Name) (out []api.Name) {
	for _, n := range wanted {
		if slices.Contains(have, n) {
			out = append(out, n)
		}
	}
	return out
}

// startOf returns the last entry before n that starts task i as a dispatch.
func (r *replay) startOf(i int, id api.DispatchID, n uint64) *entry {
	for _, e := range slices.Backward(r.tasks[i].starts) {
		if e.seq < n {
			if e.Dispatch == id {
				return e
			}
			return nil
		}
	}
	return nil
}

// neededOf says why the needs of a manifest are not those of the plan.
func neededOf(t *api.PlanTask, m *record.Manifest) error {
	if len(m.Needs) != len(t.Needs) {
		return fmt.Errorf("it takes over %d things, and task %s of the plan %d", len(m.Needs), t.ID, len(t.Needs))
	}
	for i := range m.Needs {
		n := &m.Needs[i]
		want, ok := t.Needs[n.Name]
		kind := record.NeedOutput
		switch {
		case want.Patch:
			kind = record.NeedPatch
		case want.Result:
			kind = record.NeedResult
		}
		if !ok || want.From != n.Task || kind != n.Kind || want.Output != n.Path {
			return fmt.Errorf("it takes over %q otherwise than task %s of the plan says", n.Name, t.ID)
		}
	}
	return nil
}
