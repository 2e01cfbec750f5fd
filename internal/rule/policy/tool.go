package policy

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ActionToolCall is a call of a tool by the agent of a dispatch.
const ActionToolCall Action = "tool.call"

// ToolRequest is what DecideTool decides about. Service and verifier make it from the
// pinned tool, the manifest of the dispatch, and what was in force at that moment.
type ToolRequest struct {
	Principal api.Principal // whose dispatch it is
	Role      api.Name      // of the dispatch
	Target    api.Name      // likewise
	Tool      api.Tool      // zero but for ID: the role has no such tool
	Ceiling   api.Tier      // of the manifest
	Consent   api.Tier      // the operator's for the principal, now
	Stops     []string      // ids of the emergency stops that cover the dispatch
	Tainted   bool          // the dispatch has text from outside
	Approved  bool          // by as many people as the call needs
}

// NewToolRequest returns the request for a call of t by a dispatch of p in a role. Consent,
// Stops, Tainted and Approved are the caller's to fill in.
func NewToolRequest(p api.Principal, role, target api.Name, ceiling api.Tier, t api.Tool) ToolRequest {
	return ToolRequest{Principal: p, Role: role, Target: target, Ceiling: ceiling, Tool: t}
}

// DecideTool decides a call. A tool that the role does not have is denied as one that
// does not exist. Where only people are missing, the decision NeedsApproval.
func (e *Engine) DecideTool(r ToolRequest) Decision {
	d := Decision{valid: true, principal: r.Principal, action: ActionToolCall, resource: r.Tool.ID}
	rule := toolRules{mode: e.modes[r.Target], id: cedar.PolicyID("tool:" + r.Tool.ID + ":" + string(r.Role))}
	answer, diag := cedar.Authorize(rule, nil, cedar.Request{
		Principal: principalUID(r.Principal), Action: actionUID(ActionToolCall), Resource: types.NewEntityUID("Tool", types.String(r.Tool.ID)),
		Context: types.NewRecord(types.RecordMap{
			"role": types.String(r.Role), "roles": setValue(r.Tool.Roles), "target": types.String(r.Target), "tier": types.Long(r.Tool.Tier),
			"ceiling": types.Long(r.Ceiling), "consent": types.Long(r.Consent), "stopped": types.Boolean(len(r.Stops) > 0),
			"tainted": types.Boolean(r.Tainted), "forbidTainted": types.Boolean(r.Tool.Tainted == api.TaintedForbid),
			"approval": types.Boolean(r.Tool.AsksPeople()), "approved": types.Boolean(r.Approved),
		}),
	})
	for _, reason := range diag.Reasons {
		d.policies = append(d.policies, string(reason.PolicyID))
	}
	slices.Sort(d.policies)
	for _, fault := range diag.Errors {
		d.reasons = append(d.reasons, fmt.Sprintf("policy %q could not be evaluated: %s", fault.PolicyID, fault.Message))
	}
	d.allowed = answer == cedar.Allow && len(diag.Errors) == 0
	if d.allowed {
		d.ceiling = min(r.Ceiling, r.Consent)
		return d
	}
	d.reasons = append(d.reasons, explainTool(r, rule.mode)...)
	if len(diag.Errors) == 0 && !r.Approved && len(d.policies) > 0 {
		approved := r
		approved.Approved = true
		d.needsApproval = e.DecideTool(approved).Allowed()
	}
	return d
}

// DenyTool denies a call for a reason that no policy has: a message that cannot be read,
// arguments that the tool does not take, people who did not approve. policies are those
// that wanted what is missing.
func DenyTool(r ToolRequest, reason string, policies ...string) Decision {
	return Decision{valid: true, principal: r.Principal, action: ActionToolCall, resource: r.Tool.ID, policies: policies, reasons: []string{reason}}
}

// ToolApprovers is how many different people approve a call at tier t.
func ToolApprovers(t api.Tier) int {
	if t >= api.Irreversible {
		return 2
	}
	return 1
}

