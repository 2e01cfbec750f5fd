package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The rules of all grants of a principal apply to what it writes, whichever of them
// allows it: whom each lists, as many as the strictest wants, in the shortest time. What
// does not write, and what others write, waits for nobody.
//
// proves R-O12
func TestTheRulesOfAllGrantsApplyToWrites(t *testing.T) {
	e, err := New(Rules{Grants: []api.Grant{
		{Name: "a", Principal: "agent:claude", Subagents: []api.Name{"ship"}, Writes: &api.WriteRule{By: []api.Principal{"human:eve", "human:ann", "human:bob"}, Count: 2}},
		{Name: "b", Principal: "agent:claude", Subagents: []api.Name{"other"}},
		{Name: "c", Principal: "agent:claude", Approve: []api.Name{"x"}, Writes: &api.WriteRule{By: []api.Principal{"human:ann", "human:bob", "human:zoe"}, Timeout: api.Duration(time.Hour)}},
		{Name: "d", Principal: "agent:codex", Writes: &api.WriteRule{By: []api.Principal{"human:eve", "human:ann"}}},
		{Name: "e", Principal: "agent:free", Subagents: []api.Name{"ship"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := e.Writes("agent:claude", api.EffectWrite)
	if r == nil || !slices.Equal(r.By, []api.Principal{"human:ann", "human:bob"}) || r.Needs() != 2 || r.Expiry() != api.Duration(time.Hour) {
		t.Errorf("two rules give %+v", r)
	}
	if r := e.Writes("agent:codex", api.EffectWrite); r == nil || !slices.Equal(r.By, []api.Principal{"human:ann", "human:eve"}) || r.Needs() != 1 || r.Expiry() != api.DefaultApprovalExpiry {
		t.Errorf("one rule gives %+v", r)
	}
	for _, effect := range []api.Effect{"", api.EffectPure} {
		if r := e.Writes("agent:claude", effect); r != nil {
			t.Errorf("effect %q waits for %+v", effect, r)
		}
	}
	for _, p := range []api.Principal{"agent:free", "agent:nobody"} {
		if r := e.Writes(p, api.EffectWrite); r != nil {
			t.Errorf("%s waits for %+v", p, r)
		}
	}
}

// Those whom the rule lists vote about what a task writes, never who submitted it.
//
// proves R-O12
func TestWhoApprovesWhatATaskWrites(t *testing.T) {
	e, err := New(Rules{})
	if err != nil {
		t.Fatal(err)
	}
	a := api.TaskAction{Principal: "human:bob", By: []api.Principal{"human:ann", "human:bob", "local:bob", "agent:claude"}, Needs: 1, Write: &api.WriteAction{}}
	for voter, want := range map[api.Principal]string{
		"human:ann":    "",
		"human:bob":    "human:bob submitted run , as human:bob: other people approve its tasks",
		"local:bob":    "local:bob submitted run , as human:bob: other people approve its tasks",
		"agent:claude": "agent:claude is a program: only people approve tasks",
		"human:eve":    "the grants of human:bob do not list human:eve in writes.by, so it does not approve what task  of run  writes",
	} {
		d := e.DecideVote(VoteRequest{Voter: voter, Action: a.Action()})
		if d.Allowed() != (want == "") || want != "" && d.Reasons()[0] != want {
			t.Errorf("%s: %v %q", voter, d.Allowed(), d.Reasons())
		}
	}
}
