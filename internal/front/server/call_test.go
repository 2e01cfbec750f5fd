package server

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// proves R-B4
func TestTheServerAnswersExactlyTheCallsOfTheTable(t *testing.T) {
	h := newHouse(t)
	if got := slices.Sorted(maps.Keys(h.server.handlers())); !slices.Equal(got, api.Calls()) {
		t.Errorf("handlers for %v\nwant %v", got, api.Calls())
	}
	if a := h.call("POST", "/v1/runtime/none", "{}"); a.status != http.StatusNotFound || a.err(t).Code != api.CodeNotFound {
		t.Errorf("an unknown call: %+v", a)
	}
}

// An operator call without an action would be open to everybody.
func TestEveryOperatorCallNeedsAnActionOfTheOperator(t *testing.T) {
	engine := must[*policy.Engine](t)(policy.New(policy.Rules{Operator: "local:root"}))
	for call, spec := range api.CallTable() {
		if operator := call.Class() == api.ClassOperator; operator != (spec.Action != "") {
			t.Errorf("%s: action %q", call, spec.Action)
			continue
		} else if !operator {
			continue
		}
		for principal, want := range map[api.Principal]bool{"local:root": true, "local:other": false} {
			d := engine.Decide(policy.Request{Principal: principal, Action: policy.Action(spec.Action), Resource: "service"})
			if d.Allowed() != want {
				t.Errorf("%s by %s: allowed = %v", call, principal, d.Allowed())
			}
		}
	}
}