func explainTool(r ToolRequest, m mode) (reasons []string) {
	t := r.Tool
	if !slices.Contains(t.Roles, r.Role) {
		return []string{fmt.Sprintf("role %q has no tool %q", r.Role, t.ID)}
	}
	for _, id := range r.Stops {
		reasons = append(reasons, fmt.Sprintf("emergency stop %s is engaged", id))
	}
	if t.Tier > r.Ceiling {
		reasons = append(reasons, fmt.Sprintf("tool %q is %s, but the ceiling of the dispatch is %s", t.ID, t.Tier, r.Ceiling))
	}
	if t.Tier > r.Consent {
		reasons = append(reasons, fmt.Sprintf("tool %q is %s, but the ceiling of %s is %s", t.ID, t.Tier, r.Principal, r.Consent))
	}
	if m.policy == nil || t.Tier > m.ceiling {
		reasons = append(reasons, fmt.Sprintf("tool %q is %s, but target %q admits up to %s", t.ID, t.Tier, r.Target, m.ceiling))
	}
	tainted := r.Tainted && t.Tier >= api.Stateful
	switch {
	case tainted && t.Tainted == api.TaintedForbid:
		reasons = append(reasons, fmt.Sprintf("tool %q is closed to a dispatch that has read text from outside", t.ID))
	case tainted && !r.Approved:
		reasons = append(reasons, fmt.Sprintf("the dispatch has read text from outside, so a human approves each call of tool %q", t.ID))
	}
	if t.AsksPeople() && !r.Approved {
		reasons = append(reasons, fmt.Sprintf("a human approves each call of tool %q", t.ID))
	}
	return reasons
}

// toolRules are the policies of calls: the registry's, under an id that names the tool
// and role, the mode of the target, and those that forbid.
type toolRules struct {
	id   cedar.PolicyID
	mode mode
}

// All implements cedar.PolicyIterator.
func (t toolRules) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		rules := toolPolicies()
		if !yield(t.id, rules.permit) {
			return
		}
		for _, f := range rules.forbid {
			if !yield(f.id, f.policy) {
				return
			}
		}
		if t.mode.policy == nil {
			yield("target", rules.noTarget) // no such target any more
			return
		}
		yield(t.mode.id, t.mode.tools)
	}
}

type builtInTools struct {
	permit, noTarget *cedar.Policy
	forbid           []struct {
		id     cedar.PolicyID
		policy *cedar.Policy
	}
}

// toolPolicies are compiled once.
var toolPolicies = sync.OnceValue(func() builtInTools { //nolint:gochecknoglobals // built once, and nothing writes it
	ctx := ast.Context()
	call := func() *ast.Policy { return ast.Forbid().ActionEq(actionUID(ActionToolCall)) }
	isTrue := func(name types.String) ast.Node { return ctx.Access(name).Equal(ast.True()) }
	isFalse := func(name types.String) ast.Node { return ctx.Access(name).Equal(ast.False()) }
	outside := isTrue("tainted").And(ctx.Access("tier").GreaterThanOrEqual(ast.Long(int64(api.Stateful))))
	b := builtInTools{
		permit:   cedar.NewPolicyFromAST(ast.Permit().ActionEq(actionUID(ActionToolCall)).When(ctx.Access("roles").Contains(ctx.Access("role")))),
		noTarget: cedar.NewPolicyFromAST(call()),
	}
	for id, p := range map[cedar.PolicyID]*ast.Policy{
		"stop":          call().When(isTrue("stopped")),
		"ceiling":       call().When(ctx.Access("tier").GreaterThan(ctx.Access("ceiling"))),
		"consent":       call().When(ctx.Access("tier").GreaterThan(ctx.Access("consent"))),
		"approval":      call().When(isTrue("approval").And(isFalse("approved"))),
		"taint":         call().When(outside.And(isFalse("approved"))),
		"taint-forbids": call().When(outside.And(isTrue("forbidTainted"))),
	} {
		b.forbid = append(b.forbid, struct {
			id     cedar.PolicyID
			policy *cedar.Policy
		}{id, cedar.NewPolicyFromAST(p)})
	}
	return b
})

// toolModePolicy forbids calls above a target's mode.
func toolModePolicy(ceiling api.Tier) *ast.Policy {
	return ast.Forbid().ActionEq(actionUID(ActionToolCall)).When(ast.Context().Access("tier").GreaterThan(ast.Long(int64(ceiling))))
}
