package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A stop overrides grant, consent and session, and the denial says who can lift it. The
// control is the same request without it.
//
// proves R-T10
func TestAStopOverridesEveryPermission(t *testing.T) {
	e := testEngine(t)
	r := allowedRequest()
	if d := e.Decide(r); !d.Allowed() {
		t.Fatal(d.Reasons())
	}
	r.Stops = []string{"s-3", "s-7"}
	d := e.Decide(r)
	if d.Allowed() || !slices.Contains(d.Policies(), "stop") {
		t.Errorf("allowed %v by %v", d.Allowed(), d.Policies())
	}
	said := strings.Join(d.Reasons(), "\n")
	for _, id := range r.Stops {
		if !strings.Contains(said, "bailiwick stop lift "+id) {
			t.Errorf("the reasons do not say how %s is lifted: %s", id, said)
		}
	}
	for _, a := range []Action{ActionDispatchRead, ActionDispatchCancel} {
		if d := e.Decide(Request{Principal: "local:ann", Action: a, Resource: "d-1", Stops: r.Stops}); !d.Allowed() {
			t.Errorf("%s is held: %v", a, d.Reasons())
		}
	}
}

// An ungranted name gives the same reason with and without a stop.
//
// proves R-B6
func TestAStopRevealsNothingUngranted(t *testing.T) {
	e := testEngine(t)
	there, absent := allowedRequest(), allowedRequest()
	there.Resource, there.Target, there.Stops = "hidden", "local", []string{"s-1"}
	absent.Resource, absent.Target = "absent", ""
	a, b := e.Decide(there), e.Decide(absent)
	said := func(d Decision, name string) string {
		return strings.ReplaceAll(strings.Join(append(d.Policies(), d.Reasons()...), "\n"), name, "NAME")
	}
	if said(a, "hidden") != said(b, "absent") {
		t.Errorf("%q and %q", said(a, "hidden"), said(b, "absent"))
	}
}

// Only people at the account of the service engage a stop, never a caller with a
// token. The control is the same person without a token.
//
// proves R-T10
func TestAStopIsNeverEngagedByToken(t *testing.T) {
	e := testEngine(t)
	for _, c := range []struct {
		who   api.Principal
		token bool
		may   bool
	}{{"local:ann", false, true}, {"local:ann", true, false}, {"agent:claude", true, false}, {"agent:claude", false, false}, {"human:bob", true, false}} {
		for _, action := range []Action{ActionStopEngage, ActionOperatorRecord, ActionOperatorRead} {
			d := e.Decide(Request{Principal: c.who, Action: action, Resource: "service", Token: c.token})
			if d.Allowed() != c.may {
				t.Errorf("%s of %s, by token %v: %v", action, c.who, c.token, d.Allowed())
			}
		}
	}
}

// Each mode admits the same tiers whatever the grant and consent: readonly up to
// observe, guarded up to stateful, open all.
//
// proves R-T10, R-T5
func TestEveryModeAdmitsItsTiersAndNoOthers(t *testing.T) {
	rules := Rules{Grants: []api.Grant{{Name: "g", Principal: "agent:a", Subagents: []api.Name{"w"}, Targets: []api.Name{"readonly", "guarded", "open"}, Ceiling: api.Irreversible}}}
	for _, m := range []api.Mode{api.ReadOnly, api.Guarded, api.Open} {
		rules.Targets = append(rules.Targets, api.Target{Name: api.Name(m), Mode: m})
	}
	e, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	admits := map[api.Name]api.Tier{"readonly": api.Observe, "guarded": api.Stateful, "open": api.Irreversible}
	for target, highest := range admits {
		for tier := api.Observe; tier <= api.Irreversible; tier++ {
			d := e.Decide(Request{Principal: "agent:a", Action: ActionDispatch, Resource: "w", Target: target, Tier: tier, Consent: api.Irreversible, Session: api.Irreversible})
			if d.Allowed() != (tier <= highest) {
				t.Errorf("%s on %s: allowed %v, %v", tier, target, d.Allowed(), d.Reasons())
			}
		}
	}
}
