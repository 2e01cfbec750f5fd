package policy

import (
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Only the owner of a run adds tasks to it: by an operator call, which no AI makes, or
// by a grant that says so.
//
// proves R-O9
func TestWhoMayAppend(t *testing.T) {
	e, err := New(Rules{Operator: "local:root", Grants: []api.Grant{
		{Name: "plain", Principal: "agent:claude", Subagents: []api.Name{"edit"}},
		{Name: "grows", Principal: "agent:planner", Subagents: []api.Name{"edit"}, Append: true},
		{Name: "also", Principal: "agent:planner", Subagents: []api.Name{"look"}, Append: true},
		{Name: "ann", Principal: "local:ann", Subagents: []api.Name{"edit"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		caller, owner api.Principal
		token, steers bool
		by            []string // nil: denied
	}{
		{"local:ann", "local:ann", false, true, []string{PolicyAppend}},
		{"ci:nightly", "ci:nightly", false, true, []string{PolicyAppend}},
		{"local:ann", "local:ann", false, false, nil}, // bailiwick-mcp at the account of ann
		{"local:ann", "local:ann", true, true, nil},   // no operator call has a token
		{"local:ann", "agent:planner", false, true, nil},
		{"local:root", "local:ann", false, true, nil}, // not even the operator
		{"agent:claude", "agent:claude", true, false, nil},
		{"agent:claude", "agent:claude", true, true, nil},
		{"agent:planner", "agent:planner", true, false, []string{"grant:also", "grant:grows"}},
		{"agent:planner", "local:ann", true, false, nil},
		{"agent:planner", "", true, false, nil},
		{"", "", false, true, nil},
	} {
		d := e.Decide(AppendRequest(c.caller, c.owner, "r-1", c.token, c.steers))
		if d.Allowed() != (c.by != nil) || c.by != nil && !d.AllowedBy(c.by) || c.by == nil && len(d.Reasons()) == 0 {
			t.Errorf("%+v: %v %v %v", c, d.Allowed(), d.Policies(), d.Reasons())
		}
		if !d.Allowed() && slices.Contains(d.Policies(), "token") {
			t.Errorf("%+v: by the policy about tokens", c)
		}
	}
}
