package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// replay applies the entries of a run as the engine did, by the same table of
// transitions, and so verifies that every task of the plan is accounted for
// exactly once.
type replay struct {
	id        api.RunID
	chain     record.RunChain
	submitted *entry
	fired     *entry // that a slot of a schedule fired, whose run it is
	settled   *entry
	plan      *plan.Plan
	tasks     []taskReplay
	histories map[api.DispatchID]*history
	inputs    []api.Digest // of the plan's tasks
	meter     *meter
	document  func(d api.Digest, what string) ([]byte, error)
	growths   []plan.Growth
	began     int     // how many tasks it began with
	before    *replay // the run that it retries; nil: none

	paused    bool
	cancelled bool // its cancellation was requested, or it reached a limit
	leases    leases
	answers   map[uint64]*entry // of a task and of the dispatch that resumes with it: each by the number of the other
	cancels   cancels

	conditions map[condition]answer
}

type taskReplay struct {
	record.TaskChain
	starts  []*entry
	answer  *entry                  // given last
	begun   map[api.DispatchID]bool // the dispatches of starts
	stopped bool                    // its cancellation was requested
	poll                            // of a task that people approve
	writes  []*poll                 // about what its attempts were to write, in their order
	cause   int                     // of a skipped task: index of the task that ended without being done, or that its condition is about

	byCondition bool // it was skipped by its condition, or because of one that was
	offspring   offspring
	settledAt   uint64 // the entry that settled it; 0: none, or it was taken over
}

// poll is a request for an approval, and what became of it.
type poll struct {
	waits   uint64 // of a task that people approve: the entry since which it waits for them
	asked   *entry // the request; nil without one
	expired *entry // its expiry
	decided *entry // the end of its task as done or denied

	starts api.DispatchID // of one about what a task writes: the dispatch that waits for it
}

// step applies the next entry of the run.
func (r *replay) step(e *entry) error {
	if err := r.chain.Step(e.Kind); err != nil {
		return err
	}
	switch {
	case e.Kind == record.KindRunDenied:
		return nil
	case e.Kind == record.KindScheduleFired:
		return r.fire(e)
	case e.Kind == record.KindRunSubmitted:
		r.submitted = e
		if rules := r.rules(); rules < plan.OldestRules {
			return fmt.Errorf("it claims rules %d, which only unreleased versions followed: this version verifies rules %d to %d", rules, plan.OldestRules, plan.Rules)
		}
		return nil
	case r.plan == nil:
		return nil // already reported
	}
	switch e.Kind { //nolint:exhaustive // the others change no run
	case record.KindRunSettled:
		r.settled = e
		return r.balance(e)
	case record.KindRunPaused, record.KindRunResumed:
		r.paused = e.Kind == record.KindRunPaused
		return nil
	case record.KindRunAppended:
		return r.append(e)
	case record.KindRunExpired:
		if r.cancelled {
			return errors.New("the run reached its limit of time after it was cancelled")
		}
		r.cancelled = true
		return r.expire(e)
	}
	if _, ok := e.Detail.(record.ApprovalRequest); ok && e.Dispatch == "" {
		return r.people(e)
	}
	cancels := e.Kind == record.KindRunCancelled
	if cancels && e.Task == "" {
		r.cancelled = true
		return nil
	}
	if !cancels && !record.StepsTask(e.Kind) {
		return nil
	}
	i, ok := r.plan.Index(api.TaskID(e.Task))
	if !ok {
		return fmt.Errorf("the plan has no task %.80q", e.Task)
	}
	if cancels {
		r.tasks[i].stopped = true
		return nil
	}
	was := r.tasks[i].State
	if err := r.task(i, e); err != nil {
		return fmt.Errorf("task %s: %w", e.Task, err)
	}
	if r.holdsLocks(i, was) && !r.holdsLocks(i, r.tasks[i].State) {
		r.leases.release(r.plan.Tasks[i].ID, r.locksOf(i))
	}
	if !was.Settled() && r.tasks[i].State.Settled() {
		r.tasks[i].settledAt = e.seq
		r.settledTask(i)
	}
	return nil
}

