package catalogdiff

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// proves R-C6
func TestChangesOfGrants(t *testing.T) {
	base := func() api.Grant {
		return api.Grant{
			Name: "g", Principal: "agent:a", Subagents: []api.Name{"fix", "read"}, Envs: []api.Name{"e"}, Sources: []api.Name{"s"}, Capabilities: []api.Name{"c"}, Targets: []api.Name{"t"},
			Ceiling: api.Reversible, Approve: []api.Name{"r"}, Reuse: []api.Principal{"human:ann"},
		}
	}
	put := func(s *catalog.Set, v api.Grant) { s.Grants[v.Name] = v }
	const all = "dispatch fix, read, up to reversible, and reuse results of human:ann, and approve calls of tools of role r"
	checkChanges(t, "grant/g", base, put, []change[api.Grant]{
		{"principal", func(v *api.Grant) { v.Principal = "agent:b" }, "new principal: agent:b, was agent:a", "grant given to agent:b: agent:a could " + all, "new principal: agent:a, was agent:b", "grant given to agent:a: agent:b could " + all},
		{"ceiling", func(v *api.Grant) { v.Ceiling = api.Stateful }, "higher ceiling: stateful, was reversible", "", "", "lower ceiling of agent:a: reversible, was stateful"},
		{"subagent", func(v *api.Grant) { v.Subagents = []api.Name{"new", "read", "fix"} }, "gains subagent new", "", "", "agent:a loses subagent new"},
		{"env", func(v *api.Grant) { v.Envs = nil }, "", "agent:a loses env e", "gains env e", ""},
		{"source", func(v *api.Grant) { v.Sources = nil }, "", "agent:a loses source s", "gains source s", ""},
		{"capability", func(v *api.Grant) { v.Capabilities = nil }, "", "agent:a loses extra capability c", "gains extra capability c", ""},
		{"target", func(v *api.Grant) { v.Targets = nil }, "", "agent:a loses target t", "gains target t", ""},
		{"approve", func(v *api.Grant) { v.Approve = nil }, "", "agent:a can no longer approve calls of tools of role r", "agent:a may approve calls of tools of role r", ""},
		{"own", func(v *api.Grant) { v.ApproveOwn = true }, "agent:a may approve calls of its own dispatches", "", "", "agent:a can no longer approve calls of its own dispatches"},
		{"append", func(v *api.Grant) { v.Append = true }, "agent:a may append tasks to its open runs, also as an AI", "", "", "agent:a can no longer append tasks to its open runs as an AI"},
		{"reuse", func(v *api.Grant) { v.Reuse = nil }, "", "agent:a can no longer reuse results of human:ann", "agent:a may reuse results of human:ann", ""},
		{"more and less", func(v *api.Grant) { v.Envs, v.Ceiling = nil, api.Stateful }, "higher ceiling: stateful, was reversible", "agent:a loses env e", "gains env e", "lower ceiling of agent:a: reversible, was stateful"},
	})
	whole := catalog.NewSet()
	v := base()
	v.Append, v.ApproveOwn = true, true
	put(whole, v)
	const text = "dispatch fix, read, up to reversible, and append tasks to its open runs, also as an AI, and reuse results of human:ann, and approve calls of tools of role r, also in its own dispatches"
	const g = "grant/g: "
	checkWhole(t, "grant", whole, g+"new grant: agent:a may "+text+"\n"+g+"gains env e\n"+g+"gains source s\n"+g+"gains extra capability c\n"+g+"gains target t", g+"removed grant: agent:a could "+text)
}

// A grant covers another one only if it gives the same principal each thing that the
// other one gives. Control: it covers itself, and one that gives less of each.
//
// proves R-C6
func TestAGrantCoversWhatItGives(t *testing.T) {
	whole := api.Grant{
		Principal: "agent:a", Subagents: []api.Name{"x"}, Envs: []api.Name{"x"}, Sources: []api.Name{"x"}, Capabilities: []api.Name{"x"}, Targets: []api.Name{"x"},
		Ceiling: api.Stateful, Approve: []api.Name{"x"}, ApproveOwn: true, Append: true, Reuse: []api.Principal{"human:ann"},
	}
	if !Covers(whole, whole) {
		t.Error("a grant does not cover itself")
	}
	for name, less := range map[string]func(*api.Grant){
		"subagents": func(g *api.Grant) { g.Subagents = nil }, "envs": func(g *api.Grant) { g.Envs = nil }, "sources": func(g *api.Grant) { g.Sources = nil },
		"capabilities": func(g *api.Grant) { g.Capabilities = nil }, "targets": func(g *api.Grant) { g.Targets = nil }, "ceiling": func(g *api.Grant) { g.Ceiling = api.Reversible },
		"approve": func(g *api.Grant) { g.Approve = nil }, "own": func(g *api.Grant) { g.ApproveOwn = false }, "append": func(g *api.Grant) { g.Append = false }, "reuse": func(g *api.Grant) { g.Reuse = nil },
	} {
		g := whole
		less(&g)
		if Covers(g, whole) || !Covers(whole, g) {
			t.Errorf("%s: less covers more, or more does not cover less", name)
		}
		// What another grant of the principal gives is neither won nor lost.
		before, after := catalog.NewSet(), catalog.NewSet()
		before.Grants["a"], after.Grants["a"] = whole, whole
		after.Grants["b"] = g
		if d := Compare(before, after); len(d.Widens) > 0 {
			t.Errorf("%s: a covered grant widens %v", name, d.Widens)
		}
		if d := Compare(after, before); len(d.Narrows) > 0 {
			t.Errorf("%s: a covered grant that is removed narrows %v", name, d.Narrows)
		}
	}
	other := whole
	other.Principal = "agent:b"
	if Covers(other, whole) {
		t.Error("the grant of another principal covers")
	}
}

