package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// replay is the reference: what is so by what the log says, in maps and slices,
// with everything that follows from something else computed again each time it
// is submitted. It reports an entry that should not exist.
type replay struct {
	offered map[api.Digest]api.Plan // every plan that was ever handed in, by its digest
	runs    map[api.RunID]*replayRun
	queues  map[api.Name]*replayQueue
	next    uint64 // number of the next entry
	fence   uint64 // of the latest start
	began   time.Time
	wrong   []string
	// products is the structured result of a dispatch.
	products func(api.DispatchID) json.RawMessage
	// affording says that a task may wait for room in a budget, without a slot.
	affording func(*replayTask) bool
	// votes are those about the request of a task.
	votes func(*replayTask) []api.Vote

	adding   []api.PlanTask // what is being appended
	calendar *calendar      // nil: there are no schedules

	crowd bool // on real time, where two instants say little: who was first is not looked at
	kinds map[record.Kind]int
}

type replayQueue struct {
	slots  int
	paused bool
	was    bool // before this step
	since  time.Time
}

type replayRun struct {
	id        api.RunID
	by        api.Principal
	plan      api.Plan
	declared  int // tasks of the submitted plan
	tasks     map[api.TaskID]*replayTask
	queue     api.Name
	at        time.Time
	retryOf   api.RunID
	paused    bool
	wasPaused bool // before this step
	resumed   time.Time
	cancelled bool
	cancelWas bool // before this step
	settled   *record.RunEnd
	ended     time.Time // when it settled
	last      uint64    // the newest entry
	seen      bool      // it was described since it is settled
}

type replayTask struct {
	run      *replayRun
	parent   *replayTask   // that it grew from
	children []*replayTask // that grew from it
	plan     api.PlanTask
	state    api.TaskState // never ready: that follows
	attempt  int
	starts   int
	asked    int // questions of this attempt
	dispatch api.DispatchID
	fence    uint64
	ask      *ask      // how people are asked for approval
	asks     bool      // waits for an answer
	until    time.Time // waits for that
	given    bool      // the answer is there
	freed    time.Time // since when nothing but locks, slots and pauses is in its way that the task itself knows
	reason   api.Reason
	cause    api.TaskID
	by       api.Principal
	taken    bool
	stopAsk  bool // somebody cancelled it
	ended    uint64
	delays   []time.Duration
}

func newReplay(queues map[api.Name]int) *replay {
	m := &replay{offered: map[api.Digest]api.Plan{}, runs: map[api.RunID]*replayRun{}, queues: map[api.Name]*replayQueue{}, kinds: map[record.Kind]int{}}
	for name, slots := range queues {
		m.queues[name] = &replayQueue{slots: slots}
	}
	return m
}

func (m *replay) object(seq uint64, format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf("#%d: ", seq)+fmt.Sprintf(format, args...))
}

// step begins a step of the test: everything submitted before is handled.
func (m *replay) step() {
	for _, r := range m.runs {
		r.wasPaused, r.cancelWas = r.paused, r.cancelled
	}
	for _, q := range m.queues {
		q.was = q.paused
	}
}

