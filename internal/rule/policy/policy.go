// Package policy decides whether a principal may take an action on a resource,
// and names the policies that decided.
//
// The grants and target modes of a catalog revision, and a few built-in rules,
// compile to Cedar, which denies by default and lets a forbid win. Nothing
// here reads a clock, a disk or a network, and nothing here acts: an allowed
// Decision is worth nothing until the audit log has made it durable.
//
// Carries R-B7 (only what a grant lists can be named) and R-T5 (consent, what a
// session declares, and the mode of the target).
package policy

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Action is what a principal requests to do. The set is closed.
type Action string

// The actions.
const (
	ActionDispatch       Action = "dispatch"
	ActionDispatchRead   Action = "dispatch.read"   // describe, logs, patch, outputs
	ActionDispatchCancel Action = "dispatch.cancel" //
	ActionDispatchAnswer Action = "dispatch.answer" // the question of a dispatch; resuming it is decided again as a dispatch
	ActionDispatchPin    Action = "dispatch.pin"    // protect it from the retention rules, or end that
	ActionRunSubmit      Action = "run.submit"      // each of its tasks is decided too, at submission and when it starts
	ActionRunRead        Action = "run.read"
	ActionRunCancel      Action = "run.cancel"   // the run, or one task of it
	ActionRunPause       Action = "run.pause"    // and resume
	ActionRunAnswer      Action = "run.answer"   // the question of a task
	ActionRunAppend      Action = "run.append"   // add tasks to a run; each of them is decided too, as at submission
	ActionCatalogRead    Action = "catalog.read" // what a caller may use: names and descriptions
	ActionCan            Action = "can"          // query a decision; the resource is the principal it is about
	ActionAuditRead      Action = "audit.read"
	ActionStatusRead     Action = "status.read"
	ActionServiceStop    Action = "service.stop"
	ActionQueuePause     Action = "queue.pause"    // and resume
	ActionSchedulePause  Action = "schedule.pause" // and resume
	ActionScheduleRun    Action = "schedule.run"   // submit it now, as its own principal
	ActionServiceGC      Action = "service.gc"     // remove what the retention rules have expired
	ActionServiceStay    Action = "service.stay"   // turn off the idle shutdown

	ActionOperatorRead   Action = "operator.read"   // principals, tokens, stops
	ActionOperatorRecord Action = "operator.record" // submit a decision that an operator signed
	ActionStopEngage     Action = "stop.engage"     // engage an emergency stop
)

// operatorActions are the actions that the operator may take on any resource.
func operatorActions() []Action {
	return append(serviceActions(), ActionDispatchRead, ActionDispatchCancel, ActionDispatchAnswer, ActionDispatchPin, ActionCatalogRead, ActionCan,
		ActionRunRead, ActionRunCancel, ActionRunPause, ActionRunAnswer)
}

// serviceActions are those of them whose resource is the service.
func serviceActions() []Action {
	return []Action{
		ActionAuditRead, ActionStatusRead, ActionServiceStop, ActionQueuePause, ActionSchedulePause, ActionScheduleRun, ActionServiceGC, ActionServiceStay, ActionOperatorRead, ActionOperatorRecord, ActionStopEngage,
	}
}

// Rules are the input of New.
type Rules struct {
	Grants  []api.Grant
	Targets []api.Target
	// Operator may read everything and stop the service. In same-user mode it is
	// the service's own account. Empty: no operator.
	Operator api.Principal
	// Operators reports who else may do so: the people whose operator keys are in force.
	// It is asked at each decision. nil: nobody.
	Operators func(api.Principal) bool
}

// RulesOf returns the rules of a catalog revision with these grants and targets,
// in the order of their names.
func RulesOf(grants map[api.Name]api.Grant, targets map[api.Name]api.Target) Rules {
	return Rules{Grants: byName(grants), Targets: byName(targets)}
}

func byName[T any](from map[api.Name]T) (list []T) {
	for _, n := range slices.Sorted(maps.Keys(from)) {
		list = append(list, from[n])
	}
	return list
}

// DispatchRequest returns the request to dispatch r, which names its target,
// for p at the subagent's tier. Consent, Session and Stops are the caller's to
// fill in.
func DispatchRequest(p api.Principal, r api.DispatchRequest, tier api.Tier) Request {
	q := Request{
		Principal: p, Action: ActionDispatch, Resource: string(r.Subagent), Tier: tier,
		Target: r.Target, Envs: r.Envs, Capabilities: r.Capabilities,
	}
	if r.Source != nil {
		q.Source = r.Source.Name
	}
	return q
}

