package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

func testRules() Rules {
	return Rules{
		Operator: "local:ann",
		Grants: []api.Grant{
			{
				Name: "claude", Principal: "agent:claude", Subagents: []api.Name{"edit", "look"}, Targets: []api.Name{"local", "prod"},
				Envs: []api.Name{"model"}, Sources: []api.Name{"service"}, Capabilities: []api.Name{"extra"}, Ceiling: api.Reversible,
			},
			{Name: "wide", Principal: "human:bob", Subagents: []api.Name{"edit"}, Targets: []api.Name{"look-only"}, Ceiling: api.Irreversible},
		},
		Targets: []api.Target{
			{Name: "local", Mode: api.Guarded},
			{Name: "prod", Mode: api.ReadOnly},
			{Name: "look-only", Mode: api.ReadOnly},
		},
	}
}

func testEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(testRules())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func allowedRequest() Request {
	return Request{
		Principal: "agent:claude", Action: ActionDispatch, Resource: "edit", Tier: api.Reversible, Target: "local",
		Envs: []api.Name{"model"}, Source: "service", Capabilities: []api.Name{"extra"}, Consent: api.Irreversible, Session: api.Irreversible,
	}
}

// proves R-B7
func TestADispatchNeedsAGrantForEveryPart(t *testing.T) {
	e := testEngine(t)
	// The control: the grant covers the whole request and is named.
	if d := e.Decide(allowedRequest()); !d.Allowed() || !slices.Equal(d.Policies(), []string{"grant:claude"}) {
		t.Fatalf("allowed = %v by %v, want the grant to allow it: %v", d.Allowed(), d.Policies(), d.Reasons())
	}
	for what, change := range map[string]func(*Request){
		`dispatch subagent "other"`:         func(r *Request) { r.Resource = "other" },
		`lets agent:codex dispatch`:         func(r *Request) { r.Principal = "agent:codex" },
		`does not list target "elsewhere"`:  func(r *Request) { r.Target = "elsewhere" },
		`does not list env "secret"`:        func(r *Request) { r.Envs = append(r.Envs, "secret") },
		`does not list source "payroll"`:    func(r *Request) { r.Source = "payroll" },
		`does not list capability "root"`:   func(r *Request) { r.Capabilities = []api.Name{"root"} },
		`has the ceiling reversible`:        func(r *Request) { r.Tier = api.Stateful },
		`has no default target`:             func(r *Request) { r.Target = "" },
		`target "prod" admits up to`:        func(r *Request) { r.Target = "prod" },
		`unknown caller`:                    func(r *Request) { r.Principal = "" },
		`agent:claude may not service.stop`: func(r *Request) { r.Action = ActionServiceStop },
	} {
		r := allowedRequest()
		change(&r)
		d := e.Decide(r)
		if d.Allowed() || !d.Valid() {
			t.Errorf("%s: allowed by %v", what, d.Policies())
		}
		if !strings.Contains(strings.Join(d.Reasons(), "\n"), what) {
			t.Errorf("reasons %q do not say %q", d.Reasons(), what)
		}
	}
}

func TestATargetModeForbidsWhatAGrantPermits(t *testing.T) {
	d := testEngine(t).Decide(Request{Principal: "human:bob", Action: ActionDispatch, Resource: "edit", Tier: api.Reversible, Target: "look-only", Consent: api.Irreversible, Session: api.Irreversible})
	if d.Allowed() || !slices.Equal(d.Policies(), []string{"target:look-only:readonly"}) {
		t.Errorf("allowed = %v by %v, want the mode to forbid it", d.Allowed(), d.Policies())
	}
}

// proves R-B6
func TestMissingAndUngrantedNamesGiveTheSameReason(t *testing.T) {
	e := testEngine(t)
	answer := func(subagent string, tier api.Tier, target api.Name) string {
		d := e.Decide(Request{Principal: "agent:codex", Action: ActionDispatch, Resource: subagent, Tier: tier, Target: target})
		return strings.ReplaceAll(fmt.Sprint(d.Allowed(), d.Policies(), d.Reasons()), subagent, "NAME")
	}
	if a, b := answer("edit", api.Reversible, "local"), answer("nothing", api.Observe, ""); a != b {
		t.Errorf("a name that is there answers %s, one that is not answers %s", a, b)
	}
}

