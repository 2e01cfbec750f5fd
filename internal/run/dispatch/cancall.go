package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// operates reports whether a caller may see what belongs to all principals.
func operates(e *policy.Engine, caller Caller) bool {
	return e.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionOperatorRead, Resource: "service", Token: caller.TokenValid != nil}).Allowed()
}

// noRole is the error of a role that does not exist, or that the caller may not see.
func noRole(role api.Name, p api.Principal) error {
	return api.Errorf(api.CodeNotFound, "no role %q that %s may use", role, p).WithHint("see: bailiwick role list")
}

// RoleTools returns what a role may call, if the caller may dispatch a subagent in it.
func (s *rights) RoleTools(ctx context.Context, caller Caller, role api.Name, schemas bool) (api.RoleTools, error) {
	page, err := s.Artifacts(ctx, caller, inforce.Query{Kind: api.KindRole, Name: role})
	if err != nil {
		return api.RoleTools{}, err
	}
	if len(page.Items) == 0 {
		return api.RoleTools{}, noRole(role, caller.Principal)
	}
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		return api.RoleTools{}, err
	}
	return p.RoleTools(role, schemas)
}

// CanCall returns what policy would decide about a call of a tool, and does nothing.
// It asks the engine that decides the calls of agents.
func (s *rights) CanCall(ctx context.Context, caller Caller, req api.CanCallRequest) (answer api.CanCallAnswer, err error) {
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		return answer, err
	}
	owner := cmp.Or(req.Principal, caller.Principal)
	may := p.Engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionCan, Resource: string(owner)})
	if !may.Allowed() {
		return answer, s.cfg.Ledger.Deny(ctx, may, audit.AccessEntry("", "can"), nil)
	}
	if p.Revision == nil {
		return answer, noRole(req.Role, owner)
	}
	operator := operates(p.Engine, caller)
	granted, err := p.Roles(inforce.Query{Principal: owner, Ceiling: api.Irreversible})
	if err != nil {
		return answer, err
	}
	subagents, exists := granted[req.Role], false
	if operator && (len(subagents) == 0 || req.Principal != "" || req.Subagent != "") {
		all, err := p.Roles(inforce.Query{All: true})
		if err != nil {
			return answer, err
		}
		if subagents, exists = all[req.Role]; req.Principal == "" && len(granted[req.Role]) == 0 {
			owner = "" // of anybody
		}
	}
	answer.Revision = p.Revision.Number()
	for _, name := range subagents {
		if req.Subagent != "" && name != req.Subagent {
			continue
		}
		ceiling := api.Irreversible
		if owner == caller.Principal {
			ceiling = caller.Ceiling
		}
		x := newSubject(p, owner, ceiling, api.DispatchRequest{Subagent: name, Target: req.Target})
		answer.Answers = append(answer.Answers, s.canCall(s.bounded(x), req))
	}
	switch {
	case len(answer.Answers) > 0:
		return answer, nil
	case exists && len(subagents) == 0:
		return answer, api.Errorf(api.CodeNotFound, "role %q has no subagent, so nothing calls tools in it", req.Role).WithHint("give a subagent of the manifest the role")
	case req.Subagent != "" && len(subagents) > 0:
		return answer, api.Errorf(api.CodeNotFound, "role %q has no subagent %q that %s may use", req.Role, req.Subagent, cmp.Or(owner, caller.Principal)).WithHint("see: bailiwick role show %s", req.Role)
	}
	return answer, noRole(req.Role, cmp.Or(owner, caller.Principal))
}

// canCall decides a call by the subagent of x, which may be of anybody.
func (s *rights) canCall(x subject, req api.CanCallRequest) api.CanCallCase {
	answer := api.CanCallCase{Subagent: x.subagent.Name, Target: x.target, Principal: x.principal, Ceiling: api.Irreversible, Decision: api.CallDenied}
	call := policy.NewToolRequest(x.principal, req.Role, x.target, api.Irreversible, toolOf(x.snapshot, req.Role, req.Tool))
	call.Consent, call.Stops, call.Tainted = api.Irreversible, x.stops, req.Tainted
	if x.principal != "" {
		d := x.decide()
		if !d.Allowed() { // without a dispatch there is no call
			answer.Ceiling, answer.Policies, answer.Reasons = api.Observe, d.Policies(), d.Reasons()
			return answer
		}
		call.Ceiling, call.Consent = d.Ceiling(), x.consent
	}
	answer.Ceiling = call.Ceiling
	d := x.snapshot.Engine.DecideTool(call)
	answer.Policies, answer.Reasons = d.Policies(), d.Reasons()
	switch {
	case d.Allowed():
		answer.Decision = api.CallAllowed
	case d.NeedsApproval():
		answer.Decision, answer.Approvers = api.CallNeedsApproval, policy.ToolApprovers(call.Tool.Tier)
	}
	if since := s.closedSince(x.snapshot, call.Tool); answer.Decision != api.CallDenied && !since.IsZero() {
		answer.Decision, answer.Approvers = api.CallDenied, 0
		answer.Reasons = []string{fmt.Sprintf("the tool is closed: at %s its definition differed from its pin in the catalog; see: bailiwick catalog plan", since.UTC().Format(time.RFC3339))}
	}
	return answer
}

// closedSince returns when the server of a tool was last found to have another definition than
// its pin; the zero time while it does not.
func (s *rights) closedSince(p inforce.Snapshot, tool api.Tool) time.Time {
	if tool.Server == "" {
		return time.Time{}
	}
	return s.cfg.Tools.ClosedSince(p.Revision, tool)
}

// toolOf returns a tool of a role by its ID. Of one that the role does not have it
// returns only that.
func toolOf(p inforce.Snapshot, role api.Name, id string) api.Tool {
	for _, t := range p.Revision.Tools(role) {
		if t.ID == id {
			return t
		}
	}
	return api.Tool{ID: id}
}