// Request is what Decide decides about.
type Request struct {
	Principal api.Principal
	Action    Action
	Resource  string        // for dispatch: the subagent's name; for run.submit: the principal
	Owner     api.Principal // of the dispatch or run
	Shown     bool          // of ActionDispatchRead: whether a task asks the principal to approve its products
	Token     bool          // whether the principal was established by a token, not by the operating system
	Steers    bool          // of ActionRunAppend: whether it came by an operator call, which no AI makes (see api.CallSpec)

	// For ActionDispatch. A name that does not exist is in no grant, so it is
	// denied like one that is not granted.
	Tier         api.Tier
	Target       api.Name
	Envs         []api.Name
	Source       api.Name   // empty: none
	Capabilities []api.Name // beyond the subagent's own

	// Bounds of a dispatch beyond its grant. The zero values admit the least.
	Consent api.Tier // the highest tier that an operator consented to for the principal
	Session api.Tier // the ceiling that the request declared; Irreversible without one
	Stops   []string // ids of the emergency stops that cover it
	Spent   []string // why budgets of its grants or its run have no room for it
}

// Engine answers requests against one set of rules. It evaluates only the policies
// that can apply to a request. It is safe for concurrent use.
type Engine struct {
	always cedar.PolicyMap
	modes  map[api.Name]mode // of targets
	of     map[api.Principal][]*Grant

	operator  api.Principal            // whose policy is in always
	operators func(api.Principal) bool // who else is one; may be nil
}

// WithoutOperators returns e as it decides about a caller by token: no operator key makes
// such a caller an operator.
func (e *Engine) WithoutOperators() *Engine {
	if e == nil || e.operators == nil {
		return e
	}
	bare := *e
	bare.operators = nil
	return &bare
}

// Grant is a compiled grant, which several engines can share.
type Grant struct {
	api.Grant
	policy *cedar.Policy
	append *cedar.Policy // of runs, where it has append
	lists  map[api.Kind]map[api.Name]bool
}

// Compile compiles a grant.
func Compile(g api.Grant) *Grant {
	c := &Grant{Grant: g, policy: cedar.NewPolicyFromAST(grantPolicy(g)), lists: map[api.Kind]map[api.Name]bool{}}
	if g.Append {
		c.append = cedar.NewPolicyFromAST(appendPolicy().PrincipalEq(principalUID(g.Principal)))
	}
	for _, kind := range []api.Kind{api.KindSubagent, api.KindEnv, api.KindSource, api.KindCapability, api.KindTarget} {
		list := make(map[api.Name]bool, len(granted(g, kind)))
		for _, n := range granted(g, kind) {
			list[n] = true
		}
		c.lists[kind] = list
	}
	return c
}

// has reports whether g lists a name.
func (g *Grant) has(kind api.Kind, name api.Name) bool { return g.lists[kind][name] }

type mode struct {
	id      cedar.PolicyID
	ceiling api.Tier
	policy  *cedar.Policy // of dispatches
	tools   *cedar.Policy // of calls
}

// New compiles rules. It fails if any rule does not compile.
func New(rules Rules) (*Engine, error) {
	grants := make([]*Grant, 0, len(rules.Grants))
	for _, g := range rules.Grants {
		grants = append(grants, Compile(g))
	}
	e, err := NewOf(grants, rules.Targets, rules.Operator)
	if err == nil {
		e.operators = rules.Operators
	}
	return e, err
}

// NewOf is New for compiled grants.
func NewOf(grants []*Grant, targets []api.Target, operator api.Principal) (*Engine, error) {
	e := &Engine{operator: operator, always: cedar.PolicyMap{}, modes: make(map[api.Name]mode, len(targets)), of: map[api.Principal][]*Grant{}}
	seen := make(map[api.Name]bool, len(grants))
	for _, g := range grants {
		if seen[g.Name] {
			return nil, fmt.Errorf("duplicate policy %q", grantID(g.Grant))
		}
		seen[g.Name] = true
		e.of[g.Principal] = append(e.of[g.Principal], g)
	}
	for _, t := range targets {
		ceiling, err := t.Mode.Ceiling()
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", t.Name, err)
		}
		if _, twice := e.modes[t.Name]; twice {
			return nil, fmt.Errorf("duplicate policy %q", modePolicyID(t))
		}
		e.modes[t.Name] = mode{cedar.PolicyID(modePolicyID(t)), ceiling, cedar.NewPolicyFromAST(modePolicy(t.Name, ceiling)), cedar.NewPolicyFromAST(toolModePolicy(ceiling))}
	}
	maps.Copy(e.always, builtIn())
	if operator != "" {
		e.always[policyOperator] = cedar.NewPolicyFromAST(operatorPolicy(operator))
	}
	return e, nil
}

