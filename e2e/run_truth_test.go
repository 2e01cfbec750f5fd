package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// runStory is everything recorded about one run that has settled. Like a story
// it can be altered to show that the checks fail.
type runStory struct {
	id       string
	answered bool     // its caller got a response that it was submitted
	run      *api.Run // with all its tasks; nil if not found
	plan     api.Plan
	append   []api.PlanTask // that its caller adds
	added    bool           // its caller got a response that they were added
	seen     []uint64       // the entries that a follower received; nil without a follower
	barred   bool           // a grant is revoked or a stop engaged while it is open
}

// replayed is the state of a task as replayed from the log.
type replayed struct {
	plan              api.PlanTask
	after             []api.TaskID
	state             api.TaskState // ready is not in the log: such a task is pending, or waiting
	attempt           int
	dispatch          string
	accepted          int  // how often the dispatch was accepted
	end               *end // the latest end of the dispatch
	ends              int
	endedWithQuestion bool // its dispatch ended with a question, even if another end followed
	asks              bool // it waits for an answer
	answers           int  // to the question that it waits for
	reason            string
	cause             string
	cancelRequested   bool
	growth            // of what grew from it, or it from
}

// replay reads the log entry by entry and tracks the state of its runs.
type replay struct {
	bad    []string
	runs   map[string]*replayedRun
	holds  map[string]map[string]bool // by lock, then by holder RUN/TASK; true if exclusive
	fences map[string]int64           // of the latest holder of a lock
	paused map[string]bool            // queues
	asks   map[string]*replayed       // by approval
}

type replayedRun struct {
	story           *runStory
	tasks           map[api.TaskID]*replayed
	queue           string
	fired           int // how often its slot fired
	submitted       int
	appended        int
	dispatches      int64 // that were accepted
	paused          bool
	cancelRequested bool
	expired         bool // it reached its time limit
	settled         bool
	entries         []uint64
}

func (r *replay) say(e *entry, format string, args ...any) {
	r.bad = append(r.bad, fmt.Sprintf("%s/%s at entry %d, %s: ", e.Run, e.Task, e.Seq, e.Kind)+fmt.Sprintf(format, args...))
}

// wrongRuns replays the log and lists violations in it and in stories. It
// ignores entries of other runs.
func wrongRuns(log []entry, stories []*runStory) []string {
	r := &replay{runs: map[string]*replayedRun{}, holds: map[string]map[string]bool{}, fences: map[string]int64{}, paused: map[string]bool{}, asks: map[string]*replayed{}}
	for _, s := range stories {
		run := &replayedRun{story: s, tasks: map[api.TaskID]*replayed{}, queue: string(s.plan.Queue)}
		if run.queue == "" {
			run.queue = string(api.DefaultQueue)
		}
		for _, t := range s.plan.Tasks {
			run.tasks[t.ID] = declared(t)
		}
		if s.run != nil {
			for _, t := range s.run.Tasks {
				if t.TakenOver && run.tasks[t.Task] != nil {
					run.tasks[t.Task].state = api.TaskDone
				}
			}
		}
		r.runs[s.id] = run
	}
	for i := range log {
		r.entry(&log[i])
	}
	for _, id := range slices.Sorted(maps.Keys(r.runs)) {
		r.checkEnd(r.runs[id])
	}
	return r.bad
}

// entry replays one entry.
func (r *replay) entry(e *entry) {
	if e.Kind == "queue.paused" || e.Kind == "queue.resumed" {
		r.paused[e.Detail.Queue] = e.Kind == "queue.paused"
		return
	}
	if e.Kind == "operator.recorded" {
		r.voted(e)
		return
	}
	run := r.runs[e.Run]
	if run == nil {
		return
	}
	run.entries = append(run.entries, e.Seq)
	if run.settled {
		r.say(e, "UNTRUE: the run has settled before it")
	}
	if e.Kind == "schedule.fired" {
		if run.fired++; run.fired > 1 || run.submitted > 0 {
			r.say(e, "DOUBLED: its slot fires %d times, and it was submitted %d times before", run.fired, run.submitted)
		}
		return
	}
	if run.submitted == 0 && e.Kind != "run.submitted" && e.Kind != "run.denied" {
		r.say(e, "UNTRUE: the run is not submitted before it")
	}
	switch e.Kind {
	case "run.submitted":
		if run.submitted++; run.submitted > 1 {
			r.say(e, "DOUBLED: it is submitted %d times", run.submitted)
		}
		return
	case "run.paused":
		run.paused = true
		return
	case "run.resumed":
		run.paused = false
		return
	case "run.cancel_requested":
		if e.Task == "" {
			run.cancelRequested = true
		}
	case "run.expired":
		run.cancelRequested, run.expired = true, true
		return
	case "run.settled":
		run.settled = true
		r.checkSkips(e, run)
		for id, t := range run.tasks {
			if !t.state.Settled() {
				r.say(e, "LOST: task %s is %s", id, t.state)
			}
		}
		return
	case "run.denied":
		return
	case "run.appended":
		r.appended(e, run)
		return
	}
	t := run.tasks[api.TaskID(e.Task)]
	if t == nil {
		if e.Kind != "run.cancel_requested" {
			r.say(e, "UNTRUE: no such task")
		}
		return
	}
	if strings.HasPrefix(e.Kind, "dispatch.") {
		r.dispatch(e, run, t)
		return
	}
	if e.Kind == "approval.requested" {
		r.asked(e, t)
		return
	}
	r.task(e, run, t)
}

