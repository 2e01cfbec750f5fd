package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

// mapTemplate is a plan that grows by what a worker leaves.
func mapTemplate(list string) string {
	return fmt.Sprintf(`{"source":{"name":"service","commit":"c0ffee"},"tasks":[
{"id":"split","subagent":"splitter"},
{"id":"part","subagent":"edit","target":"box","env":["go"],"capabilities":["git"],"timeout":"5m","retry":{"attempts":2},"for_each":{"from":"split",%s,"max":20},
 "input":{"file":%s,"name":"{{each.name}}","fixed":[1,{"a":"b"}]},"locks":["repo/%s","all"],"needs":{"x":{"from":"split","output":"in/{{each.name}}"}},
 "gate":{"verify":{"subagent":"check","input":{"of":"{{each.name}}"}},"fix":"fixer"}}]}`, list,
		map[bool]string{true: `"{{each.path}}"`, false: `"{{each.value}}"`}[strings.Contains(list, "outputs")], map[bool]string{true: "{{each.path}}", false: "{{each.value}}"}[strings.Contains(list, "outputs")])
}

// hostileTexts are names that a worker could give to get more than values.
func hostileTexts() []string {
	return []string{
		"a", "b.csv", "A-1", "", ".", "..", "../x", "/etc/passwd", "a/b", "a//b", "x\x00", "a\nb", "\x1b[2J", "\u202e", "é", "{{each.name}}", "{{each.value}}", "${params.x}",
		"part[a]", "a]", "a].gate1", "split", "part", "a.gate1", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 2000), " a", "a ", "*", "human:ann", `","subagent":"root`,
	}
}

// hostileValue draws a JSON value.
func hostileValue(t *rapid.T, depth int) any {
	text := rapid.OneOf(rapid.SampledFrom(hostileTexts()), rapid.String())
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind < 4:
		return text.Draw(t, "text")
	case kind == 4:
		return rapid.Float64().Draw(t, "number")
	case kind == 5:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "word")
	case depth > 2:
		return "deep"
	case kind == 6:
		return slices.Repeat([]any{hostileValue(t, depth+1)}, rapid.IntRange(0, 3).Draw(t, "n"))
	}
	return map[string]any{
		"name": hostileValue(t, depth+1), "subagent": text.Draw(t, "subagent"), "env": []any{"root"}, "capabilities": []any{"all"},
		"target": "host", "source": map[string]any{"name": "secret"}, "gate": nil, "retry": map[string]any{"attempts": 20},
	}
}

// powers are those members of a task that say what its worker is and may do, and how
// often it runs: growth never changes them.
func powers(t *api.PlanTask) string {
	gate := ""
	if t.Gate != nil {
		gate = fmt.Sprint(t.Gate.Verify.Subagent, t.Gate.Fix.Subagent, t.Gate.Attempts)
	}
	return fmt.Sprint(t.Subagent, t.Source, t.Target, t.Envs, t.Capabilities, t.Timeout, t.Retry, t.Priority, gate, t.Quorum, t.Approval, t.ForEach == nil)
}

// vetted compares a run that grew with its template: each instance has the template's
// powers, depends on what that does, and needs nothing of another task.
func vetted(p *Plan, parent, first int) error {
	like := p.Tasks[parent]
	like.ForEach = nil
	for i := first; i < len(p.Tasks); i++ {
		t := &p.Tasks[i]
		if _, err := api.ParseGrownTaskID(string(t.ID)); err != nil || !strings.HasPrefix(string(t.ID), string(like.ID)+"[") {
			return fmt.Errorf("id %q", t.ID)
		}
		if got, want := powers(t), powers(&like); got != want {
			return fmt.Errorf("%s: %s, and the template %s", t.ID, got, want)
		}
		if len(t.Needs) != len(like.Needs) || len(t.Locks) != len(like.Locks) || !slices.Equal(p.Deps(i), p.Deps(parent)) || t.When != nil {
			return fmt.Errorf("%s has other dependencies or locks", t.ID)
		}
		for name, n := range t.Needs {
			if n.From != like.Needs[name].From || checkOutput(n.Output) != nil {
				return fmt.Errorf("%s: need %s is %+v", t.ID, name, n)
			}
		}
		for _, l := range t.Locks {
			if checkLock(l.Key) != nil || len(l.Key) > 4*api.MaxLockKey {
				return fmt.Errorf("%s: lock %q", t.ID, l.Key)
			}
		}
		var input map[string]json.RawMessage
		if err := json.Unmarshal(t.Input, &input); err != nil || len(input) != 3 || string(input["fixed"]) != `[1,{"a":"b"}]` {
			return fmt.Errorf("%s: input %s", t.ID, t.Input)
		}
	}
	return nil
}