// builtIn are the policies of every engine, compiled once.
var builtIn = sync.OnceValue(func() cedar.PolicyMap { //nolint:gochecknoglobals // built once, and nothing writes it
	out := cedar.PolicyMap{}
	for id, p := range map[cedar.PolicyID]*ast.Policy{
		"owner": ownerPolicy(), "shown": shownPolicy(), "self": selfPolicy(), PolicyAppend: appendPolicy().When(ast.Context().Access("steers").Equal(ast.True())), "consent": boundPolicy("consent"), "session": boundPolicy("session"), "token": tokenPolicy(), "stop": stopPolicy(), "budget": budgetPolicy(),
	} {
		out[id] = cedar.NewPolicyFromAST(p)
	}
	return out
})

// Cost is how many policies and names Decide compares for r.
func (e *Engine) Cost(r Request) int {
	n := len(e.always) + 1
	if r.Action == ActionDispatch || r.Action == ActionRunAppend {
		n += len(e.of[r.Principal])
	}
	return n * (1 + (len(r.Envs)+len(r.Capabilities))/4)
}

// applicable are the policies that can apply to a request. Grants of others, and
// the modes of other targets, never do.
type applicable struct {
	e *Engine
	r *Request
}

// All implements cedar.PolicyIterator.
func (a applicable) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for id, p := range a.e.always {
			if !yield(id, p) {
				return
			}
		}
		if a.e.operators != nil && a.r.Principal != a.e.operator && a.e.operators(a.r.Principal) && !yield(policyOperator, keyHolder()) {
			return
		}
		if a.r.Action == ActionRunAppend {
			for _, g := range a.e.of[a.r.Principal] {
				if g.Append && !yield(cedar.PolicyID(grantID(g.Grant)), g.append) {
					return
				}
			}
		}
		if a.r.Action != ActionDispatch {
			return
		}
		if m, ok := a.e.modes[a.r.Target]; ok && !yield(m.id, m.policy) {
			return
		}
		for _, g := range a.e.of[a.r.Principal] {
			if g.has(api.KindSubagent, api.Name(a.r.Resource)) && !yield(cedar.PolicyID(grantID(g.Grant)), g.policy) {
				return
			}
		}
	}
}

func grantID(g api.Grant) string { return "grant:" + string(g.Name) }

// grantPolicy permits a dispatch if this one grant covers all of it.
func grantPolicy(g api.Grant) *ast.Policy {
	ctx := ast.Context()
	return ast.Permit().
		PrincipalEq(principalUID(g.Principal)).
		ActionEq(actionUID(ActionDispatch)).
		When(set(g.Subagents).Contains(ctx.Access("subagent"))).
		When(set(g.Targets).Contains(ctx.Access("target"))).
		When(set(g.Envs).ContainsAll(ctx.Access("envs"))).
		When(set(g.Sources).ContainsAll(ctx.Access("sources"))).
		When(set(g.Capabilities).ContainsAll(ctx.Access("capabilities"))).
		When(ctx.Access("tier").LessThanOrEqual(ast.Long(int64(g.Ceiling))))
}

func modePolicyID(t api.Target) string {
	return "target:" + string(t.Name) + ":" + string(t.Mode)
}

// modePolicy forbids tiers above a target's mode, even if a grant permits them.
func modePolicy(target api.Name, ceiling api.Tier) *ast.Policy {
	ctx := ast.Context()
	return ast.Forbid().
		ActionEq(actionUID(ActionDispatch)).
		When(ctx.Access("target").Equal(ast.String(target))).
		When(ctx.Access("tier").GreaterThan(ast.Long(int64(ceiling))))
}

// boundPolicy forbids tiers above one in the context: the operator's consent for
// the principal, or the ceiling that the request declared (R-T5).
func boundPolicy(bound types.String) *ast.Policy {
	ctx := ast.Context()
	return ast.Forbid().
		ActionEq(actionUID(ActionDispatch)).
		When(ctx.Access("tier").GreaterThan(ctx.Access(bound)))
}

// stopPolicy forbids every dispatch that an emergency stop covers (R-T10).
func stopPolicy() *ast.Policy {
	return ast.Forbid().
		ActionEq(actionUID(ActionDispatch)).
		When(ast.Context().Access("stopped").Equal(ast.True()))
}