// dispatch replays an entry of a task's dispatch.
func (r *replay) dispatch(e *entry, run *replayedRun, t *replayed) {
	if e.Dispatch != t.dispatch {
		r.say(e, "UNTRUE: it is about dispatch %s, the task's is %q", e.Dispatch, t.dispatch)
		return
	}
	if e.Kind == "dispatch.accepted" {
		if t.accepted++; t.accepted > 1 {
			r.say(e, "DOUBLED: dispatch %s is accepted %d times", e.Dispatch, t.accepted)
		}
		r.spent(e, run)
	}
	if t.state != api.TaskRunning && (e.Kind == "dispatch.accepted" || e.Kind == "dispatch.started" || e.Kind == "dispatch.answered") {
		r.say(e, "UNTRUE: the task is %s", t.state)
	}
	if event, ok := endEvent(e.Kind); ok {
		t.ends++
		t.endedWithQuestion = t.endedWithQuestion || event == api.EventNeedsInput
		t.end = &end{event, api.Reason(e.Detail.Reason)}
	}
}

// task replays an entry of a task.
func (r *replay) task(e *entry, run *replayedRun, t *replayed) {
	if e.Kind != "task.skipped" {
		r.checkSkips(e, run)
	}
	if e.Kind == "run.cancel_requested" { // it may repeat or come too late
		t.cancelRequested = true
		return
	}
	if t.state.Settled() {
		r.say(e, "DOUBLED or UNTRUE: it is %s already", t.state)
		return
	}
	was := t.state
	switch e.Kind {
	case "task.started":
		r.started(e, run, t)
		return
	case "run.grown":
		r.grown(e, run, t)
		return
	case "task.reused": // it admits the result of another dispatch, and ends with it
		if t.accepted++; was != api.TaskRunning || t.accepted > 1 {
			r.say(e, "DOUBLED or UNTRUE: it was %s, and its dispatch was admitted %d times", was, t.accepted)
		}
		t.ends++
		t.end = &end{api.EventFinished, ""}
		return
	case "task.answered":
		if t.answers++; was != api.TaskWaiting || !t.asks || t.answers > 1 {
			r.say(e, "DOUBLED or UNTRUE: it is %s, asks: %v, answered %d times", was, t.asks, t.answers)
		}
		return
	case "task.waiting":
		if t.plan.Approval != nil {
			r.waitsForPeople(e, run, t)
			return
		}
		t.state, t.asks, t.answers, t.reason = api.TaskWaiting, e.Detail.Until == "", 0, e.Detail.Reason
		r.waiting(e, t, was)
	case "task.done":
		t.state = api.TaskDone
		if r.controlEnded(e, run, t, was) {
			break
		}
		if was != api.TaskRunning || t.end == nil || *t.end != (end{api.EventFinished, ""}) {
			r.say(e, "UNTRUE: it was %s, its dispatch ended with %v", was, t.end)
		}
	case "task.failed":
		t.state, t.reason = api.TaskFailed, e.Detail.Reason
		if r.controlEnded(e, run, t, was) {
			break
		}
		if was != api.TaskRunning && was != api.TaskWaiting || t.end != nil && (t.end.state != api.EventFailed || string(t.end.reason) != e.Detail.Reason) {
			r.say(e, "UNTRUE: it was %s, its dispatch ended with %v", was, t.end)
		}
		if was == api.TaskRunning && !run.cancelRequested && !t.cancelRequested && t.retries(e.Detail.Reason) && t.attempt < max(1, t.plan.Retry.Attempts) {
			r.say(e, "UNTRUE: it was not retried after attempt %d", t.attempt)
		}
	case "task.cancelled":
		t.state = api.TaskCancelled
		if e.Detail.By == "" {
			r.say(e, "UNTRUE: it names no caller")
		}
		if e.Detail.By == string(api.Service) && !run.expired && (t.parent == nil || !t.parent.state.Settled()) {
			r.say(e, "UNTRUE: the service cancelled it, and nothing that it grew from has settled")
		}
	case "task.denied":
		t.state = api.TaskDenied
		r.denied(e, run, t, was)
	case "task.skipped":
		t.state, t.cause = api.TaskSkipped, e.Detail.Cause
		r.skipped(e, run, t, was)
	default:
		r.say(e, "UNTRUE: unknown kind of entry")
	}
	for key := range r.holds {
		delete(r.holds[key], e.Run+"/"+e.Task)
	}
}

