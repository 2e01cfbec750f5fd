package plan

import (
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Attempts is how many attempts a task has at most.
func Attempts(t *api.PlanTask) int { return max(1, t.Retry.Attempts) }

// Retries reports whether a task is retried after a failure for reason.
func Retries(t *api.PlanTask, reason api.Reason) bool {
	on := t.Retry.On
	if len(on) == 0 {
		on = api.DefaultRetryReasons()
	}
	return slices.Contains(on, reason)
}

// Delay returns the bounds of the time before the next attempt of a task after so
// many failed attempts: at least Min of its backoff, and at most Min doubled once
// for each failed attempt, or Max.
func Delay(t *api.PlanTask, failed int) (low, high time.Duration) {
	b := t.Retry.Backoff
	if b == (api.Backoff{}) {
		b = api.DefaultBackoff()
	}
	low, high = time.Duration(b.Min), time.Duration(b.Min)
	for n := 0; n < failed && high < time.Duration(b.Max); n++ {
		high *= 2
	}
	return low, min(high, time.Duration(b.Max))
}

// Rules is the version of the rules in this file that a run's states follow; the
// entry of its submission has it. Before Rules 4 no run grew, and no task had a condition.
// Before Rules 5 operator keys belonged to no principal, so a voter could use the key of
// another one, a task with a gate gave back its locks before its fixes (see HoldsForGate),
// and a manifest had no taint of what only decided that its task runs.
const Rules = 5

// RulesOfOwners is the first version of Rules under which a vote counts only under a key
// of its voter.
const RulesOfOwners = 5

// OldestRules is the oldest version of Rules whose runs can be verified: kept evidence has
// such a run (docs/decisions/0111-oldest-rules.md).
const OldestRules = 3

// RunEvent is what happens to a run. The set is closed.
type RunEvent string

// The events of a run.
const (
	RunBlock   RunEvent = "block"   // every open task waits for an answer
	RunUnblock RunEvent = "unblock" // a task can proceed
	RunPause   RunEvent = "pause"   // it, or its queue, was paused
	RunResume  RunEvent = "resume"
	RunFinish  RunEvent = "finish" // every task is done
	RunFail    RunEvent = "fail"   // every task has settled, and one failed or was denied
	RunCancel  RunEvent = "cancel" // every task has settled, and at least one was cancelled: with the run, or none failed or was denied
)

// RunTransition is one step of a run.
type RunTransition struct {
	From  api.RunState
	Event RunEvent
	To    api.RunState
}

// RunTransitions is the one table of a run's states: the engine and the verifier
// use it. docs/state-run.svg is drawn from it. A run that resumes and is still
// blocked is blocked again at once.
func RunTransitions() []RunTransition {
	table := []RunTransition{
		{api.RunRunning, RunBlock, api.RunWaiting},
		{api.RunWaiting, RunUnblock, api.RunRunning},
		{api.RunRunning, RunPause, api.RunPaused},
		{api.RunWaiting, RunPause, api.RunPaused},
		{api.RunPaused, RunResume, api.RunRunning},
	}
	for _, from := range []api.RunState{api.RunRunning, api.RunWaiting, api.RunPaused} {
		table = append(table,
			RunTransition{from, RunFinish, api.RunDone},
			RunTransition{from, RunFail, api.RunFailed},
			RunTransition{from, RunCancel, api.RunCancelled})
	}
	return table
}

// nextRun returns the state of a run in state from after e; from itself if e
// cannot happen to it.
func nextRun(from api.RunState, e RunEvent) api.RunState {
	for _, t := range RunTransitions() {
		if t.From == from && t.Event == e {
			return t.To
		}
	}
	return from
}

// RunState returns the state of a run that has not settled. blocked: every task
// that has not settled waits for an answer, or for one that does.
func RunState(paused, blocked bool) api.RunState {
	state := api.RunRunning
	if blocked {
		state = nextRun(state, RunBlock)
	}
	if paused {
		state = nextRun(state, RunPause)
	}
	return state
}

// Counts counts the tasks that decide how a run ends, for Settle: those that grew count
// by the task that they grew from. A task that was skipped by a condition counts as
// done, as do those that were skipped because of it: nothing went wrong. end returns
// how task i ended, and the task that a skipped one names as its cause.
func (p *Plan) Counts(end func(i int) (state api.TaskState, cause int)) map[api.TaskState]int {
	counts := map[api.TaskState]int{}
	for i := range p.Tasks {
		if p.parent[i] >= 0 {
			continue
		}
		state, cause := end(i)
		if state == api.TaskSkipped && passed(len(p.Tasks), cause, end) {
			state = api.TaskDone
		}
		counts[state]++
	}
	return counts
}

// passed reports whether the cause of a skipped task is done, which its condition is
// about, or was itself skipped by a condition.
func passed(tasks, cause int, end func(i int) (api.TaskState, int)) bool {
	for range 2 {
		if cause < 0 || cause >= tasks {
			return false
		}
		var state api.TaskState
		if state, cause = end(cause); state != api.TaskSkipped {
			return state == api.TaskDone
		}
	}
	return false
}

// Settle returns the final state of a run in state from, whose tasks are counted by
// Counts. cancelled: the run as a whole was cancelled, or its wall time expired.
func Settle(from api.RunState, counts map[api.TaskState]int, cancelled bool) api.RunState {
	tasks := 0
	for _, n := range counts {
		tasks += n
	}
	switch {
	case counts[api.TaskCancelled] > 0 && (cancelled || counts[api.TaskFailed]+counts[api.TaskDenied] == 0):
		return nextRun(from, RunCancel)
	case counts[api.TaskDone] == tasks:
		return nextRun(from, RunFinish)
	}
	return nextRun(from, RunFail)
}
