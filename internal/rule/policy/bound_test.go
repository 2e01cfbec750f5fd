package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The tier of a dispatch is at most the lowest of grant, consent, session and target
// mode, and the denial names the one that decided.
//
// proves R-T5
func TestTheLowestBoundDecidesAndSaysSo(t *testing.T) {
	e, err := New(Rules{
		Grants: []api.Grant{{Name: "g", Principal: "agent:claude", Subagents: []api.Name{"edit"}, Targets: []api.Name{"local", "looking", "open"}, Ceiling: api.Stateful}},
		Targets: []api.Target{
			{Name: "local", Mode: api.Guarded}, {Name: "looking", Mode: api.ReadOnly}, {Name: "open", Mode: api.Open},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	modes := map[api.Name]api.Tier{"local": api.Stateful, "looking": api.Observe, "open": api.Irreversible}
	tiers := []api.Tier{api.Observe, api.Reversible, api.Stateful, api.Irreversible}
	allowed := 0
	for target, mode := range modes {
		for _, tier := range tiers {
			for _, consent := range tiers {
				for _, session := range tiers {
					d := e.Decide(Request{Principal: "agent:claude", Action: ActionDispatch, Resource: "edit", Target: target, Tier: tier, Consent: consent, Session: session})
					bound := min(api.Stateful, mode, consent, session)
					if d.Allowed() != (tier <= bound) {
						t.Errorf("%s of %s on %s with consent %s and session %s: allowed = %v", tier, bound, target, consent, session, d.Allowed())
					}
					if d.Allowed() {
						if allowed++; d.Ceiling() != bound {
							t.Errorf("allowed up to %s, want %s", d.Ceiling(), bound)
						}
						continue
					}
					for policy, forbids := range map[string]bool{"consent": tier > consent, "session": tier > session} {
						if slices.Contains(d.Policies(), policy) != forbids {
							t.Errorf("%s with consent %s and session %s was denied by %v", tier, consent, session, d.Policies())
						}
					}
				}
			}
		}
	}
	if allowed == 0 {
		t.Error("positive control: nothing was allowed")
	}
}

// A request without bounds gets the lowest ceiling.
//
// proves R-T5
func TestARequestWithoutBoundsIsBoundToObserve(t *testing.T) {
	e, r := testEngine(t), allowedRequest()
	if !e.Decide(r).Allowed() {
		t.Fatal("positive control: the request is denied anyway")
	}
	for name, forget := range map[string]func(*Request){
		"consent": func(r *Request) { r.Consent = Request{}.Consent },
		"session": func(r *Request) { r.Session = Request{}.Session },
	} {
		r := allowedRequest()
		forget(&r)
		d := e.Decide(r)
		if d.Allowed() || !slices.Equal(d.Policies(), []string{name}) {
			t.Errorf("without %s: allowed = %v by %v", name, d.Allowed(), d.Policies())
		}
		r.Tier = api.Observe
		if d := e.Decide(r); !d.Allowed() {
			t.Errorf("without %s observe is denied: %v", name, d.Reasons())
		}
	}
}

// A denial names the command that a person can run.
func TestADenialWithoutConsentNamesTheCommandToRaiseIt(t *testing.T) {
	e, r := testEngine(t), allowedRequest()
	r.Consent, r.Session = api.Observe, api.Observe
	said := strings.Join(e.Decide(r).Reasons(), "\n")
	for _, want := range []string{"bailiwick ceiling set agent:claude reversible", "the ceiling of agent:claude is observe", "this session declared the ceiling observe"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q does not say %q", said, want)
		}
	}
	// A second grant that does not cover it is not the reason.
	rules := testRules()
	rules.Grants = append(rules.Grants, api.Grant{Name: "narrow", Principal: "agent:claude", Subagents: []api.Name{"edit"}})
	e, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(e.Decide(r).Reasons(), "\n"); strings.Contains(said, "narrow") || !strings.Contains(said, "ceiling set") {
		t.Errorf("the reasons are %q", said)
	}
}

// A name without a grant gives the same reason whether or not it exists, also if tier,
// target or a stop would forbid it.
//
// proves R-B6
func TestBoundsDoNotRevealWhatExists(t *testing.T) {
	e := testEngine(t)
	answer := func(r Request) string {
		r.Principal, r.Action = "agent:codex", ActionDispatch
		d := e.Decide(r)
		return strings.ReplaceAll(fmt.Sprint(d.Allowed(), d.Policies(), d.Reasons()), r.Resource, "NAME")
	}
	absent := answer(Request{Resource: "nothing"})
	for _, there := range []Request{
		{Resource: "edit", Tier: api.Irreversible, Target: "prod"},
		{Resource: "edit", Tier: api.Stateful, Target: "local", Stops: []string{"s-1"}},
	} {
		if got := answer(there); got != absent {
			t.Errorf("a name that is there answers %s, one that is not %s", got, absent)
		}
	}
}

// proves R-T4
func TestOperatorActionsAreDeniedByToken(t *testing.T) {
	e := testEngine(t)
	for _, a := range operatorActions() {
		r := Request{Principal: "local:ann", Action: a, Resource: "service", Token: true}
		d := e.Decide(r)
		service := slices.Contains(serviceActions(), a)
		if service && (d.Allowed() || !slices.Contains(d.Policies(), "token")) {
			t.Errorf("%s by token: allowed = %v by %v", a, d.Allowed(), d.Policies())
		}
		if r.Token = false; !e.Decide(r).Allowed() {
			t.Errorf("positive control: %s is denied to the operator's account: %v", a, e.Decide(r).Reasons())
		}
	}
}