// retries reports whether a failure for reason is retried.
func (t *replayed) retries(reason string) bool {
	on := t.plan.Retry.On
	if len(on) == 0 {
		on = api.DefaultRetryReasons()
	}
	return slices.Contains(on, api.Reason(reason))
}

func (r *replay) waiting(e *entry, t *replayed, was api.TaskState) {
	if was != api.TaskRunning {
		r.say(e, "UNTRUE: it was %s", was)
	}
	if t.asks {
		if !t.endedWithQuestion {
			r.say(e, "UNTRUE: its dispatch ended with %v", t.end)
		}
		return
	}
	if t.end != nil && (t.end.state != api.EventFailed || string(t.end.reason) != e.Detail.Reason) || !t.retries(e.Detail.Reason) || t.attempt >= t.plan.Retry.Attempts {
		r.say(e, "UNTRUE: attempt %d of %d ended with %v", t.attempt, t.plan.Retry.Attempts, t.end)
	}
}

func (r *replay) started(e *entry, run *replayedRun, t *replayed) {
	who := e.Run + "/" + e.Task
	switch {
	case t.state == api.TaskPending && t.attempt == 0 && e.Attempt == 1:
		r.checkDependencies(e, run, t)
	case t.state == api.TaskWaiting && t.asks && t.answers == 1 && e.Attempt == t.attempt && e.Dispatch == t.dispatch:
	case t.state == api.TaskWaiting && !t.asks && e.Attempt == t.attempt+1 && e.Dispatch != t.dispatch:
	default:
		r.say(e, "DOUBLED or UNTRUE: it was %s (asks: %v, %d answers) with attempt %d, dispatch %q", t.state, t.asks, t.answers, t.attempt, t.dispatch)
	}
	if run.paused || r.paused[run.queue] || run.cancelRequested || t.cancelRequested {
		r.say(e, "UNTRUE: run paused %v, queue paused %v; cancel of the run requested %v, of the task %v", run.paused, r.paused[run.queue], run.cancelRequested, t.cancelRequested)
	}
	if e.Dispatch != t.dispatch {
		t.accepted, t.ends, t.end = 0, 0, nil
	}
	t.endedWithQuestion = false
	t.state, t.attempt, t.dispatch, t.asks, t.answers = api.TaskRunning, e.Attempt, e.Dispatch, false, 0
	var want []string
	for _, l := range t.plan.Locks {
		want = append(want, fmt.Sprint(strings.ReplaceAll(l.Key, "{{each.name}}", t.item), l.Shared))
	}
	var got []string
	for alone, keys := range map[bool][]string{true: e.Detail.Locks, false: e.Detail.Shared} {
		for _, key := range keys {
			got = append(got, fmt.Sprint(key, !alone))
			if r.holds[key] == nil {
				r.holds[key] = map[string]bool{}
			}
			for other, exclusive := range r.holds[key] {
				if alone || exclusive {
					r.say(e, "DOUBLED: lock %s is held by %s", key, other)
				}
			}
			if e.Detail.Fence <= r.fences[key] {
				r.say(e, "UNTRUE: fencing token %d of lock %s follows %d", e.Detail.Fence, key, r.fences[key])
			}
			r.holds[key][who], r.fences[key] = alone, e.Detail.Fence
		}
	}
	if !slices.Equal(sorted(got), sorted(want)) {
		r.say(e, "UNTRUE: it holds %q, the plan says %q", got, want)
	}
}