// upstream is what a task comes after.
func upstream(t api.PlanTask) []api.TaskID {
	ids := slices.Clone(t.DependsOn)
	for _, n := range t.Needs {
		ids = append(ids, n.From)
	}
	if t.When != nil {
		ids = append(ids, t.When.Task)
	}
	if t.ForEach != nil && t.ForEach.From != "" {
		ids = append(ids, t.ForEach.From)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// downstream is every task of r that comes after id, however far.
func (r *replayRun) downstream(id api.TaskID) map[api.TaskID]bool {
	found := map[api.TaskID]bool{}
	for grew := true; grew; {
		grew = false
		for _, t := range r.plan.Tasks {
			for _, up := range upstream(t) {
				if (up == id || found[up]) && !found[t.ID] {
					found[t.ID], grew = true, true
				}
			}
		}
	}
	return found
}

// free reports whether everything that a task comes after lets it start. One that grows
// never starts, and one whose condition does not hold will not.
func (t *replayTask) free(m *replay) bool {
	if undispatched(&t.plan) || !t.settledUps() {
		return false
	}
	holds, fault := m.condition(t)
	return holds && !fault
}

// shown is the state that a task is in at a time.
func (t *replayTask) shown(m *replay, now time.Time) api.TaskState {
	switch {
	case t.state == api.TaskPending && t.free(m):
		return api.TaskReady
	case t.state == api.TaskWaiting && t.asks && t.given:
		return api.TaskReady
	case t.state == api.TaskWaiting && !t.asks && t.plan.Approval == nil && !t.until.After(now):
		return api.TaskReady
	}
	return t.state
}

// since is when a ready task could have started without competition.
func (t *replayTask) since(m *replay) time.Time {
	at := t.freed
	for _, other := range []time.Time{t.until, t.run.resumed, m.queues[t.run.queue].since, m.began} {
		if other.After(at) {
			at = other
		}
	}
	return at
}

// GoString is how rapid prints what it has drawn.
func (t *replayTask) GoString() string { return t.name() }

// GoString is how rapid prints what it has drawn.
func (r *replayRun) GoString() string { return string(r.id) }

func (t *replayTask) name() string { return string(t.run.id) + "/" + string(t.plan.ID) }

// key is by what the desk knows a task.
func (t *replayTask) key() string { return string(t.run.id) + " " + string(t.plan.ID) }

// held reports whether a pause holds a task.
func (t *replayTask) held(m *replay) bool { return t.run.paused || m.queues[t.run.queue].paused }

func (m *replay) each(yield func(*replayTask) bool) {
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		r := m.runs[id]
		for _, p := range r.plan.Tasks {
			if !yield(r.tasks[p.ID]) {
				return
			}
		}
	}
}

// deciding counts the tasks that decide how the run ends, in all under "": those that
// did not grow, where one that was skipped by a condition is as good as done.
func (r *replayRun) deciding() map[api.TaskState]int {
	n := map[api.TaskState]int{}
	for _, t := range r.tasks {
		switch {
		case t.parent != nil:
			continue
		case t.byCondition():
			n[api.TaskDone]++
		default:
			n[t.state]++
		}
		n[""]++
	}
	return n
}

func (r *replayRun) count() map[api.TaskState]int {
	n := map[api.TaskState]int{}
	for _, t := range r.tasks {
		n[t.state]++
	}
	return n
}

// apply takes an entry.
func (m *replay) apply(c *audit.Committed) {
	e := &c.Entry
	if c.Seq != m.next {
		m.object(c.Seq, "comes after #%d", m.next)
	}
	m.next = c.Seq + 1
	m.kinds[e.Kind]++
	switch e.Kind {
	case record.KindRunSubmitted:
		m.submitted(c)
		return
	case record.KindQueuePaused, record.KindQueueResumed:
		m.pauseQueue(c)
		return
	case record.KindScheduleFired, record.KindScheduleSkipped, record.KindSchedulePaused, record.KindScheduleResumed:
		m.scheduled(c)
		return
	default:
	}
	if e.Run == "" {
		return
	}
	r := m.runs[api.RunID(e.Run)]
	if r == nil {
		if e.Kind != record.KindRunDenied {
			m.object(c.Seq, "%s of a run %s that was never submitted", e.Kind, e.Run)
		}
		return
	}
	if r.settled != nil {
		m.object(c.Seq, "%s follows after run %s was settled with #%d", e.Kind, r.id, r.last)
	}
	r.last = c.Seq
	switch e.Kind {
	case record.KindRunPaused, record.KindRunResumed:
		r.paused = e.Kind == record.KindRunPaused
		if !r.paused {
			r.resumed = e.At
		}
	case record.KindRunCancelled:
		if e.Task == "" {
			r.cancelled = true
		} else if t := r.tasks[api.TaskID(e.Task)]; t != nil {
			t.stopAsk = true
		}
	case record.KindRunExpired:
		wall := time.Duration(r.plan.Limits.Wall)
		if wall == 0 || e.At.Sub(r.at) < wall || r.cancelled {
			m.object(c.Seq, "run %s reached its limit of %s after %s, cancelled %v", r.id, wall, e.At.Sub(r.at), r.cancelled)
		}
		r.cancelled = true
	case record.KindRunSettled:
		m.settle(c, r)
	case record.KindRunAppended:
		m.appended(c, r)
	default:
		if t := r.tasks[api.TaskID(e.Task)]; t != nil {
			m.task(c, t)
		} else {
			m.object(c.Seq, "%s of a task %q that run %s does not have", e.Kind, e.Task, r.id)
		}
	}
}

func (m *replay) submitted(c *audit.Committed) {
	e := &c.Entry
	ask, _ := e.Detail.(record.RunRequest)
	p, ok := m.offered[e.Refs[record.RefPlan]]
	id := api.RunID(e.Run)
	if slot := m.calendar.planOf(id); !ok && slot != nil {
		p, ok = *slot, e.Refs[record.RefPlan] == digestOf(*slot)
	}
	switch {
	case !ok:
		m.object(c.Seq, "run %s has a plan that was not submitted", id)
		return
	case m.runs[id] != nil:
		m.object(c.Seq, "run %s is submitted twice", id)
	}
	r := &replayRun{id: id, declared: len(p.Tasks), by: e.Principal, plan: p, tasks: map[api.TaskID]*replayTask{}, queue: p.Queue, at: e.At, last: c.Seq, retryOf: api.RunID(ask.RetryOf)}
	if r.queue == "" {
		r.queue = api.DefaultQueue
	}
	for _, t := range p.Tasks {
		r.tasks[t.ID] = &replayTask{run: r, plan: t, state: api.TaskPending, freed: e.At}
	}
	taken := m.inherit(r, ask.From)
	if ask.Tasks != int64(len(r.plan.Tasks)) {
		m.object(c.Seq, "run %s has %d tasks in the log, want %d", id, ask.Tasks, len(r.plan.Tasks))
	}
	if old := m.runs[r.retryOf]; r.retryOf != "" && (old == nil || old.settled == nil) || taken != ask.Taken {
		m.object(c.Seq, "run %s takes over %d tasks of %q, want %d of a run that is settled", id, ask.Taken, r.retryOf, taken)
	}
	m.runs[id] = r
}

func (m *replay) pauseQueue(c *audit.Committed) {
	act, _ := c.Entry.Detail.(record.RunAction)
	q := m.queues[api.Name(act.Queue)]
	if q == nil {
		m.object(c.Seq, "no such queue %q", act.Queue)
		return
	}
	if q.paused = c.Entry.Kind == record.KindQueuePaused; !q.paused {
		q.since = c.Entry.At
	}
}

func (m *replay) settle(c *audit.Committed, r *replayRun) {
	end, _ := c.Entry.Detail.(record.RunEnd)
	r.settled, r.ended = &end, c.Entry.At
	n := r.count()
	for _, k := range []struct {
		state api.TaskState
		said  int64
	}{{api.TaskDone, end.Done}, {api.TaskFailed, end.Failed}, {api.TaskDenied, end.Denied}, {api.TaskCancelled, end.Cancelled}, {api.TaskSkipped, end.Skipped}} {
		if int64(n[k.state]) != k.said {
			m.object(c.Seq, "run %s is settled with %d tasks %s, and %d are", r.id, k.said, k.state, n[k.state])
		}
	}
	for _, t := range r.tasks {
		if !t.state.Settled() {
			m.object(c.Seq, "run %s is settled and task %s is %s", r.id, t.plan.ID, t.state)
		}
	}
	n = r.deciding()
	want := api.RunFailed
	switch {
	case n[api.TaskCancelled] > 0 && (r.cancelled || n[api.TaskFailed]+n[api.TaskDenied] == 0):
		want = api.RunCancelled
	case n[api.TaskDone] == n[""]:
		want = api.RunDone
	}
	if api.RunState(end.State) != want {
		m.object(c.Seq, "run %s is settled as %s, want %s", r.id, end.State, want)
	}
	if took := c.Entry.At.Sub(r.at).Milliseconds(); end.Millis != took && !m.crowd {
		m.object(c.Seq, "run %s took %d ms by the log, want %d", r.id, end.Millis, took)
	}
}

// task takes an entry about a task.
func (m *replay) task(c *audit.Committed, t *replayTask) {
	e := &c.Entry
	step, _ := e.Detail.(record.TaskStep)
	switch e.Kind {
	case record.KindTaskStarted:
		m.start(c, t)
		return
	case record.KindRunGrown:
		m.grown(c, t)
		return
	case record.KindApprovalRequest, record.KindApprovalExpired:
		m.approves(c, t)
		return
	default:
	}
	want := map[record.Kind][]api.TaskState{
		record.KindTaskWaiting: {api.TaskRunning}, record.KindTaskAnswered: {api.TaskWaiting}, record.KindTaskDone: {api.TaskRunning, api.TaskGrowing},
		record.KindTaskFailed: {api.TaskRunning, api.TaskWaiting, api.TaskGrowing, api.TaskPending}, record.KindTaskDenied: {api.TaskRunning},
		record.KindTaskSkipped: {api.TaskPending}, record.KindTaskCancelled: {api.TaskPending, api.TaskWaiting, api.TaskRunning, api.TaskGrowing},
	}[e.Kind]
	if t.plan.Approval != nil {
		want = m.peopleDecide(c, t, want)
	}
	if !slices.Contains(want, t.state) {
		m.object(c.Seq, "%s of task %s, which is %s", e.Kind, t.name(), t.state)
	}
	if e.Dispatch != "" && e.Dispatch != t.dispatch || e.Attempt != 0 && e.Attempt != t.attempt {
		m.object(c.Seq, "%s of task %s names dispatch %s, attempt %d and it has %s, %d", e.Kind, t.name(), e.Dispatch, e.Attempt, t.dispatch, t.attempt)
	}
	if t.state == api.TaskGrowing {
		m.grewEnd(c, t, api.TaskState(strings.TrimPrefix(string(e.Kind), "task.")))
	}
	switch e.Kind {
	case record.KindTaskWaiting:
		m.wait(c, t, step)
		return
	case record.KindTaskAnswered:
		if !t.asks || t.given {
			m.object(c.Seq, "task %s is answered and asks nothing", t.name())
		}
		t.given, t.freed = true, e.At
		return
	case record.KindTaskDone:
		if t.plan.Gate != nil && t.plan.ForEach == nil && t.state == api.TaskRunning {
			m.object(c.Seq, "task %s is done before its gate", t.name())
		}
		t.state = api.TaskDone
	case record.KindTaskFailed:
		if t.state == api.TaskPending {
			m.cannotGrow(c, t, api.Reason(step.Reason))
		}
		if t.state == api.TaskRunning && t.plan.Subagent != absent && t.attempt < t.plan.Retry.Attempts && slices.Contains(t.retried(), api.Reason(step.Reason)) && !t.run.ending(e.At) && !t.stopped() {
			m.object(c.Seq, "task %s is given up after attempt %d of %d for %q", t.name(), t.attempt, t.plan.Retry.Attempts, step.Reason)
		}
		t.state, t.reason = api.TaskFailed, api.Reason(step.Reason)
	case record.KindTaskDenied:
		t.state = api.TaskDenied
	case record.KindTaskCancelled:
		if !t.run.ending(e.At) && !t.stopped() && t.attempt == 0 && t.state != api.TaskGrowing {
			m.object(c.Seq, "task %s is cancelled and that was not requested", t.name())
		}
		t.state, t.by = api.TaskCancelled, api.Principal(step.By)
	case record.KindTaskSkipped:
		t.state, t.cause = api.TaskSkipped, api.TaskID(step.Cause)
		m.skip(c, t)
	default:
	}
	t.asks, t.given, t.until, t.ended = false, false, time.Time{}, c.Seq
	for _, other := range t.run.tasks {
		if slices.Contains(upstream(other.plan), t.plan.ID) {
			other.freed = e.At
		}
	}
}

// skip looks at why a task is skipped.
func (m *replay) skip(c *audit.Committed, t *replayTask) {
	cause := t.run.tasks[t.cause]
	switch {
	case cause == nil || !t.run.downstream(t.cause)[t.plan.ID]:
		m.object(c.Seq, "task %s is skipped because of task %q, which it does not depend on", t.name(), t.cause)
	case cause.state == api.TaskDone || cause.byCondition():
		m.skippedByCondition(c, t, cause)
	case !cause.state.Settled() || cause.state == api.TaskSkipped:
		m.object(c.Seq, "task %s is skipped because of task %s, which is %s", t.name(), t.cause, cause.state)
	case cause.ended == 0 || cause.ended >= c.Seq:
		m.object(c.Seq, "task %s is skipped before its cause", t.name())
	}
}

func (m *replay) start(c *audit.Committed, t *replayTask) {
	e := &c.Entry
	d, _ := e.Detail.(record.TaskStart)
	resumes := t.state == api.TaskWaiting && t.asks && t.given
	if s := t.shown(m, e.At); s != api.TaskReady {
		m.object(c.Seq, "task %s is started and is %s", t.name(), s)
	}
	switch {
	case resumes && (e.Dispatch != t.dispatch || e.Attempt != t.attempt):
		m.object(c.Seq, "task %s resumes as dispatch %s, attempt %d, and asked as %s, %d", t.name(), e.Dispatch, e.Attempt, t.dispatch, t.attempt)
	case !resumes && e.Attempt != t.attempt+1:
		m.object(c.Seq, "attempt %d of task %s follows on %d", e.Attempt, t.name(), t.attempt)
	case e.Attempt > max(1, t.plan.Retry.Attempts):
		m.object(c.Seq, "attempt %d of task %s, which has %d", e.Attempt, t.name(), t.plan.Retry.Attempts)
	}
	if d.Fence <= int64(m.fence) {
		m.object(c.Seq, "task %s has fence %d after %d", t.name(), d.Fence, m.fence)
	}
	m.fence = uint64(d.Fence)
	m.each(func(other *replayTask) bool {
		if !resumes && other.dispatch == e.Dispatch {
			m.object(c.Seq, "task %s is started as dispatch %s, which is that of %s", t.name(), e.Dispatch, other.name())
		}
		return true
	})
	if !slices.Equal(d.Locks, keys(t.plan.Locks, false)) || !slices.Equal(d.Shared, keys(t.plan.Locks, true)) {
		m.object(c.Seq, "task %s is started with locks %q and %q, and wants %v", t.name(), d.Locks, d.Shared, t.plan.Locks)
	}
	m.mayStart(c, t)
	if !resumes {
		t.asked = 0
	}
	t.state, t.attempt, t.dispatch, t.fence = api.TaskRunning, e.Attempt, e.Dispatch, uint64(d.Fence)
	t.asks, t.given, t.until = false, false, time.Time{}
	t.starts++
}

// mayStart looks at what is in the way of a start.
func (m *replay) mayStart(c *audit.Committed, t *replayTask) {
	q := m.queues[t.run.queue]
	over := t.run.plan.Limits.Wall > 0 && c.Entry.At.After(t.run.at.Add(time.Duration(t.run.plan.Limits.Wall)))
	if q.paused && q.was || t.run.paused && t.run.wasPaused || t.run.cancelled && t.run.cancelWas || over {
		m.object(c.Seq, "task %s is started and is held", t.name())
	}
	running := 0
	m.each(func(other *replayTask) bool {
		key := ""
		if other != t {
			key = clash(t.plan.Locks, other.plan.Locks)
		}
		if other.state == api.TaskRunning {
			if other.run.queue == t.run.queue && (m.affording == nil || !m.affording(other)) {
				running++
			}
		}
		if other.holds() {
			if key != "" {
				m.object(c.Seq, "task %s is started while %s holds %q", t.name(), other.name(), key)
			}
		}
		// What its run's limit of time has ended, which has no entry of its own,
		// waits no more.
		if key != "" && !m.crowd && other.shown(m, c.Entry.At) == api.TaskReady && !other.held(m) && !other.run.ending(c.Entry.At) && !other.stopped() && other.since(m).Before(t.since(m)) {
			m.object(c.Seq, "task %s, ready since %s, passes %s, which waits for %q since %s", t.name(), clock(t.since(m)), other.name(), key, clock(other.since(m)))
		}
		return true
	})
	if running >= q.slots {
		m.object(c.Seq, "task %s is started while %d of %d slots of queue %s are taken", t.name(), running, q.slots, t.run.queue)
	}
}

// holds reports whether a task has its locks: while it runs, and then until its gate
// is settled.
func (t *replayTask) holds() bool {
	return t.state == api.TaskRunning || t.state == api.TaskGrowing && t.plan.Gate != nil && t.plan.ForEach == nil
}

// wait takes that a task waits for an answer or for its next attempt.
func (m *replay) wait(c *audit.Committed, t *replayTask, step record.TaskStep) {
	t.state = api.TaskWaiting
	if t.plan.Approval != nil {
		return
	}
	if step.Until == "" {
		t.asks, t.given = true, false
		t.asked++
		return
	}
	until, err := time.Parse(time.RFC3339Nano, step.Until)
	if err != nil {
		m.object(c.Seq, "task %s waits until %q", t.name(), step.Until)
		return
	}
	t.until, t.reason = until, api.Reason(step.Reason)
	on := t.retried()
	if !slices.Contains(on, t.reason) || t.attempt >= t.plan.Retry.Attempts {
		m.object(c.Seq, "task %s is tried again after attempt %d for %q; it has %d, for %q", t.name(), t.attempt, t.reason, t.plan.Retry.Attempts, on)
	}
	b := t.plan.Retry.Backoff
	if b == (api.Backoff{}) {
		b = api.DefaultBackoff()
	}
	bound := time.Duration(b.Min)
	for range t.attempt {
		bound = min(2*bound, time.Duration(b.Max))
	}
	delay := until.Sub(c.Entry.At)
	if delay < time.Duration(b.Min) && !m.crowd || delay > bound {
		m.object(c.Seq, "task %s is tried again after %s, want %s to %s", t.name(), delay, time.Duration(b.Min), bound)
	}
	t.delays = append(t.delays, delay)
}

// retried are the reasons for which a task is tried again.
func (t *replayTask) retried() []api.Reason {
	if len(t.plan.Retry.On) > 0 {
		return t.plan.Retry.On
	}
	return api.DefaultRetryReasons()
}

func keys(list []api.Lock, shared bool) (names []string) {
	for _, k := range list {
		if k.Shared == shared {
			names = append(names, k.Key)
		}
	}
	slices.Sort(names)
	return names
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