// rules are those that the run follows.
func (r *replay) rules() int64 {
	request := detail[record.RunRequest](r.submitted)
	return request.Rules
}

// locksOf returns the locks that a task takes when it starts.
func (r *replay) locksOf(i int) []api.Lock { return r.plan.LocksOf(i, r.rules()) }

// holdsLocks reports whether a task in this state holds its locks.
func (r *replay) holdsLocks(i int, state api.TaskState) bool {
	return state == api.TaskRunning || state == api.TaskGrowing && r.plan.HoldsForGate(i, r.rules())
}

// task applies the next entry of a task: first by the table of transitions, then
// by the plan.
func (r *replay) task(i int, e *entry) error {
	t := &r.tasks[i]
	s := taskStep{r: r, i: i, e: e, was: t.TaskChain, d: detail[record.TaskStep](e)}
	err := t.Step(&e.Entry)
	if e.Kind == record.KindTaskStarted {
		return s.start(err)
	}
	if err != nil {
		return err
	}
	switch e.Kind { //nolint:exhaustive // these are steps of the table alone, or below
	case record.KindDispatchAccepted, record.KindTaskReused:
		return nil
	case record.KindDispatchAnswered:
		r.answers[e.seq], r.answers[t.answer.seq] = t.answer, e
		return nil
	case record.KindTaskAnswered:
		t.answer = e
		if r.ending(i) {
			return errors.New("answered after its cancellation was requested")
		}
		return nil
	}
	return s.check()
}

// dependencies refuses a first step before all that a task depends on has ended as it
// accepts.
func (r *replay) dependencies(i int) error {
	if err := r.meter.spend(unitCompare * len(r.plan.Deps(i))); err != nil {
		return err
	}
	for _, d := range r.plan.Deps(i) {
		if r.hinders(i, d) {
			return fmt.Errorf("started before task %s was done", r.plan.Tasks[d].ID)
		}
	}
	return nil
}

// reuseDone marks the tasks as done that it takes over from the run that it retries.
func (r *replay) reuseDone() error {
	request := detail[record.RunRequest](r.submitted)
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
	switch {
	case r.submitted.Principal != b.submitted.Principal:
		return fmt.Errorf("%s retries run %s of %s, but only its owner may", r.submitted.Principal, b.id, b.submitted.Principal)
	case r.rules() < b.rules():
		return fmt.Errorf("it claims rules %d, but run %s, which it retries, has rules %d", r.rules(), b.id, b.rules())
	}
	from := make([]api.TaskID, len(request.From))
	for i, t := range request.From {
		from[i] = api.TaskID(t)
	}
	for i := range b.growths {
		if err := r.afford(b.growths[i]); err != nil {
			return err
		}
	}
	retry, err := r.plan.RetryOf(b.plan, b.growths, b.end, from)
	if err := errors.Join(err, r.addTasks(len(r.tasks))); err != nil {
		return err
	}
	r.growths = retry.Growths
	r.leases.last = b.leases.last // fencing tokens only grow
	taken := int64(0)
	for i, yes := range retry.Taken {
		if yes {
			taken++
			j, _ := b.plan.Index(r.plan.Tasks[i].ID)
			r.tasks[i].TaskChain = record.TaskChain{State: api.TaskDone, Dispatch: b.tasks[j].Dispatch, Attempt: b.tasks[j].Attempt}
			r.settledTask(i)
		}
	}
	for _, g := range retry.Growths { // the others of a for_each run again
		if i, ok := r.plan.Index(g.Task); ok && r.tasks[i].State == api.TaskPending {
			r.tasks[i].State = api.TaskGrowing
		}
	}
	switch {
	case taken != request.Taken:
		return fmt.Errorf("it reuses %s, but %d are done in run %s and unchanged", record.Plural(request.Taken, "task"), taken, b.id)
	case !slices.Equal(retry.Changed, request.Changed):
		return fmt.Errorf("its plan differs from the plan of run %s in %.400q, but its entry says %.400q", b.id, retry.Changed, request.Changed)
	}
	return nil
}