// skipped checks that the cause of a skipped task is one of its dependencies,
// and settled without being done.
func (r *replay) skipped(e *entry, run *replayedRun, t *replayed, was api.TaskState) {
	before := map[api.TaskID]bool{}
	var climb func(ids []api.TaskID)
	climb = func(ids []api.TaskID) { // plans of tests are small
		for _, id := range ids {
			if !before[id] && run.tasks[id] != nil {
				before[id] = true
				climb(run.tasks[id].after)
			}
		}
	}
	climb(t.after)
	cause := run.tasks[api.TaskID(t.cause)]
	if w := t.plan.When; was == api.TaskPending && w != nil && t.cause == string(w.Task) && cause != nil && cause.state == api.TaskDone && !holds(w) {
		t.passed = true
		return
	}
	t.passed = cause != nil && cause.passed
	if was != api.TaskPending || cause == nil || !before[api.TaskID(t.cause)] || !cause.state.Settled() || cause.state == api.TaskDone {
		r.say(e, "UNTRUE: it was %s and is skipped because of %q", was, t.cause)
	}
}

// checkSkips checks that no task waits for one that failed: dependents are
// skipped in the same commit, so before any other entry.
func (r *replay) checkSkips(e *entry, run *replayedRun) {
	for id, t := range run.tasks {
		for _, dep := range t.after {
			if d := run.tasks[dep]; t.state == api.TaskPending && d != nil && d.state.Settled() && !satisfied(t, d) && e.Kind != "task.cancelled" && string(id) != e.Task {
				r.say(e, "LOST: task %s is not skipped, and %s is %s", id, dep, d.state)
			}
		}
	}
}

// checkEnd compares the replayed state of a run with its story.
func (r *replay) checkEnd(run *replayedRun) {
	s := run.story
	say := func(format string, args ...any) {
		r.bad = append(r.bad, "run "+s.id+": "+fmt.Sprintf(format, args...))
	}
	if s.run == nil {
		if s.answered || run.submitted > 0 {
			say("LOST: it was submitted (answered: %v, in the log: %d) but the run was not found", s.answered, run.submitted)
		}
		return
	}
	if !run.settled || !s.run.State.Settled() {
		say("LOST: settled in the log: %v; it is %s", run.settled, s.run.State)
	}
	if len(s.run.Tasks) != len(run.tasks) || s.run.Total != len(run.tasks) {
		say("LOST: it has %d tasks (total %d), its plan %d", len(s.run.Tasks), s.run.Total, len(run.tasks))
	}
	counts := map[api.TaskState]int{}
	for _, o := range s.run.Tasks {
		t := run.tasks[o.Task]
		if t == nil {
			say("UNTRUE: its plan has no task %s", o.Task)
			continue
		}
		counts[o.State]++
		if o.TakenOver {
			continue
		}
		if o.State != t.state || o.Attempt != t.attempt || string(o.DispatchID) != t.dispatch || string(o.Cause) != t.cause || o.State == api.TaskFailed && string(o.Reason) != t.reason {
			say("UNTRUE: task %s is %s %s, attempt %d, dispatch %q, cause %q; the log says %s %s, %d, %q, %q", o.Task, o.State, o.Reason, o.Attempt, o.DispatchID, o.Cause, t.state, t.reason, t.attempt, t.dispatch, t.cause)
		}
	}
	for state, n := range s.run.Counts {
		if counts[state] != n {
			say("UNTRUE: it counts %d %s, want %d", n, state, counts[state])
		}
	}
	late := s.run.Deadline != nil && s.run.SettledAt != nil && s.run.SettledAt.After(*s.run.Deadline)
	if want := derived(run.ends(), run.cancelRequested || late); s.run.State != want {
		say("UNTRUE: it is %s, its tasks %v make it %s", s.run.State, counts, want)
	}
	if s.added && run.appended == 0 {
		say("LOST: its caller got a response that tasks were added, the log has none")
	}
	if s.seen != nil && !slices.Equal(s.seen, run.entries) {
		say("LOST or DOUBLED: its follower received the entries %v, the log has %v", s.seen, run.entries)
	}
}

// derived is the state of a settled run whose tasks ended so. A requested cancel makes
// it cancelled only if that cancelled a task.
func derived(counts map[api.TaskState]int, toEnd bool) api.RunState {
	total := 0
	for _, n := range counts {
		total += n
	}
	switch {
	case counts[api.TaskDone] == total:
		return api.RunDone
	case counts[api.TaskCancelled] > 0 && (toEnd || counts[api.TaskFailed]+counts[api.TaskDenied] == 0):
		return api.RunCancelled
	}
	return api.RunFailed
}
