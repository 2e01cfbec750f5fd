package record

import (
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// DispatchStanding is how a dispatch stands, as its entries say. A stored row
// that says otherwise was changed. The zero value is before the first entry.
type DispatchStanding struct {
	State     api.Event // empty: it was never accepted
	Attempt   int
	Principal api.Principal
	Run, Task string
	Role      api.Name
	Tier      api.Tier
	Request   DispatchRequest // of its acceptance
	Manifest  api.Digest      // of the current attempt
	WorkerKey string          // likewise, once it has started
	Result    api.Digest      // likewise, once it has ended with one
	End       DispatchEnd     // likewise, once it has ended
	Patch     api.Digest
	Question  api.Digest
	Statement api.Digest
}

// Apply applies the next entry about the dispatch. An entry that cannot follow is
// an error.
func (s *DispatchStanding) Apply(e *Entry) error {
	next, ok := NextDispatch(s.State, e.Kind)
	if !ok {
		return fmt.Errorf("%s cannot follow in state %q", e.Kind, s.State)
	}
	switch d := e.Detail.(type) {
	case DispatchRequest:
		if e.Kind == KindDispatchAccepted {
			*s = DispatchStanding{Principal: e.Principal, Run: e.Run, Task: e.Task, Role: e.Role, Request: d}
			if e.Tier != nil {
				s.Tier = *e.Tier
			}
			s.begin(e)
		}
	case AnswerRequest:
		if e.Kind == KindDispatchAnswered {
			s.WorkerKey, s.Result, s.End, s.Patch, s.Question = "", "", DispatchEnd{}, "", ""
			s.begin(e)
		}
	case DispatchStart:
		s.WorkerKey = d.WorkerKey
	case DispatchEnd:
		s.End, s.Result, s.Patch, s.Question = d, e.Refs[RefResult], e.Refs[RefPatch], e.Refs[RefQuestion]
	case DispatchAttested:
		s.Statement = e.Refs[RefStatement]
	}
	s.State = next
	return nil
}

func (s *DispatchStanding) begin(e *Entry) { s.Attempt, s.Manifest = e.Attempt, e.Refs[RefManifest] }

// RunStanding is how a run stands, as its entries say.
type RunStanding struct {
	Principal api.Principal // empty: it was never submitted
	Plan      api.Digest
	Request   RunRequest
	PausedBy  api.Principal
	CancelBy  api.Actor // of the run as a whole
	Settled   bool
	End       RunEnd // once it is settled
	Tasks     map[string]TaskStanding
}

// TaskStanding is how a task stands that has an entry.
type TaskStanding struct {
	State    api.TaskState
	Dispatch api.DispatchID
	Attempt  int
	Fence    int64
}

// Apply applies the next entry of the run.
func (s *RunStanding) Apply(e *Entry) error {
	switch d := e.Detail.(type) {
	case RunRequest:
		if e.Kind == KindRunSubmitted {
			*s = RunStanding{Principal: e.Principal, Plan: e.Refs[RefPlan], Request: d, Tasks: map[string]TaskStanding{}}
		}
	case RunExpiry:
		s.CancelBy = api.Service
	case RunEnd:
		s.Settled, s.End = true, d
	case RunAction:
		s.act(e)
	case TaskStart:
		return s.task(e, api.TaskRunning, d.Fence)
	case TaskStep:
		return s.task(e, taskStates()[e.Kind], s.Tasks[e.Task].Fence)
	}
	return nil
}

func (s *RunStanding) act(e *Entry) {
	switch { // kinds of other details are denials and answers
	case e.Kind == KindRunPaused && s.PausedBy == "":
		s.PausedBy = e.Principal
	case e.Kind == KindRunResumed:
		s.PausedBy = ""
	case e.Kind == KindRunCancelled && e.Task == "" && s.CancelBy == "":
		s.CancelBy = api.Actor(e.Principal)
	}
}

// taskStates are the states that the kinds of a task's steps lead to.
func taskStates() map[Kind]api.TaskState {
	return map[Kind]api.TaskState{
		KindTaskWaiting: api.TaskWaiting, KindTaskDone: api.TaskDone, KindTaskFailed: api.TaskFailed,
		KindTaskDenied: api.TaskDenied, KindTaskCancelled: api.TaskCancelled, KindTaskSkipped: api.TaskSkipped,
	}
}

func (s *RunStanding) task(e *Entry, to api.TaskState, fence int64) error {
	if s.Tasks[e.Task].State.Settled() || to == "" || s.Tasks == nil {
		return fmt.Errorf("%s of task %s cannot follow in state %q", e.Kind, e.Task, s.Tasks[e.Task].State)
	}
	s.Tasks[e.Task] = TaskStanding{to, e.Dispatch, e.Attempt, fence}
	return nil
}