// TestGrowthGivesOnlyWhatWasVetted: whatever a worker leaves, a run grows by instances of
// its template or not at all.
//
// proves R-O9
func TestGrowthGivesOnlyWhatWasVetted(t *testing.T) {
	grew, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		outputs := rapid.Bool().Draw(t, "outputs")
		list, sum := `"items":"$.f[*]"`, &api.ResultSummary{}
		if outputs {
			list = `"outputs":"d/*"`
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(hostileTexts()), 0, 4).Draw(t, "names") {
				sum.Outputs = append(sum.Outputs, api.Artifact{Path: rapid.SampledFrom([]string{"d/", "d/", "", "d/d/"}).Draw(t, "dir") + name})
			}
		} else {
			all := []any{}
			for range rapid.IntRange(0, 4).Draw(t, "items") {
				all = append(all, hostileValue(t, 0))
			}
			doc := any(map[string]any{"f": all})
			if rapid.IntRange(0, 9).Draw(t, "no list") == 0 {
				doc = hostileValue(t, 0)
			}
			sum.Value, _ = json.Marshal(doc)
		}
		p, problems := Parse([]byte(mapTemplate(list)))
		if problems != nil {
			t.Fatal(problems)
		}
		digest, n := p.Digest(), len(p.Tasks)
		items, err := ItemsOf(p.Tasks[1].ForEach, sum)
		if err == nil {
			_, err = p.Grow(Growth{Cause: CauseForEach, Task: "part", Items: items})
		}
		if err != nil {
			refused++
			if len(p.Tasks) != n || len(p.Children(1)) > 0 || len(err.Error()) > 600 {
				t.Fatalf("half of it grew: %v", err)
			}
			return
		}
		if len(p.Tasks) > n {
			grew++
		}
		if err := vetted(p, 1, n); err != nil || p.Digest() != digest {
			t.Fatalf("%s %v: %v", sum.Value, sum.Outputs, err)
		}
	})
	if grew == 0 || refused == 0 {
		t.Errorf("%d grew, %d refused: the generator is one-sided", grew, refused)
	}
	// The control: the check notices an instance that the template does not give.
	for name, spoil := range map[string]func(*api.PlanTask){
		"subagent": func(t *api.PlanTask) { t.Subagent = "root" }, "env": func(t *api.PlanTask) { t.Envs = []api.Name{"root"} },
		"fix": func(t *api.PlanTask) { g := *t.Gate; g.Fix.Subagent = "root"; t.Gate = &g }, "need": func(t *api.PlanTask) { t.Needs = map[api.Name]api.Need{"x": {From: "part"}} },
		"lock": func(t *api.PlanTask) { t.Locks[0].Key = " " }, "input": func(t *api.PlanTask) { t.Input = json.RawMessage(`{}`) },
	} {
		p := parse(t, mapTemplate(`"items":"$.f[*]"`))
		if _, err := p.Grow(Growth{Cause: CauseForEach, Task: "part", Items: []Item{{Name: "a", Value: json.RawMessage(`"a"`)}}}); err != nil || vetted(p, 1, 2) != nil {
			t.Fatalf("control: %v %v", err, vetted(p, 1, 2))
		}
		if spoil(&p.Tasks[2]); vetted(p, 1, 2) == nil {
			t.Errorf("control: another %s passes", name)
		}
	}
}