// budgetPolicy forbids every dispatch for which a budget has no room (R-O11).
func budgetPolicy() *ast.Policy {
	return ast.Forbid().
		ActionEq(actionUID(ActionDispatch)).
		When(ast.Context().Access("spent").Equal(ast.True()))
}

// tokenPolicy forbids operator actions and the steering of runs to every caller
// by token: they are for people at the service's account.
func tokenPolicy() *ast.Policy {
	return ast.Forbid().
		ActionInSet(actionUIDs(append(serviceActions(), ActionRunCancel, ActionRunPause, ActionRunAnswer))...).
		When(ast.Context().Access("token").Equal(ast.True()))
}

// ownerPolicy lets the owner of a dispatch or run read, steer and cancel it.
func ownerPolicy() *ast.Policy {
	return ast.Permit().
		ActionInSet(actionUIDs([]Action{
			ActionDispatchRead, ActionDispatchCancel, ActionDispatchAnswer, ActionDispatchPin, ActionRunRead, ActionRunCancel, ActionRunPause, ActionRunAnswer,
		})...).
		When(ast.Context().Access("owner").Equal(ast.Principal()))
}

// PolicyAppend is the policy that lets the owner of a run append by an operator call.
const PolicyAppend = "append"

// appendPolicy lets the owner of a run add tasks to it. An operator call needs no
// grant; any other, so every call of an AI, needs one with append, which permits the same.
func appendPolicy() *ast.Policy {
	return ast.Permit().ActionEq(actionUID(ActionRunAppend)).When(ast.Context().Access("owner").Equal(ast.Principal()))
}

// AppendRequest returns the request of caller to add tasks to a run of owner.
func AppendRequest(caller, owner api.Principal, run api.RunID, token, steers bool) Request {
	return Request{Principal: caller, Action: ActionRunAppend, Resource: string(run), Owner: owner, Token: token, Steers: steers && !token}
}

// shownPolicy lets people read what they are asked to approve.
func shownPolicy() *ast.Policy {
	return ast.Permit().ActionEq(actionUID(ActionDispatchRead)).When(ast.Context().Access("shown").Equal(ast.True()))
}

// selfPolicy lets every principal query what it may do itself, list it, and
// submit runs of it.
func selfPolicy() *ast.Policy {
	return ast.Permit().
		ActionInSet(actionUID(ActionCan), actionUID(ActionCatalogRead), actionUID(ActionRunSubmit)).
		When(ast.Resource().Equal(ast.Principal()))
}

const policyOperator = "operator"

// keyHolder is operatorPolicy for whom Rules.Operators reports.
var keyHolder = sync.OnceValue(func() *cedar.Policy { //nolint:gochecknoglobals // built once, and nothing writes it
	return cedar.NewPolicyFromAST(ast.Permit().ActionInSet(actionUIDs(operatorActions())...))
})

func operatorPolicy(operator api.Principal) *ast.Policy {
	return ast.Permit().PrincipalEq(principalUID(operator)).ActionInSet(actionUIDs(operatorActions())...)
}

