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
	Admitted  Entry      // the first: it was accepted, or has the result of another one
	Manifest  api.Digest // of the current attempt
	WorkerKey string     // likewise, once it has started
	End       Entry      // likewise, once it has ended; before, one that says nothing
	Refused   int        // requests of it
	Called    int64      // tools, in it
	NotCalled int64      // calls of tools that were denied, likewise
	Taint     *api.Taint // the first of the dispatch's own; not that of its needs
	Statement api.Digest
}

// Runs reports whether the dispatch ran, so that it has a worker's result of its own.
func (s *DispatchStanding) Runs() bool { return s.Admitted.Kind == KindDispatchAccepted }

// Apply applies the next entry about the dispatch. An entry that cannot follow is
// an error.
func (s *DispatchStanding) Apply(e *Entry) error {
	if err := s.Step(e); err != nil {
		return err
	}
	switch d := e.Detail.(type) {
	case DispatchRequest, TaskReuse:
		if e.Kind == KindDispatchAccepted || e.Kind == KindTaskReused {
			*s = DispatchStanding{DispatchChain: s.DispatchChain, Principal: e.Principal, Admitted: *e}
			s.begin(e)
		}
	case AnswerRequest:
		if e.Kind == KindDispatchAnswered {
			s.WorkerKey, s.Refused, s.Called, s.NotCalled = "", 0, 0, 0
			s.begin(e)
		}
	case DispatchStart:
		s.WorkerKey = d.WorkerKey
	case EgressRefusal:
		s.Refused++
	case DispatchEnd:
		s.End = *e
	case ToolCall:
		s.call(e, d)
	case DispatchAttested:
		s.Statement = e.Refs[RefStatement]
	}
	return nil
}

// begin begins the attempt that e admits.
func (s *DispatchStanding) begin(e *Entry) {
	s.Manifest = e.Refs[RefManifest]
	s.End = Entry{Detail: DispatchEnd{}, Refs: map[string]api.Digest{RefManifest: s.Manifest}}
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
