package evidence

import (
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// cast is a vote about an approval.
type cast struct {
	seq       uint64
	at        time.Time // when the service recorded it
	record    *signedRecord
	withdrawn uint64 // the entry that removed its principal; 0: none
}

// withdraw ends the approving votes of some voters, as the service does.
func (s *timeline) withdraw(e *entry, of func(voter api.Principal) bool) error {
	for _, votes := range s.votes {
		if err := s.v.work.spend(unitCompare * len(votes)); err != nil {
			return err
		}
		for i := range votes {
			if c := &votes[i]; c.withdrawn == 0 && c.record.Verb == api.VerbApprove && of(c.record.Principal) {
				c.withdrawn = e.seq
			}
		}
	}
	return nil
}

// call repeats the decision about a tool call: by the role and pins of its manifest, the
// mode, ceilings, stops and taint at that moment, and the votes before it.
func (d *decider) call(a *admission) error {
	e, v := a.e, d.v
	s := v.scene(e)
	if s.m == nil || e.refused {
		return nil // the manifest or the completeness row reports it
	}
	of, err := v.tools(s.m)
	if err != nil {
		return err
	}
	t, ok := of.tools[e.Tool]
	if !ok {
		t = api.Tool{ID: e.Tool}
	}
	logged := detail[record.ToolCall](e)
	if limit := s.m.Limits.Or(api.Limits{Calls: api.MaxToolCalls}).Calls; logged.Number > int64(limit) {
		return fmt.Errorf("call %d, but its manifest allows %d", logged.Number, limit)
	}
	q := policy.NewToolRequest(s.m.Principal, s.m.Role, s.m.Target, s.m.Ceiling, t)
	q.Consent, q.Tainted, q.Approved = d.line.ceilings.at(e.seq, s.m.Principal), e.taint != nil, logged.Approval != ""
	if id, stopped := d.line.stops.covering(e.seq, s.m.StopSubject()); stopped {
		q.Stops = []string{id}
	}
	if q.Approved {
		if err := d.approved(a, &s, logged.Approval); err != nil {
			return fmt.Errorf("approval %s: %w", logged.Approval, err)
		}
	}
	return d.inForce(a, func(r *revision, engine *policy.Engine) error {
		if err := v.work.spend(unitTool); err != nil {
			return err
		}
		switch decision := engine.DecideTool(q); {
		case !decision.Allowed():
			return fmt.Errorf("call of %s by role %s is denied by catalog revision %d and what was in force then: %s", record.Word(e.Tool), s.m.Role, r.doc.Number, some(decision.Reasons()))
		case len(e.Policies) < uncut && !decision.AllowedBy(e.Policies):
			return fmt.Errorf("allowed by %s, but the log names %s", some(decision.Policies()), some(e.Policies))
		}
		return nil
	})
}

// approved verifies that enough people approved exactly this call before it was made.
func (d *decider) approved(a *admission, s *scene, id string) error {
	v, e := d.v, s.e
	request := s.h.approvals[id]
	if request == nil || request.seq >= e.seq {
		return errors.New("no entry before the call requests it")
	}
	action := request.action
	if action == nil {
		return nil // closure.request reports it
	}
	if err := (record.ApprovedCall{Tool: e.Tool, Arguments: e.Refs[record.RefArguments], Dispatch: s.m.ID, At: e.At}).Covered(action); err != nil {
		return err
	}
	if !sameTaint(action.Taint, e.taint) {
		return fmt.Errorf("it is for a dispatch with %s, which has %s now", taintWords(action.Taint), taintWords(e.taint))
	}
	if err := d.undenied(request, s); err != nil {
		return err
	}
	if err := v.work.spend(unitCompare * len(d.line.votes[action.ID])); err != nil {
		return err
	}
	votes := d.votes(request, e, v.ownKeys(s.m.Run))
	return d.inForce(a, func(_ *revision, engine *policy.Engine) error {
		work := 0
		for i := range votes {
			work += unitTool + unitPolicy*engine.Cost(policy.Request{Principal: votes[i].Principal, Action: policy.ActionDispatch})
		}
		if err := v.work.spend(work); err != nil {
			return err
		}
		if of := action.Action(); !engine.Approved(&of, votes) {
			return fmt.Errorf("not approved before the call by %s who may do so", record.Plural(action.Needs, "human"))
		}
		return nil
	})
}

// undenied refuses an approval of a call that was denied before in its dispatch, whatever
// that has read since. Requests of version 1 keep the older rule: closure.request refuses
// them where keys have principals, and after one of version 2.
func (d *decider) undenied(request *entry, s *scene) error {
	if request.action.V < api.ToolActionVersion {
		return nil
	}
	if err := d.v.work.spend(unitCompare * len(s.h.approvals)); err != nil {
		return err
	}
	for id, other := range s.h.approvals {
		if other.action == nil || other.seq >= s.e.seq || !policy.SameCall(other.action, request.action) {
			continue
		}
		for _, v := range d.votes(other, s.e, false) {
			if !v.Approve {
				return fmt.Errorf("%s denied the same call in approval %s", v.Principal, id)
			}
		}
	}
	return nil
}

// votes returns the votes about an action between its request and the call; own leaves out
// those whose keys have no principal.
func (d *decider) votes(request, call *entry, own bool) (votes []api.Vote) {
	for i := range d.line.votes[request.action.ID] {
		c := &d.line.votes[request.action.ID][i]
		if c.seq < request.seq || c.seq > call.seq || c.withdrawn != 0 && c.withdrawn < call.seq || c.record.Content != request.Refs[record.RefAction] || own && !c.record.assigned {
			continue
		}
		votes = append(votes, c.vote())
	}
	return votes
}