// Decide decides r. An error in evaluating a policy is a denial.
func (e *Engine) Decide(r Request) Decision {
	d := Decision{valid: true, principal: r.Principal, action: r.Action, resource: r.Resource}
	if r.Principal == "" {
		d.reasons = []string{"unknown caller"}
		return d
	}
	// A subagent that no grant of the caller names looks like a missing one, so its
	// tier and stops must not show in the reasons (R-B6).
	if r.Action == ActionDispatch && !e.names(r.Principal, api.Name(r.Resource)) {
		r.Tier, r.Stops, r.Spent = api.Observe, nil, nil
	}
	resource := types.NewEntityUID("Resource", types.String(r.Resource))
	if r.Action == ActionCan || r.Action == ActionCatalogRead || r.Action == ActionRunSubmit {
		resource = principalUID(api.Principal(r.Resource))
	}
	answer, diag := cedar.Authorize(applicable{e, &r}, nil, cedar.Request{
		Principal: principalUID(r.Principal),
		Action:    actionUID(r.Action),
		Resource:  resource,
		Context:   contextOf(r),
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
		d.ceiling = e.ceiling(r, d.policies)
	} else {
		d.reasons = append(d.reasons, e.explain(r)...)
	}
	return d
}

// names reports whether a grant of p names a subagent.
func (e *Engine) names(p api.Principal, subagent api.Name) bool {
	return slices.ContainsFunc(e.of[p], func(g *Grant) bool { return g.has(api.KindSubagent, subagent) })
}

// ceiling returns the highest tier that the policies which allow r would allow;
// they are sorted.
func (e *Engine) ceiling(r Request, policies []string) api.Tier {
	granted := api.Observe
	for _, g := range e.of[r.Principal] {
		if _, decided := slices.BinarySearch(policies, grantID(g.Grant)); decided {
			granted = max(granted, g.Ceiling)
		}
	}
	ceiling := api.Irreversible // no mode bounds it
	if m, ok := e.modes[r.Target]; ok {
		ceiling = m.ceiling
	}
	return min(granted, ceiling, r.Consent, r.Session)
}

func contextOf(r Request) types.Record {
	sources := []api.Name{}
	if r.Source != "" {
		sources = append(sources, r.Source)
	}
	return types.NewRecord(types.RecordMap{
		"subagent":     types.String(r.Resource),
		"target":       types.String(r.Target),
		"tier":         types.Long(r.Tier),
		"consent":      types.Long(r.Consent),
		"session":      types.Long(r.Session),
		"token":        types.Boolean(r.Token),
		"steers":       types.Boolean(r.Steers),
		"shown":        types.Boolean(r.Shown),
		"stopped":      types.Boolean(len(r.Stops) > 0),
		"spent":        types.Boolean(len(r.Spent) > 0),
		"owner":        principalUID(r.Owner),
		"envs":         setValue(r.Envs),
		"sources":      setValue(sources),
		"capabilities": setValue(r.Capabilities),
	})
}

func principalUID(p api.Principal) types.EntityUID {
	return types.NewEntityUID("Principal", types.String(p))
}

func actionUID(a Action) types.EntityUID {
	return types.NewEntityUID("Action", types.String(a))
}

func actionUIDs(actions []Action) (uids []types.EntityUID) {
	for _, a := range actions {
		uids = append(uids, actionUID(a))
	}
	return uids
}

func setValue(names []api.Name) types.Set {
	values := make([]types.Value, 0, len(names))
	for _, n := range names {
		values = append(values, types.String(n))
	}
	return types.NewSet(values...)
}

func set(names []api.Name) ast.Node { return ast.Value(setValue(names)) }

// Usable returns, sorted, the names of one kind in the grants of principal, which
// are the names that a listing may show it (R-B6).
func (e *Engine) Usable(principal api.Principal, kind api.Kind) []api.Name {
	found := map[api.Name]bool{}
	for _, g := range e.of[principal] {
		maps.Copy(found, g.lists[kind])
	}
	return slices.Sorted(maps.Keys(found))
}

// granted returns what g lists of a kind.
func granted(g api.Grant, kind api.Kind) []api.Name {
	switch kind {
	case api.KindSubagent:
		return g.Subagents
	case api.KindEnv:
		return g.Envs
	case api.KindSource:
		return g.Sources
	case api.KindCapability:
		return g.Capabilities
	case api.KindTarget:
		return g.Targets
	case api.KindModel, api.KindSecret, api.KindTool, api.KindRole, api.KindGrant, api.KindSchedule, api.KindIdentity: // a request names none of them
	}
	return nil
}

// Principals returns, sorted, those that have grants.
func (e *Engine) Principals() []api.Principal { return slices.Sorted(maps.Keys(e.of)) }

// Grants returns the names of the grants of principal, sorted.
func (e *Engine) Grants(principal api.Principal) []api.Name {
	names := []api.Name{}
	for _, g := range e.of[principal] {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names
}

// MayReuse reports whether the tasks of p may have results of a pure subagent that a
// dispatch of owner made: its own, and those that a grant with the subagent shares.
func (e *Engine) MayReuse(p, owner api.Principal, subagent api.Name) bool {
	return p == owner || slices.ContainsFunc(e.of[p], func(g *Grant) bool {
		return slices.Contains(g.Reuse, owner) && g.has(api.KindSubagent, subagent)
	})
}

// Budgeted returns those grants of principal among policies that have a budget, in the
// order of policies. They all apply: another grant that allows the same is no way around
// a budget.
func (e *Engine) Budgeted(principal api.Principal, policies []string) (list []api.Grant) {
	for _, g := range e.of[principal] {
		if g.Budget != nil && slices.Contains(policies, grantID(g.Grant)) {
			list = append(list, g.Grant)
		}
	}
	slices.SortFunc(list, func(a, b api.Grant) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return list
}

// Budgets returns all grants that have a budget, by principal and name.
func (e *Engine) Budgets() (list []api.Grant) {
	for _, p := range e.Principals() {
		for _, g := range e.of[p] {
			if g.Budget != nil {
				list = append(list, g.Grant)
			}
		}
	}
	return list
}
