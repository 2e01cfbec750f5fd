package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// drawPlan draws a plan without problems, its tasks in any order.
func drawPlan(t *rapid.T) []byte {
	n := rapid.IntRange(1, 12).Draw(t, "tasks")
	names := rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,5}[a-z0-9])?`)
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9]([A-Za-z0-9._-]{0,5}[A-Za-z0-9])?`), n, n, rapid.ID[string]).Draw(t, "ids")
	source := func() any {
		m := map[string]any{"name": names.Draw(t, "source")}
		if rapid.Bool().Draw(t, "commit") {
			m["commit"] = rapid.SampledFrom([]string{"HEAD", "main", "v1.0"}).Draw(t, "name")
		}
		return m
	}
	var tasks []any
	for i, id := range ids {
		task := map[string]any{"id": id, "subagent": names.Draw(t, "subagent")}
		maybe := func(key string, value func() any) {
			if rapid.IntRange(0, 2).Draw(t, key) == 0 {
				task[key] = value()
			}
		}
		maybe("source", source)
		maybe("target", func() any { return names.Draw(t, "target name") })
		maybe("env", func() any {
			return rapid.SliceOfNDistinct(names, 0, 3, rapid.ID[string]).Draw(t, "envs")
		})
		maybe("input", func() any {
			return map[string]any{"n": rapid.Float64().Draw(t, "number"), "é": rapid.String().Draw(t, "text")}
		})
		maybe("timeout", func() any { return rapid.SampledFrom([]string{"1s", "20m", "1h30m", "90s"}).Draw(t, "time") })
		maybe("priority", func() any { return rapid.IntRange(-api.MaxPriority, api.MaxPriority).Draw(t, "n") })
		maybe("locks", func() any { return drawLocks(t) })
		maybe("retry", func() any {
			return map[string]any{"attempts": rapid.IntRange(1, api.MaxAttempts).Draw(t, "n"), "backoff": "1.5s..2m250ms", "on": []any{"lost", "denied"}}
		})
		if i > 0 {
			maybe("depends_on", func() any { return rapid.SliceOfDistinct(rapid.SampledFrom(ids[:i]), rapid.ID[string]).Draw(t, "deps") })
			maybe("needs", func() any {
				return map[string]any{
					"a":     map[string]any{"from": rapid.SampledFrom(ids[:i]).Draw(t, "from"), "patch": true},
					"b.txt": map[string]any{"from": rapid.SampledFrom(ids[:i]).Draw(t, "from"), "output": "x/y.txt"},
				}
			})
		}
		tasks = append(tasks, task)
	}
	doc := map[string]any{"tasks": rapid.Permutation(tasks).Draw(t, "order")}
	if rapid.Bool().Draw(t, "with a source") {
		doc["source"] = source()
	}
	if rapid.Bool().Draw(t, "with limits") {
		doc["limits"] = map[string]any{"wall": "4h", "tasks": n}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func drawLocks(t *rapid.T) any {
	var locks []any
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "repo/é.go", "with space", "日本"}), 0, 4, rapid.ID[string]).Draw(t, "keys") {
		if rapid.Bool().Draw(t, "shared") {
			locks = append(locks, map[string]any{"shared": key})
		} else {
			locks = append(locks, key)
		}
	}
	if locks == nil {
		return []any{}
	}
	return locks
}

// TestCanonicalFormIsAFixedPoint: reading it gives the same plan, so its
// digest says which plan it is.
//
// proves R-O8
func TestCanonicalFormIsAFixedPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := drawPlan(t)
		p, problems := Parse(raw)
		if problems != nil {
			t.Fatalf("%s\n%v", raw, problems)
		}
		again, problems := Parse(p.Canonical())
		if problems != nil {
			t.Fatalf("%s\n%v", p.Canonical(), problems)
		}
		if !bytes.Equal(p.Canonical(), again.Canonical()) || fmt.Sprint(p.deps, p.dependents, p.order) != fmt.Sprint(again.deps, again.dependents, again.order) {
			t.Fatalf("%s became %s", p.Canonical(), again.Canonical())
		}
		renamed, err := p.WithID("another")
		if err != nil {
			t.Fatal(err)
		}
		if q, problems := Parse(renamed.Canonical()); problems != nil || q.ID != "another" || q.Digest() == p.Digest() {
			t.Fatalf("%s: %v", renamed.Canonical(), problems)
		}
	})
}

func TestOrderRespectsDependencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, problems := Parse(drawPlan(t))
		if problems != nil {
			t.Fatal(problems)
		}
		if len(p.Order()) != len(p.Tasks) {
			t.Fatalf("%d of %d tasks are in the order", len(p.Order()), len(p.Tasks))
		}
		done := map[int32]bool{}
		for _, i := range p.Order() {
			for _, d := range p.Deps(int(i)) {
				if !done[d] {
					t.Fatalf("%v: %d comes before %d", p.Order(), i, d)
				}
				if !slices.Contains(p.Dependents(int(d)), i) {
					t.Fatalf("%d is not among the dependents of %d", i, d)
				}
			}
			if done[i] {
				t.Fatalf("duplicate %d", i)
			}
			done[i] = true
		}
		for i := range p.Tasks {
			edges := map[api.TaskID]bool{}
			for _, d := range p.Tasks[i].DependsOn {
				edges[d] = true
			}
			for _, n := range p.Tasks[i].Needs {
				edges[n.From] = true
			}
			if len(p.Deps(i)) != len(edges) || !slices.IsSorted(p.Deps(i)) || !slices.IsSorted(p.Dependents(i)) {
				t.Fatalf("deps %v of %v", p.Deps(i), edges)
			}
			for _, d := range p.Deps(i) {
				if !edges[p.Tasks[d].ID] {
					t.Fatalf("%s is no dependency of %s", p.Tasks[d].ID, p.Tasks[i].ID)
				}
			}
		}
	})
}

// TestEveryCycleIsFound: a plan with one edge turned back is refused exactly if
// that closes a cycle.
func TestEveryCycleIsFound(t *testing.T) {
	cyclic := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "tasks")
		waits := make([][]bool, n)
		var tasks []any
		for i := range n {
			waits[i] = make([]bool, n)
			deps := []string{}
			for _, j := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, 2, rapid.ID[int]).Draw(t, "deps") {
				if j != i {
					waits[i][j] = true
					deps = append(deps, fmt.Sprint("t", j))
				}
			}
			tasks = append(tasks, map[string]any{"id": fmt.Sprint("t", i), "subagent": "s", "depends_on": deps})
		}
		raw, _ := json.Marshal(map[string]any{"tasks": tasks})
		_, problems := Parse(raw)
		for k := range n { // Warshall's closure is the reference
			for i := range n {
				for j := range n {
					waits[i][j] = waits[i][j] || waits[i][k] && waits[k][j]
				}
			}
		}
		sets := map[int]bool{}
		for i := range n {
			first := slices.IndexFunc(seq(n), func(j int) bool { return waits[i][j] && waits[j][i] })
			if first >= 0 {
				sets[first] = true
			}
		}
		cyclic += len(sets)
		if len(problems) != len(sets) {
			t.Fatalf("%s\n%d sets of tasks wait for each other: %v", raw, len(sets), problems)
		}
	})
	if cyclic == 0 {
		t.Error("no plan had a cycle")
	}
}

func seq(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestYAMLRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, problems := Parse(drawPlan(t))
		if problems != nil {
			t.Fatal(problems)
		}
		text, err := YAML(p)
		if err != nil {
			if !bytes.Contains(p.Canonical(), []byte(`\u`)) {
				t.Fatalf("%s: %v", p.Canonical(), err)
			}
			return
		}
		again, places := ReadText(text)
		if places != nil || !bytes.Equal(again.JSON, p.Canonical()) {
			t.Fatalf("%s\nbecame\n%s\n%v", p.Canonical(), text, places)
		}
	})
}
