package policy

import (
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A listing shows exactly the names that Decide allows.
//
// proves R-B6
func TestAListShowsWhatDecideAllows(t *testing.T) {
	e := testEngine(t)
	for _, sub := range []api.Subagent{
		{Name: "edit", Tier: api.Observe},
		{Name: "edit", Tier: api.Reversible},
		{Name: "edit", Tier: api.Stateful},
		{Name: "look", Tier: api.Observe},
		{Name: "other", Tier: api.Observe},
	} {
		for _, who := range []api.Principal{"agent:claude", "human:bob", "local:ann"} {
			r, ok := e.Reach(who, &sub)
			some := false
			for _, target := range []api.Name{"local", "prod", "look-only", "nowhere"} {
				allowed := e.Decide(Request{
					Principal: who, Action: ActionDispatch, Resource: string(sub.Name), Tier: sub.Tier, Target: target,
					Envs: r.Envs, Capabilities: r.Capabilities, Consent: api.Irreversible, Session: api.Irreversible,
				}).Allowed()
				if shown := slices.Contains(r.Targets, target); shown != allowed {
					t.Errorf("%s with %s of %s at %s: shown %v, allowed %v", who, sub.Name, sub.Tier, target, shown, allowed)
				}
				some = some || allowed
			}
			if ok != some {
				t.Errorf("%s with %s of %s: listed %v, allowed somewhere %v", who, sub.Name, sub.Tier, ok, some)
			}
		}
	}
}
