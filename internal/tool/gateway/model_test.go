package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// referenceTool is a tool of worldManifest, written down again.
type referenceTool struct {
	roles            string
	tier             int // 0 observe, 2 stateful, 3 irreversible
	approval, forbid bool
	outside          bool // it gives text from outside
}

func referenceTools() map[string]referenceTool {
	return map[string]referenceTool{
		"warehouse_query":        {roles: "quality transform", outside: true},
		"warehouse_load":         {roles: "transform", tier: 2, outside: true},
		"warehouse_apply_change": {roles: "transform", tier: 2, approval: true, outside: true},
		"warehouse_forget":       {roles: "transform", tier: 2, forbid: true, outside: true},
		"warehouse_drop":         {roles: "transform", tier: 3, approval: true, outside: true},
		"search_find":            {roles: "quality transform"},
		"search_write":           {roles: "transform", tier: 2},
		"WAREHOUSE_QUERY":        {},
		"warehouse_nothing":      {},
	}
}

// reference says what becomes of a call: "allow", "deny", "people" or "unknown". It
// shares no code with the gateway or its policy.
func reference(tool referenceTool, role string, ceiling, consent, mode int, stopped, tainted bool) string {
	switch {
	case tool.roles == "" || !strings.Contains(" "+tool.roles+" ", " "+role+" ") || tool.tier > ceiling:
		return "unknown"
	case stopped || tool.tier > consent || tool.tier > mode || tainted && tool.tier >= 2 && tool.forbid:
		return "deny"
	case tool.approval || tainted && tool.tier >= 2:
		return "people"
	}
	return "allow"
}

// Sequences of calls are decided as the reference says, and each has its entry.
//
// proves R-G2, R-G3, R-G6
func TestDecisionsAreThoseOfTheReference(t *testing.T) {
	w := newWorld(t)
	tiers := []api.Tier{api.Observe, api.Reversible, api.Stateful, api.Irreversible}
	modes := map[api.Name]int{"look": 0, "local": 2, "free": 3}
	tools := referenceTools()
	var names []string
	for name := range tools {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(r *rapid.T) {
		role := rapid.SampledFrom([]api.Name{"quality", "transform"}).Draw(r, "role")
		target := rapid.SampledFrom([]api.Name{"look", "local", "free"}).Draw(r, "target")
		ceiling := rapid.IntRange(0, 3).Draw(r, "ceiling")
		v, err := w.Open(t.Context(), w.attempt(role, target, tiers[ceiling]))
		if err != nil {
			r.Fatal(err)
		}
		defer v.Close()
		tainted := false
		for range rapid.IntRange(1, 6).Draw(r, "calls") {
			consent, stopped := rapid.IntRange(0, 3).Draw(r, "consent"), rapid.IntRange(0, 9).Draw(r, "stop") == 0
			w.mu.Lock()
			w.consent, w.stops = tiers[consent], nil
			if stopped {
				w.stops = []string{"s-1"}
			}
			before := len(w.calls)
			w.mu.Unlock()
			name := rapid.SampledFrom(names).Draw(r, "tool")
			want := reference(tools[name], string(role), ceiling, consent, modes[target], stopped, tainted)
			got := outcomeOf(call1(t, v, name))
			if got != want {
				r.Fatalf("%s by %s for %s (ceiling %d, consent %d, stopped %v, tainted %v): %s, want %s", name, role, target, ceiling, consent, stopped, tainted, got, want)
			}
			if called := len(w.calls) - before; (called == 1) != (want == "allow") {
				r.Fatalf("%s: %d calls of the server, want it %s", name, called, want)
			}
			tainted = tainted || want == "allow" && tools[name].outside
		}
	})
	w.checkChains()
}

func outcomeOf(r *reply) string {
	switch {
	case r.Error != nil:
		return "unknown"
	case !r.Result.IsError:
		return "allow"
	case strings.Contains(r.text(), "nobody can be asked"):
		return "people"
	}
	return "deny"
}

// What a denied decision says is no admission, also not one made by hand.
func TestDeniedDecisionsAdmitNothing(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Observe)
	c := &call{about: v.set.tools["search_find"].Tool, tool: v.set.tools["search_find"], arguments: json.RawMessage("{}"), stream: &stream{}}
	r := v.request(c)
	adm, err := v.commit(t.Context(), c, r, policy.DenyTool(r, "no"))
	if err != nil {
		t.Fatal(err)
	}
	if err := adm.Redeem(record.KindToolCalled, v.a.Manifest.ID, ""); err == nil {
		t.Error("a denial admits a call")
	}
	if _, err := v.run(t.Context(), c, adm); err == nil || len(w.calls) > 0 {
		t.Errorf("a denial was run: %v", err)
	}
	c.number = 0
	if adm, err = v.commit(t.Context(), c, r, w.engine.DecideTool(r)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.run(t.Context(), c, adm); err != nil || len(w.calls) != 1 {
		t.Errorf("an allowed call: %v", err)
	}
	if _, err := v.run(t.Context(), c, adm); err == nil || len(w.calls) != 1 {
		t.Error("one admission made two calls")
	}
}
