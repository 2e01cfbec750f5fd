package policy

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A vote counts by a grant that lists the role of the dispatch: not a program's, and
// about one's own work only where the grant says so, never at irreversible.
//
// proves R-G6
func TestWhoMayVote(t *testing.T) {
	e, err := New(Rules{Grants: []api.Grant{
		{Name: "ann", Principal: "local:ann", Approve: []api.Name{"transform"}},
		{Name: "own", Principal: "local:own", Approve: []api.Name{"transform"}, ApproveOwn: true},
		{Name: "own2", Principal: "local:own", Approve: []api.Name{"transform"}},
		{Name: "work", Principal: "local:bob", Subagents: []api.Name{"code"}, Ceiling: api.Irreversible},
		{Name: "ai", Principal: "agent:claude", Approve: []api.Name{"transform"}, ApproveOwn: true},
		{Name: "ci", Principal: "ci:build", Approve: []api.Name{"transform"}, ApproveOwn: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		voter, of api.Principal
		role      api.Name
		tier      api.Tier
		by        []string // nil: denied
	}{
		{"local:ann", "agent:claude", "transform", api.Stateful, []string{"grant:ann"}},
		{"local:ann", "agent:claude", "transform", api.Irreversible, []string{"grant:ann"}},
		{"local:own", "agent:claude", "transform", api.Irreversible, []string{"grant:own", "grant:own2"}},
		{"local:own", "local:own", "transform", api.Stateful, []string{"grant:own"}},
		{"local:ann", "agent:claude", "quality", api.Stateful, nil},
		{"local:ann", "local:ann", "transform", api.Observe, nil},
		{"local:own", "local:own", "transform", api.Irreversible, nil},
		{"local:bob", "agent:claude", "transform", api.Observe, nil},
		{"local:nobody", "agent:claude", "transform", api.Observe, nil},
		{"", "agent:claude", "transform", api.Observe, nil},
		{"agent:claude", "local:ann", "transform", api.Observe, nil},
		{"ci:build", "local:ann", "transform", api.Observe, nil},
	} {
		d := e.DecideVote(VoteRequest{Voter: c.voter, Action: api.ToolAction{ID: "a-1", Principal: c.of, Role: c.role, Tier: c.tier}.Action()})
		if d.Allowed() != (c.by != nil) || c.by != nil && !d.AllowedBy(c.by) || c.by == nil && len(d.Reasons()) != 1 {
			t.Errorf("%+v: %v %v %v", c, d.Allowed(), d.Policies(), d.Reasons())
		}
	}
}

// Different people with different keys are counted, and one denial is enough.
//
// proves R-G6
func TestApproversAreDifferentPeople(t *testing.T) {
	yes := func(p api.Principal, keys ...string) api.Vote {
		return api.Vote{Principal: p, Keys: keys, Approve: true}
	}
	for i, c := range []struct {
		votes []api.Vote
		want  int
	}{
		{nil, 0},
		{[]api.Vote{yes("local:ann", "k1")}, 1},
		{[]api.Vote{yes("local:ann", "k1"), yes("local:bob", "k2")}, 2},
		{[]api.Vote{yes("local:ann", "k1"), yes("local:ann", "k2")}, 1},
		{[]api.Vote{yes("local:ann", "k1"), yes("local:bob", "k1")}, 1},
		{[]api.Vote{yes("local:ann", "k1", "k2"), yes("local:bob", "k2", "k3")}, 1},
		{[]api.Vote{yes("local:ann")}, 0},
		{[]api.Vote{yes("local:ann", "k1"), {Principal: "local:bob", Keys: []string{"k2"}}, yes("local:eve", "k3")}, 0},
	} {
		if got := Approvers(c.votes); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
}
