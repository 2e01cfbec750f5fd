package record

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// DispatchChain is what the entries of one dispatch say so far: enough to tell
// which entry may follow. The log refuses every other one when it is written and
// before it is signed, and the verifier refuses evidence with one.
type DispatchChain struct {
	State    api.Event // by DispatchTransitions; empty before it was accepted
	Attempt  int
	Attested bool
	Calls    *CallChain // nil before the first, and once the dispatch has ended
}

// Over reports whether the dispatch has ended.
func (c *DispatchChain) Over() bool {
	return c.State != "" && c.State != api.EventNeedsInput && c.State.Ended()
}

// Step applies the next entry with the id of the dispatch. After an error nothing has
// changed.
func (c *DispatchChain) Step(e *Entry) error {
	before := *c
	if err := c.move(e.Kind, e.Attempt); err != nil {
		return err
	}
	if c.Calls == nil && (c.State == "" || c.Over() || !aboutCalls(e)) {
		return nil
	}
	if c.Calls == nil {
		c.Calls = &CallChain{}
	}
	if err := c.Calls.Step(e); err != nil {
		*c = before
		return err
	}
	if c.Over() {
		c.Calls = nil
	}
	return nil
}

func aboutCalls(e *Entry) bool {
	switch e.Detail.(type) {
	case ToolCall, ToolReturn, ApprovalRequest:
		return true
	}
	return false
}

// move applies what an entry changes about the state.
func (c *DispatchChain) move(k Kind, attempt int) error {
	if k == KindDispatchAttested {
		if !c.Over() || c.Attested {
			return errors.New("attested before it ended, or twice")
		}
		c.Attested = true
		return nil
	}
	next := *c
	var ok bool
	switch next.State, ok = NextDispatch(c.State, k); {
	case !ok && c.State == "":
		return fmt.Errorf("%s before it was accepted", k)
	case !ok:
		return fmt.Errorf("%s while it is %s", k, c.State)
	case c.Attested && !FollowsAttestation(k):
		return fmt.Errorf("%s after it was attested", k)
	case ofAttempt(k) && (c.State != api.EventStarted || attempt != c.Attempt):
		return fmt.Errorf("%s of attempt %d, but the dispatch is %s in attempt %d", k, attempt, c.State, c.Attempt)
	case next.State == c.State:
		return nil
	}
	if next.State == api.EventAccepted || k == KindTaskReused {
		next.Attempt++
	}
	if attempt != next.Attempt {
		return fmt.Errorf("%s of attempt %d, but the dispatch is in attempt %d", k, attempt, next.Attempt)
	}
	*c = next
	return nil
}

// ofAttempt reports whether an entry of kind k belongs to a running attempt.
func ofAttempt(k Kind) bool {
	switch k { //nolint:exhaustive // all others follow other rules
	case KindEgressRefused, KindToolCalled, KindToolDenied, KindToolReturned, KindToolUnknown, KindApprovalRequest:
		return true
	}
	return false
}

// FollowsAttestation reports whether an entry of kind k may follow the attestation
// of its dispatch. None of them changes what it did or how it ended, so evidence
// without them is whole: pins, requests that were denied, and the steps of its
// task, which are in the chain of the run, and approvals that expired unused.
func FollowsAttestation(k Kind) bool {
	switch k { //nolint:exhaustive // all others belong to the time before
	case KindDispatchPinned, KindDispatchUnpinned,
		KindDispatchDenied, KindCancelDenied, KindAnswerDenied, KindAccessDenied, KindApprovalExpired,
		KindTaskWaiting, KindTaskDone, KindTaskFailed, KindTaskCancelled, KindTaskDenied, KindRunGrown:
		return true
	}
	return false
}

// RunChain is what the entries of one run say so far, without its plan.
type RunChain struct{ Submitted, Settled bool }

// Step applies the next entry with the id of the run.
func (c *RunChain) Step(k Kind) error {
	switch {
	case k == KindScheduleFired && !c.Submitted: // before the run of its slot
		return nil
	case k == KindRunDenied: // of a request for a run of that id that was denied
		return nil
	case c.Settled:
		return errors.New("after the run settled")
	case k == KindRunSubmitted && c.Submitted:
		return errors.New("submitted a second time")
	case k == KindRunSubmitted:
		c.Submitted = true
		return nil
	case !c.Submitted:
		return errors.New("before the run was submitted")
	}
	c.Settled = k == KindRunSettled
	return nil
}

// RuleChain is what the entries that are Rules say so far.
type RuleChain struct {
	Revision int64 // of the catalog
	Records  int64 // of operators
}

// Step applies the next entry that is one of the Rules.
func (c *RuleChain) Step(e *Entry) error {
	switch d := e.Detail.(type) {
	case RevisionSeen:
		if d.Number <= c.Revision {
			return fmt.Errorf("catalog revision %d follows revision %d: a rollback restores what the newer one revoked", d.Number, c.Revision)
		}
		c.Revision = d.Number
	case OperatorDecision:
		if d.Number != c.Records+1 {
			return fmt.Errorf("operator record %d follows record %d", d.Number, c.Records)
		}
		c.Records = d.Number
	}
	return nil
}
