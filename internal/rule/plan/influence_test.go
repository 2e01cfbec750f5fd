package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A task is influenced by everything whose content decided that it runs, over any number
// of steps, and by nothing that it only comes after.
//
// proves R-G6
func TestInfluencesAreWhatDecidedThatATaskRuns(t *testing.T) {
	task := func(id string, more ...string) string {
		return `{` + strings.Join(append([]string{fmt.Sprintf(`"id":%q,"subagent":"s"`, id)}, more...), ",") + `}`
	}
	when := func(of string) string { return `"when":{"task":"` + of + `","result":"$.x","is":1}` }
	after := func(ids ...string) string { return `"depends_on":["` + strings.Join(ids, `","`) + `"]` }
	const gate = `"gate":{"verify":"s","fix":"s","attempts":1}`
	quorum := `{"id":"q","quorum":{"of":["s","s","human:ann"],"approve":2},"depends_on":["a"]}`
	items := []Item{{Name: "one", Value: []byte(`"one"`)}}
	for name, c := range map[string]struct {
		tasks []string
		grow  []Growth
		of    api.TaskID
		want  []api.TaskID
	}{
		"order alone":              {tasks: []string{task("a"), task("b", after("a")), task("c", after("b"))}, of: "c"},
		"order, beside a decision": {tasks: []string{task("a"), task("w", when("a")), task("c", after("a"))}, of: "c"},
		"a need":                   {tasks: []string{task("a"), task("b", `"needs":{"in":{"from":"a","patch":true}}`)}, of: "b"},
		"a condition":              {tasks: []string{task("a"), task("b", when("a"))}, of: "b", want: []api.TaskID{"a"}},
		"a condition before it":    {tasks: []string{task("a"), task("b", when("a")), task("c", after("b")), task("d", after("c"))}, of: "d", want: []api.TaskID{"a"}},
		"two conditions":           {tasks: []string{task("a"), task("b", when("a")), task("c", when("b"))}, of: "c", want: []api.TaskID{"a", "b"}},
		"a condition it ignores":   {tasks: []string{task("a"), task("b", when("a")), task("c", after("b"), `"after":"any"`)}, of: "c"},
		"a product behind one":     {tasks: []string{task("a"), task("b", when("a")), task("c", `"needs":{"in":{"from":"b","patch":true}}`, `"after":"any"`)}, of: "c", want: []api.TaskID{"a"}},
		"a product, and another":   {tasks: []string{task("a"), task("w", when("a")), task("b"), task("c", `"needs":{"in":{"from":"b","patch":true}}`, after("w"), `"after":"any"`)}, of: "c"},
		"a product two steps away": {tasks: []string{task("a"), task("b", when("a")), task("m", after("b")), task("c", `"needs":{"in":{"from":"m","patch":true}}`, `"after":"any"`)}, of: "c", want: []api.TaskID{"a"}},
		"an approval between":      {tasks: []string{task("a"), task("b", when("a")), `{"id":"p","approval":{"by":["human:ann"],"show":["b"]}}`, task("c", after("p"))}, of: "c", want: []api.TaskID{"a"}},
		"a quorum":                 {tasks: []string{task("a"), quorum, task("c", after("q"))}, grow: []Growth{{Cause: CauseQuorum, Task: "q"}}, of: "c", want: []api.TaskID{"q.vote1", "q.vote2", "q.vote3"}},
		"a voter":                  {tasks: []string{task("a"), quorum}, grow: []Growth{{Cause: CauseQuorum, Task: "q"}}, of: "q.vote2"},
		"a gate":                   {tasks: []string{task("a", gate), task("c", after("a"))}, grow: []Growth{{Cause: CauseGate, Task: "a", Round: 1}}, of: "c", want: []api.TaskID{"a.gate1"}},
		"a verdict before a check": {tasks: []string{task("a", gate)}, grow: []Growth{{Cause: CauseGate, Task: "a", Round: 1}, {Cause: CauseGate, Task: "a", Round: 2}}, of: "a.gate2", want: []api.TaskID{"a.gate1", "a.fix1"}},
		"the first check":          {tasks: []string{task("a", gate)}, grow: []Growth{{Cause: CauseGate, Task: "a", Round: 1}}, of: "a.gate1"},
		"an item":                  {tasks: []string{task("a"), task("p", `"for_each":{"from":"a","items":"$.f[*]"}`)}, grow: []Growth{{Cause: CauseForEach, Task: "p", Items: items}}, of: "p[one]", want: []api.TaskID{"a"}},
		"a list behind a condition": {
			tasks: []string{task("a"), task("l"), task("p", `"for_each":{"from":"l","items":"$.f[*]"}`, when("a"))},
			grow:  []Growth{{Cause: CauseForEach, Task: "p", Items: items}}, of: "p[one]", want: []api.TaskID{"a", "l"},
		},
		"how many products it needs": {
			tasks: []string{task("a"), task("p", `"for_each":{"from":"a","items":"$.f[*]"}`), task("c", `"needs":{"in":{"from":"p","patch":true}}`)},
			grow:  []Growth{{Cause: CauseForEach, Task: "p", Items: items}}, of: "c", want: []api.TaskID{"a"},
		},
		"the end of a list": {
			tasks: []string{task("a"), task("p", `"for_each":{"from":"a","items":"$.f[*]"}`), task("c", after("p"))},
			grow:  []Growth{{Cause: CauseForEach, Task: "p", Items: items}}, of: "c",
		},
		"a gate of an item": {
			tasks: []string{task("p", gate, `"for_each":{"values":["one"]}`), task("c", after("p"))},
			grow:  []Growth{{Cause: CauseForEach, Task: "p", Items: items}, {Cause: CauseGate, Task: "p[one]", Round: 1}}, of: "c", want: []api.TaskID{"p[one].gate1"},
		},
	} {
		p, problems := Parse([]byte(`{"id":"r","tasks":[` + strings.Join(c.tasks, ",") + `]}`))
		if problems != nil {
			t.Fatalf("%s: %v", name, problems)
		}
		for _, g := range c.grow {
			if _, err := p.Grow(g); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		i, _ := p.Index(c.of)
		var got []api.TaskID
		for _, n := range p.Influences(i) {
			got = append(got, p.Tasks[n].ID)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %s is influenced by %v, want %v", name, c.of, got, c.want)
		}
	}
}
