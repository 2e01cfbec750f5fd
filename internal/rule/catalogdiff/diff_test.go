package catalogdiff

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Every field of a changed artifact is shown with its text before and after, and so is
// the project that it belongs to. Control: an equal artifact has no change.
//
// proves R-C6
func TestFieldsAreShownBeforeAndAfter(t *testing.T) {
	set := func(project api.Name, values map[api.Ref]any) *catalog.Set {
		s := catalog.NewSet()
		for ref, v := range values {
			doc, err := canon.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Add(ref, doc); err != nil {
				t.Fatal(err)
			}
			s.Own(ref, project)
		}
		return s
	}
	env := api.Env{Name: "e", Values: map[string]string{"A": "1", "B": "2"}, Egress: []string{"a:443"}}
	now := api.Env{Name: "e", Values: map[string]string{"A": "3", "C": "4"}, Egress: []string{"a:443", "b, c:443"}}
	target := api.Target{Name: "t", Executor: "jail", Level: "full", Mode: api.Guarded, Limits: api.Limits{Memory: 1 << 30, Processes: 7}}
	role := api.Role{Name: "r"}
	before := set("one", map[api.Ref]any{"env/e": env, "target/t": target, "role/r": role})
	lines := func(before, after *catalog.Set) string {
		var all []string
		for _, c := range Changes(before, after) {
			all = append(all, fmt.Sprintf("%s %s", c.Op, c.Ref))
			for _, f := range c.Fields {
				all = append(all, fmt.Sprintf("  %s %s: %q, %q", f.Op, f.Field, f.Old, f.New))
			}
		}
		return strings.Join(all, "\n")
	}
	for name, c := range map[string]struct {
		before, after *catalog.Set
		want          []string
	}{
		"equal": {before, before, nil},
		"changed": {before, set("one", map[api.Ref]any{"env/e": now, "target/t": target, "role/r": role}), []string{
			"change env/e", `  change egress: "[a:443]", "[a:443, \"b, c:443\"]"`, `  change values.A: "1", "3"`, `  remove values.B: "2", ""`, `  add values.C: "", "4"`,
		}},
		"removed": {before, set("one", map[api.Ref]any{"env/e": env, "role/r": role}), []string{
			"remove target/t", `  remove executor: "jail", ""`, `  remove level: "full", ""`, `  remove limits.memory: "1GiB", ""`, `  remove limits.processes: "7", ""`, `  remove mode: "guarded", ""`,
		}},
		"added":   {nil, set("", map[api.Ref]any{"role/r": role}), []string{"add role/r"}},
		"gone":    {set("", map[api.Ref]any{"role/r": role}), nil, []string{"remove role/r"}},
		"project": {set("one", map[api.Ref]any{"role/r": role}), set("two", map[api.Ref]any{"role/r": role}), []string{"change role/r", `  change project: "one", "two"`}},
	} {
		if got, want := lines(c.before, c.after), strings.Join(c.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}
