package record

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// TaskEvent is what happens to a task. The set is closed.
type TaskEvent string

// The events.
const (
	EventDeps    TaskEvent = "deps"    // every task that it depends on is done
	EventStart   TaskEvent = "start"   // it has its locks and a slot
	EventDone    TaskEvent = "done"    // its dispatch finished
	EventFail    TaskEvent = "fail"    // its last attempt failed, or its question expired
	EventDeny    TaskEvent = "deny"    // policy denied its dispatch
	EventAsk     TaskEvent = "ask"     // its dispatch needs input
	EventBackoff TaskEvent = "backoff" // an attempt failed and will be retried
	EventAnswer  TaskEvent = "answer"  // the question is answered
	EventDue     TaskEvent = "due"     // the backoff is over
	EventCancel  TaskEvent = "cancel"  // it, or its run, was cancelled
	EventSkip    TaskEvent = "skip"    // a task that it depends on ended without being done, or its condition does not hold
	EventGrow    TaskEvent = "grow"    // tasks grow from it
	EventApprove TaskEvent = "approve" // people approved what it is to write
)

// TaskTransition is one step of a task.
type TaskTransition struct {
	From  api.TaskState
	Event TaskEvent
	To    api.TaskState
}

// TaskTransitions is the one table of a task's states: the engine and the verifier
// use it. docs/state-task.svg is drawn from it.
func TaskTransitions() []TaskTransition {
	return []TaskTransition{
		{api.TaskPending, EventDeps, api.TaskReady},
		{api.TaskPending, EventSkip, api.TaskSkipped},
		{api.TaskPending, EventCancel, api.TaskCancelled},
		{api.TaskPending, EventGrow, api.TaskGrowing}, // for_each, quorum
		{api.TaskPending, EventFail, api.TaskFailed},  // it cannot grow
		{api.TaskPending, EventAsk, api.TaskWaiting},  // approval
		{api.TaskReady, EventStart, api.TaskRunning},
		{api.TaskReady, EventCancel, api.TaskCancelled},
		{api.TaskRunning, EventDone, api.TaskDone},
		{api.TaskRunning, EventFail, api.TaskFailed},
		{api.TaskRunning, EventDeny, api.TaskDenied},
		{api.TaskRunning, EventAsk, api.TaskWaiting},
		{api.TaskRunning, EventBackoff, api.TaskWaiting},
		{api.TaskRunning, EventCancel, api.TaskCancelled},
		{api.TaskRunning, EventGrow, api.TaskGrowing}, // gate
		{api.TaskWaiting, EventAnswer, api.TaskReady},
		{api.TaskWaiting, EventDue, api.TaskReady},
		{api.TaskWaiting, EventApprove, api.TaskReady},
		{api.TaskWaiting, EventFail, api.TaskFailed},
		{api.TaskWaiting, EventCancel, api.TaskCancelled},
		{api.TaskWaiting, EventDone, api.TaskDone}, // approved
		{api.TaskWaiting, EventDeny, api.TaskDenied},
		{api.TaskGrowing, EventGrow, api.TaskGrowing},
		{api.TaskGrowing, EventDone, api.TaskDone},
		{api.TaskGrowing, EventFail, api.TaskFailed},
		{api.TaskGrowing, EventCancel, api.TaskCancelled},
	}
}

// NextTask returns the state of a task in state from after e, and false if e cannot
// happen to it.
func NextTask(from api.TaskState, e TaskEvent) (api.TaskState, bool) {
	for _, t := range TaskTransitions() {
		if t.From == from && t.Event == e {
			return t.To, true
		}
	}
	return "", false
}

// TaskChain is what the entries of a run say of one of its tasks so far, without
// the plan.
type TaskChain struct {
	State    api.TaskState // by TaskTransitions
	Attempt  int
	Dispatch api.DispatchID
	Admitted bool // an entry admits the dispatch
	Asks     bool // it waits for an answer
	People   bool // it waits for people to approve what it is to write; its dispatch is not admitted
	Answered bool
	By       api.Principal // that answered last
	Option   int64         // that it chose
	Resumed  bool          // its last start resumes with an answer
	Used     bool          // and its dispatch has resumed with it
	Reused   bool          // its dispatch has the result of an earlier one
}

// NewTaskChain returns the chain of a task of a run that was submitted.
func NewTaskChain() TaskChain { return TaskChain{State: api.TaskPending} }

// TaskChainAt returns the chain of a task of a run before e, its first entry. A retry
// begins with what had grown, so that a task can be done that does not grow in it.
func TaskChainAt(e *Entry, retries bool) TaskChain {
	c := NewTaskChain()
	if retries && e.Kind == KindTaskDone && e.Dispatch == "" {
		c.State = api.TaskGrowing
	}
	return c
}

// StepsTask reports whether an entry of a run with kind k, and a task, is a step of
// that task.
func StepsTask(k Kind) bool {
	switch k { //nolint:exhaustive // the others change no task
	case KindTaskStarted, KindTaskWaiting, KindTaskAnswered, KindTaskDone, KindTaskFailed, KindTaskSkipped, KindTaskCancelled, KindTaskDenied, KindTaskReused,
		KindRunGrown, KindDispatchAccepted, KindDispatchAnswered:
		return true
	}
	return false
}