func TestOwnersAndTheOperatorReadAndCancel(t *testing.T) {
	e := testEngine(t)
	for _, c := range []struct {
		who, owner api.Principal
		action     Action
		want       string
	}{
		{"agent:claude", "agent:claude", ActionDispatchRead, "owner"},
		{"agent:claude", "agent:claude", ActionDispatchCancel, "owner"},
		{"agent:codex", "agent:claude", ActionDispatchRead, ""},
		{"agent:codex", "agent:claude", ActionDispatchCancel, ""},
		{"local:ann", "agent:claude", ActionDispatchCancel, "operator"},
		{"local:ann", "", ActionAuditRead, "operator"},
		{"agent:claude", "", ActionAuditRead, ""},
		{"local:ann", "", ActionDispatch, ""},
	} {
		d := e.Decide(Request{Principal: c.who, Action: c.action, Resource: "d-1", Owner: c.owner})
		if got := strings.Join(d.Policies(), " "); got != c.want || d.Allowed() != (c.want != "") {
			t.Errorf("%s %s of %q: allowed = %v by %q, want %q", c.who, c.action, c.owner, d.Allowed(), got, c.want)
		}
	}
	if d := e.Decide(Request{Principal: "agent:claude", Action: ActionCan, Resource: "human:bob"}); d.Allowed() {
		t.Error("one principal may ask what another may do")
	}
	if d := e.Decide(Request{Principal: "agent:claude", Action: ActionCan, Resource: "agent:claude"}); !d.Allowed() {
		t.Error("a principal may not ask what it may do itself")
	}
}

func TestTheZeroDecisionIsInvalid(t *testing.T) {
	if d := (Decision{}); d.Valid() || d.Allowed() {
		t.Error("the zero value counts as a decision")
	}
}

func TestInvalidRulesMakeNoEngine(t *testing.T) {
	for name, rules := range map[string]Rules{
		"unknown mode": {Targets: []api.Target{{Name: "x", Mode: "gaurded"}}},
		"grant twice":  {Grants: []api.Grant{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := New(rules); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
}

// The compiled policies agree with the plain meaning of a grant.
func TestDecisionsAgreeWithAModel(t *testing.T) {
	e, rules := testEngine(t), testRules()
	name := rapid.SampledFrom([]api.Name{"edit", "look", "local", "prod", "look-only", "model", "service", "extra", "none"})
	rapid.Check(t, func(t *rapid.T) {
		r := Request{
			Principal: rapid.SampledFrom([]api.Principal{"agent:claude", "human:bob", "agent:codex"}).Draw(t, "principal"),
			Action:    ActionDispatch,
			Resource:  string(name.Draw(t, "subagent")),
			Tier:      api.Tier(rapid.IntRange(0, 3).Draw(t, "tier")),
			Target:    name.Draw(t, "target"),
			Envs:      rapid.SliceOfN(name, 0, 2).Draw(t, "envs"),
			Consent:   api.Tier(rapid.IntRange(0, 3).Draw(t, "consent")),
			Session:   api.Tier(rapid.IntRange(0, 3).Draw(t, "session")),
		}
		want := slices.ContainsFunc(rules.Grants, func(g api.Grant) bool {
			return g.Principal == r.Principal && slices.Contains(g.Subagents, api.Name(r.Resource)) && slices.Contains(g.Targets, r.Target) &&
				r.Tier <= g.Ceiling && !slices.ContainsFunc(r.Envs, func(n api.Name) bool { return !slices.Contains(g.Envs, n) })
		})
		if i := slices.IndexFunc(rules.Targets, func(x api.Target) bool { return x.Name == r.Target }); i >= 0 {
			ceiling, _ := rules.Targets[i].Mode.Ceiling()
			want = want && r.Tier <= ceiling
		}
		want = want && r.Tier <= min(r.Consent, r.Session)
		if d := e.Decide(r); d.Allowed() != want {
			t.Fatalf("%+v: allowed = %v, the model says %v", r, d.Allowed(), want)
		} else if want && (d.Ceiling() < r.Tier || d.Ceiling() > min(r.Consent, r.Session)) || !want && d.Ceiling() != api.Observe {
			t.Fatalf("%+v: allowed = %v up to %s", r, want, d.Ceiling())
		}
	})
}

// A decision costs what the caller's own grants cost, however many others there are.
func TestOnlyApplicablePoliciesAreEvaluated(t *testing.T) {
	rules := testRules()
	few, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		n := api.Name(fmt.Sprintf("other%d", i))
		rules.Grants = append(rules.Grants, api.Grant{Name: n, Principal: api.Principal("agent:" + string(n)), Subagents: []api.Name{"edit"}})
		rules.Targets = append(rules.Targets, api.Target{Name: n, Mode: api.Guarded})
	}
	many, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	r := allowedRequest()
	if few.Cost(r) != many.Cost(r) {
		t.Errorf("%d policies and names with few grants, %d with many", few.Cost(r), many.Cost(r))
	}
	a, b := testing.AllocsPerRun(100, func() { few.Decide(r) }), testing.AllocsPerRun(100, func() { many.Decide(r) })
	if b > a+2 || !many.Decide(r).Allowed() {
		t.Errorf("%v allocations with few grants, %v with many", a, b)
	}
}
