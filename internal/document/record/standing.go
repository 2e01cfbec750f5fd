package record

import (
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// DispatchStanding is the state of a dispatch, folded from its entries. A stored row
// that says otherwise was changed. The zero value is before the first entry.
type DispatchStanding struct {
	DispatchChain
	Principal api.Principal
	Run, Task string
	Role      api.Name
	Tier      api.Tier
	Request   DispatchRequest // of its acceptance
	Manifest  api.Digest      // of the current attempt
	WorkerKey string          // likewise, once it has started
	Result    api.Digest      // likewise, once it has ended with one
	End       DispatchEnd     // likewise, once it has ended
	Refused   int             // requests of it
	Called    int64           // tools, in it
	NotCalled int64           // calls of tools that were denied, likewise
	Calls     api.Digest      // the record of its calls
	Taint     *api.Taint      // the first of the dispatch's own; not that of its needs
	Patch     api.Digest
	Question  api.Digest
	Statement api.Digest
	Reused    TaskReuse // the zero value: it ran
}

// Apply applies the next entry about the dispatch. An entry that cannot follow is
// an error.
func (s *DispatchStanding) Apply(e *Entry) error {
	if err := s.Step(e); err != nil {
		return err
	}
	switch d := e.Detail.(type) {
	case DispatchRequest:
		if e.Kind == KindDispatchAccepted {
			*s = DispatchStanding{DispatchChain: s.DispatchChain, Principal: e.Principal, Run: e.Run, Task: e.Task, Role: e.Role, Request: d}
			if e.Tier != nil {
				s.Tier = *e.Tier
			}
			s.Manifest = e.Refs[RefManifest]
		}
	case TaskReuse:
		*s = DispatchStanding{DispatchChain: s.DispatchChain, Principal: e.Principal, Run: e.Run, Task: e.Task, Role: e.Role, Request: DispatchRequest{Subagent: e.Resource}, Reused: d}
		if e.Tier != nil {
			s.Tier = *e.Tier
		}
		s.Manifest = e.Refs[RefManifest]
	case AnswerRequest:
		if e.Kind == KindDispatchAnswered {
			s.WorkerKey, s.Result, s.End, s.Patch, s.Question, s.Refused = "", "", DispatchEnd{}, "", "", 0
			s.Called, s.NotCalled, s.Calls = 0, 0, ""
			s.Manifest = e.Refs[RefManifest]
		}
	case DispatchStart:
		s.WorkerKey = d.WorkerKey
	case EgressRefusal:
		s.Refused++
	case DispatchEnd:
		s.End, s.Result, s.Patch, s.Question, s.Calls = d, e.Refs[RefResult], e.Refs[RefPatch], e.Refs[RefQuestion], e.Refs[RefCalls]
	case ToolCall:
		s.call(e, d)
	case DispatchAttested:
		s.Statement = e.Refs[RefStatement]
	}
	return nil
}

func (s *DispatchStanding) call(e *Entry, d ToolCall) {
	if e.Kind == KindToolDenied {
		s.NotCalled++
		return
	}
	if s.Called++; d.Taints && s.Taint == nil {
		s.Taint = &api.Taint{Dispatch: e.Dispatch, Attempt: e.Attempt, Call: d.Number, Tool: e.Tool}
	}
}

// RunStanding is how a run stands, as its entries say.
type RunStanding struct {
	RunChain
	Principal api.Principal // empty: it was never submitted
	Plan      api.Digest
	Request   RunRequest
	PausedBy  api.Principal
	CancelBy  api.Actor // of the run as a whole
	End       RunEnd    // once it is settled
	Growths   []api.Digest
	Tasks     map[string]TaskStanding
}

// TaskStanding is the state of a task that has an entry.
type TaskStanding struct {
	TaskChain
	Fence int64
}

// Apply applies the next entry of the run. An entry that cannot follow is an error.
func (s *RunStanding) Apply(e *Entry) error {
	if err := s.Step(e.Kind); err != nil {
		return err
	}
	switch d := e.Detail.(type) {
	case RunRequest:
		if e.Kind == KindRunSubmitted {
			*s = RunStanding{RunChain: s.RunChain, Principal: e.Principal, Plan: e.Refs[RefPlan], Request: d, Tasks: map[string]TaskStanding{}}
		}
	case RunGrowth:
		s.Growths = append(s.Growths, e.Refs[RefGrowth])
	case RunExpiry:
		s.CancelBy = api.Service
	case RunEnd:
		s.End = d
	case RunAction:
		s.act(e)
	}
	if e.Task == "" || !StepsTask(e.Kind) {
		return nil
	}
	t, ok := s.Tasks[e.Task]
	if !ok {
		t.TaskChain = TaskChainAt(e, s.Request.RetryOf != "")
	}
	if d, ok := e.Detail.(TaskStart); ok {
		t.Fence = d.Fence
	}
	if err := t.Step(e); err != nil {
		return fmt.Errorf("task %s: %w", e.Task, err)
	}
	s.Tasks[e.Task] = t
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