// Step applies the next entry that StepsTask. That a task is ready is not logged:
// it follows from other entries.
func (c *TaskChain) Step(e *Entry) error {
	switch e.Kind { //nolint:exhaustive // those that are not of the dispatch under way
	case KindTaskStarted:
		return c.start(e)
	case KindTaskAnswered:
		if c.State != api.TaskWaiting || !c.Asks || c.Answered || c.Attempt == 0 {
			return errors.New("answered without a question")
		}
		d, _ := e.Detail.(RunAction)
		c.Answered, c.By, c.Option = true, e.Principal, d.Option
		return nil
	}
	if e.Dispatch != c.Dispatch || e.Attempt != c.Attempt && e.Kind != KindDispatchAccepted && e.Kind != KindDispatchAnswered && e.Kind != KindTaskReused {
		return fmt.Errorf("it is in attempt %d as dispatch %s, but the entry is of attempt %d as dispatch %s", c.Attempt, c.Dispatch, e.Attempt, e.Dispatch)
	}
	switch e.Kind { //nolint:exhaustive // those that StepsTask
	case KindDispatchAccepted:
		if c.State != api.TaskRunning || c.Resumed || c.Admitted {
			return fmt.Errorf("dispatched while %s, or a second time", c.State)
		}
		c.Admitted = true
	case KindTaskReused:
		if c.State != api.TaskRunning || c.Resumed || c.Admitted {
			return fmt.Errorf("reused while %s, or after it was dispatched", c.State)
		}
		c.Admitted, c.Reused = true, true
	case KindDispatchAnswered:
		d, _ := e.Detail.(AnswerRequest)
		if c.State != api.TaskRunning || !c.Resumed || c.Used || e.Principal != c.By || c.Option != 0 && d.Option != c.Option {
			return errors.New("its dispatch resumes with an answer that was not given to the task")
		}
		c.Used = true
	case KindTaskWaiting:
		d, _ := e.Detail.(TaskStep)
		switch {
		case d.Until != "":
			return c.move(EventBackoff)
		case d.Approval && (c.Admitted || c.Resumed):
			return errors.New("waiting for people to approve what its dispatch has begun")
		}
		c.Asks, c.People = !d.Approval, d.Approval && c.Attempt > 0
		return c.move(EventAsk)
	case KindRunGrown:
		return c.move(EventGrow)
	case KindTaskDone, KindTaskDenied:
		if c.State == api.TaskWaiting && c.Attempt > 0 && (!c.People || e.Kind == KindTaskDone) { // only people decide about one that waits, and no dispatch of it runs
			return errors.New("decided while its dispatch waits for an answer")
		}
		if e.Kind == KindTaskDenied {
			return c.move(EventDeny)
		}
		return c.move(EventDone)
	case KindTaskFailed:
		return c.move(EventFail)
	case KindTaskCancelled:
		return c.move(EventCancel)
	case KindTaskSkipped:
		return c.move(EventSkip)
	}
	return nil
}

// start applies the start of a task, also if it is invalid, so that the entries
// after it can be followed.
func (c *TaskChain) start(e *Entry) (err error) {
	switch {
	case c.State == api.TaskPending:
		if err = c.move(EventDeps, EventStart); err == nil && e.Attempt != 1 {
			err = fmt.Errorf("its first attempt is %d", e.Attempt)
		}
	case c.State == api.TaskWaiting && c.Asks:
		if err = c.move(EventAnswer, EventStart); err == nil && (!c.Answered || e.Attempt != c.Attempt || e.Dispatch != c.Dispatch) {
			err = errors.New("resumed without an answer, or as another dispatch")
		}
	case c.State == api.TaskWaiting && c.People:
		if err = c.move(EventApprove, EventStart); err == nil && (e.Attempt != c.Attempt || e.Dispatch != c.Dispatch) {
			err = errors.New("people approved another attempt, or another dispatch")
		}
	default:
		if err = c.move(EventDue, EventStart); err == nil && (e.Attempt != c.Attempt+1 || e.Dispatch == c.Dispatch) {
			err = fmt.Errorf("attempt %d after attempt %d, or the same dispatch again", e.Attempt, c.Attempt)
		}
	}
	*c = TaskChain{
		State: api.TaskRunning, Attempt: e.Attempt, Dispatch: e.Dispatch, Admitted: c.Admitted && e.Dispatch == c.Dispatch, Reused: c.Reused && e.Dispatch == c.Dispatch,
		By: c.By, Option: c.Option, Resumed: c.Asks,
	}
	return err
}

// move takes steps of the table of transitions.
func (c *TaskChain) move(events ...TaskEvent) error {
	for _, e := range events {
		to, ok := NextTask(c.State, e)
		if !ok {
			return fmt.Errorf("event %s in state %s", e, c.State)
		}
		c.State = to
	}
	return nil
}