// A million items are refused before anything is made of them, and names the cause.
//
// proves R-O9
func TestGrowthIsBounded(t *testing.T) {
	million := json.RawMessage(`{"f":["a"` + strings.Repeat(`,"a"`, 1_000_000) + `]}`)
	p := parse(t, mapTemplate(`"items":"$.f[*]"`))
	if _, err := ItemsOf(p.Tasks[1].ForEach, &api.ResultSummary{Value: million}); err == nil || !strings.Contains(err.Error(), "1000001 items, more than max 20") {
		t.Errorf("a million items: %v", err)
	}
	wide := parse(t, `{"limits":{"tasks":5},"tasks":[{"id":"s","subagent":"x"},{"id":"t","subagent":"x","for_each":{"from":"s","items":"$[*]"}}]}`)
	four, _ := valued([]json.RawMessage{[]byte(`"a"`), []byte(`"b"`), []byte(`"c"`), []byte(`"d"`)}, 10)
	if _, err := wide.Grow(Growth{Cause: CauseForEach, Task: "t", Items: four}); err == nil || err.Error() != "the run would have 6 tasks: its limit is 5" || len(wide.Tasks) != 2 {
		t.Errorf("the fuse: %v", err)
	}
	if _, err := wide.Grow(Growth{Cause: CauseForEach, Task: "t", Items: four[:3]}); err != nil {
		t.Errorf("control: %v", err)
	}
	// Inputs that placeholders blow up are bounded in all.
	big := parse(t, `{"tasks":[{"id":"s","subagent":"x"},{"id":"t","subagent":"x","for_each":{"from":"s","items":"$[*]"},"input":{"n":"{{each.name}}","t":"`+strings.Repeat("x", 1<<20)+`"}}]}`)
	var many []Item
	for i := range 70 {
		many = append(many, Item{Name: fmt.Sprint("i", i), Value: json.RawMessage(`1`)})
	}
	if _, err := big.Grow(Growth{Cause: CauseForEach, Task: "t", Items: many}); err == nil || !strings.Contains(err.Error(), "in all inputs of a run") {
		t.Errorf("inputs: %v", err)
	}
	if _, err := big.Grow(Growth{Cause: CauseForEach, Task: "t", Items: many[:3]}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// ItemsOf gives distinct valid names, or an error, for every result.
//
// proves R-O9
func FuzzItemsOf(f *testing.F) {
	f.Add([]byte(`{"f":["a",{"name":"b"}]}`), "d/a.csv")
	f.Add([]byte(`{"f":["../a"]}`), "d/../x")
	f.Fuzz(func(t *testing.T, value []byte, output string) {
		sum := &api.ResultSummary{Value: value, Outputs: []api.Artifact{{Path: output}, {Path: "d/b"}}}
		for _, each := range []*api.ForEach{{From: "x", Items: "$.f[*]"}, {From: "x", Outputs: "d/*"}, {From: "x", Items: "$[*]"}} {
			items, err := ItemsOf(each, sum)
			if err != nil {
				continue
			}
			seen := map[string]bool{}
			for _, item := range items {
				if _, err := api.ParseTaskID(item.Name); err != nil || seen[item.Name] || item.Value != nil && !json.Valid(item.Value) {
					t.Fatalf("%q", items)
				}
				seen[item.Name] = true
			}
		}
	})
}

// BenchmarkGrow adds 10,000 tasks.
func BenchmarkGrow(b *testing.B) {
	items := make([]Item, api.MaxForEach)
	for i := range items {
		name := fmt.Sprint("item-", i)
		items[i] = Item{Name: name, Value: json.RawMessage(`"` + name + `"`)}
	}
	raw := []byte(strings.Replace(mapTemplate(`"items":"$.f[*]"`), `"max":20`, `"max":10000`, 1))
	for b.Loop() {
		b.StopTimer()
		p, problems := Parse(raw)
		if problems != nil {
			b.Fatal(problems)
		}
		b.StartTimer()
		if _, err := p.Grow(Growth{Cause: CauseForEach, Task: "part", Items: items}); err != nil {
			b.Fatal(err)
		}
	}
}