// proves R-O11, R-C6
func TestChangesOfBudgets(t *testing.T) {
	base := func() api.Grant {
		return api.Grant{Name: "g", Principal: "agent:a", Subagents: []api.Name{"fix"}, Budget: &api.Budget{
			Cost: api.Money{Amount: 2_000_000, Currency: "usd"}, Tokens: 10, Wall: api.Duration(time.Hour), Dispatches: 5, Per: api.PerDay,
		}}
	}
	put := func(s *catalog.Set, v api.Grant) { s.Grants[v.Name] = v }
	was := base().Budget.Limit()
	const smaller = "smaller budget of agent:a"
	raisedTo := func(name string, b api.Budget) string {
		return "raised budget of " + name + ": " + b.Limit().Of(name) + ", was " + was.Of(name)
	}
	checkChanges(t, "grant/g", base, put, []change[api.Grant]{
		{"none", func(v *api.Grant) { v.Budget = nil }, "budget removed", "", "", "new budget of agent:a"},
		{"period", func(v *api.Grant) { v.Budget.Per = api.PerRun }, "budget per run, was per day", smaller, "budget per day, was per run", smaller},
		{"currency", func(v *api.Grant) { v.Budget.Cost.Currency = "eur" }, "budget cost: was " + was.Of("cost"), smaller, "budget cost: was 2eur", smaller},
		{"cost", func(v *api.Grant) { v.Budget.Cost.Amount++ }, raisedTo("cost", api.Budget{Cost: api.Money{Amount: 2_000_001, Currency: "usd"}}), "", "", smaller},
		{"tokens", func(v *api.Grant) { v.Budget.Tokens++ }, raisedTo("tokens", api.Budget{Tokens: 11}), "", "", smaller},
		{"dispatches", func(v *api.Grant) { v.Budget.Dispatches++ }, raisedTo("dispatches", api.Budget{Dispatches: 6}), "", "", smaller},
		{"wall", func(v *api.Grant) { v.Budget.Wall *= 2 }, raisedTo("wall", api.Budget{Wall: api.Duration(2 * time.Hour)}), "", "", smaller},
		{"no tokens", func(v *api.Grant) { v.Budget.Tokens = 0 }, "budget of tokens removed, was " + was.Of("tokens"), "", "", smaller},
	})
	// A removed grant takes its budget along from what another grant still allows.
	set := func(names ...api.Name) *catalog.Set {
		s := catalog.NewSet()
		for _, n := range names {
			v := base()
			v.Name = n
			switch string(n) {
			case "free":
				v.Budget = nil
			case "other":
				v.Subagents = []api.Name{"read"}
			case "bob":
				v.Principal = "agent:b"
			}
			put(s, v)
		}
		return s
	}
	for name, c := range map[string]struct {
		before, after []api.Name
		want          string
	}{
		"still allowed":    {[]api.Name{"free", "g"}, []api.Name{"free"}, `grant/free: budget of agent:a removed with grant "g"`},
		"kept":             {[]api.Name{"free", "g"}, []api.Name{"free", "g"}, ""},
		"had no budget":    {[]api.Name{"free", "g"}, []api.Name{"g"}, ""},
		"of other work":    {[]api.Name{"g", "other"}, []api.Name{"other"}, ""},
		"of other people":  {[]api.Name{"bob", "g"}, []api.Name{"bob"}, ""},
		"nothing is left":  {[]api.Name{"g"}, nil, ""},
		"of the last also": {[]api.Name{"free", "g", "h"}, []api.Name{"free", "h"}, "grant/free: budget of agent:a removed with grant \"g\"\ngrant/h: budget of agent:a removed with grant \"g\""},
	} {
		var got []string
		for _, w := range widenings(set(c.before...), set(c.after...)) {
			got = append(got, string(w.Ref)+": "+w.What)
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
