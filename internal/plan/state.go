package plan

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Event is what happens to a task. The set is closed.
type Event string

// The events.
const (
	EventDeps    Event = "deps"    // all that it depends on is done
	EventStart   Event = "start"   // it has its locks and a slot
	EventDone    Event = "done"    // its dispatch finished
	EventFail    Event = "fail"    // its last attempt failed, or nobody answered in time
	EventDeny    Event = "deny"    // policy refused its dispatch
	EventAsk     Event = "ask"     // its dispatch asks a question
	EventBackoff Event = "backoff" // an attempt failed and there will be another
	EventAnswer  Event = "answer"  // the question is answered
	EventDue     Event = "due"     // the time of the next attempt has come
	EventCancel  Event = "cancel"  // somebody cancelled it, or its run
	EventSkip    Event = "skip"    // something that it depends on will not be done
)

// Events lists them all.
func Events() []Event {
	return []Event{EventDeps, EventStart, EventDone, EventFail, EventDeny, EventAsk, EventBackoff, EventAnswer, EventDue, EventCancel, EventSkip}
}

// Transition is one step that a task can take.
type Transition struct {
	From  api.TaskState
	Event Event
	To    api.TaskState
}

// Transitions is the one table of what follows what. docs/state-machine.svg is
// drawn from it.
func Transitions() []Transition {
	return []Transition{
		{api.TaskPending, EventDeps, api.TaskReady},
		{api.TaskPending, EventSkip, api.TaskSkipped},
		{api.TaskPending, EventCancel, api.TaskCancelled},
		{api.TaskReady, EventStart, api.TaskRunning},
		{api.TaskReady, EventCancel, api.TaskCancelled},
		{api.TaskRunning, EventDone, api.TaskDone},
		{api.TaskRunning, EventFail, api.TaskFailed},
		{api.TaskRunning, EventDeny, api.TaskDenied},
		{api.TaskRunning, EventAsk, api.TaskWaiting},
		{api.TaskRunning, EventBackoff, api.TaskWaiting},
		{api.TaskRunning, EventCancel, api.TaskCancelled},
		{api.TaskWaiting, EventAnswer, api.TaskReady},
		{api.TaskWaiting, EventDue, api.TaskReady},
		{api.TaskWaiting, EventFail, api.TaskFailed},
		{api.TaskWaiting, EventCancel, api.TaskCancelled},
	}
}

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

// Settle is the final state of a run with so many settled tasks in each state.
// cancelled: the run as a whole was cancelled, or its wall time expired.
func Settle(counts map[api.TaskState]int, cancelled bool) api.RunState {
	tasks := 0
	for _, n := range counts {
		tasks += n
	}
	switch {
	case cancelled && counts[api.TaskCancelled] > 0:
		return api.RunCancelled
	case counts[api.TaskDone] == tasks:
		return api.RunDone
	}
	return api.RunFailed
}

// Next is the state that follows when e happens to a task in the state from.
// False: that cannot happen, and whoever thinks that it did is wrong.
func Next(from api.TaskState, e Event) (api.TaskState, bool) {
	for _, t := range Transitions() {
		if t.From == from && t.Event == e {
			return t.To, true
		}
	}
	return "", false
}
