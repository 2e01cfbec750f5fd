package plan

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// growing is a plan with each construct.
const growing = `{"tasks":[
{"id":"split","subagent":"splitter"},
{"id":"part","subagent":"edit","for_each":{"from":"split","items":"$.files[*]"},"input":{"file":"{{each.value}}","as":["{{each.name}}"]},"locks":["repo/{{each.name}}"],"gate":{"verify":"check","fix":{"subagent":"fixer","input":{"deep":true}},"attempts":2}},
{"id":"merge","subagent":"merger","needs":{"all":{"from":"part","patch":true,"allow_failed":true}}},
{"id":"review","quorum":{"of":["a","b","human:ann"],"approve":2},"needs":{"change":{"from":"merge","patch":true}}},
{"id":"ship","approval":{"by":["human:ann","human:bob"],"count":1,"timeout":"24h"},"depends_on":["review"]},
{"id":"tell","subagent":"tell","when":{"task":"merge","result":"$.risk","is":"high"},"after":"any","depends_on":["ship"]}
]}`

func grow(t *testing.T, p *Plan, g Growth, want ...api.TaskID) {
	t.Helper()
	first, err := p.Grow(g)
	if err != nil {
		t.Fatal(err)
	}
	var ids []api.TaskID
	for _, task := range p.Tasks[first:] {
		ids = append(ids, task.ID)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("%s of %s gave %v, want %v", g.Cause, g.Task, ids, want)
	}
}

// proves R-O9
func TestGrowthGivesTheTasksOfThePlan(t *testing.T) {
	p, problems := Parse([]byte(growing))
	if problems != nil {
		t.Fatal(problems)
	}
	if again, problems := Parse(p.Canonical()); problems != nil || again.Digest() != p.Digest() {
		t.Fatalf("the canonical form is another plan: %v", problems)
	}
	sum := &api.ResultSummary{Value: json.RawMessage(`{"files":["b",{"name":"a","path":"x/a"}]}`)}
	items, err := ItemsOf(p.Tasks[1].ForEach, sum)
	if err != nil {
		t.Fatal(err)
	}
	digest := p.Digest()
	grow(t, p, Growth{Cause: CauseForEach, Task: "part", Items: items}, "part[b]", "part[a]")
	i, _ := p.Index("part[a]")
	if a := p.Tasks[i]; string(a.Input) != `{"as":["a"],"file":{"name":"a","path":"x/a"}}` || a.Locks[0].Key != "repo/a" || a.ForEach != nil || a.Gate == nil || a.Subagent != "edit" {
		t.Errorf("%+v", a)
	}
	grow(t, p, Growth{Cause: CauseGate, Task: "part[a]", Round: 1}, "part[a].gate1")
	grow(t, p, Growth{Cause: CauseGate, Task: "part[a]", Round: 2}, "part[a].fix1", "part[a].gate2")
	grow(t, p, Growth{Cause: CauseGate, Task: "part[a]", Round: 3}, "part[a].fix2", "part[a].gate3")
	fix, _ := p.Index("part[a].fix2")
	if f := p.Tasks[fix]; f.Needs[NeedChange].From != "part[a].fix1" || f.Needs[NeedVerdict].From != "part[a].gate2" || string(f.Input) != `{"deep":true}` || f.Locks[0].Key != "repo/a" {
		t.Errorf("%+v", f)
	}
	merge, _ := p.Index("merge")
	if got := p.Giver(int32(merge), int32(i)); int(got) != fix {
		t.Errorf("%s gives the patch", p.Tasks[got].ID)
	}
	grow(t, p, Growth{Cause: CauseQuorum, Task: "review"}, "review.vote1", "review.vote2", "review.vote3")
	vote, _ := p.Index("review.vote3")
	if v := p.Tasks[vote]; v.Approval == nil || v.Subagent != "" || !slices.Equal(v.Approval.Show, []api.TaskID{"merge"}) {
		t.Errorf("%+v", v)
	}
	if _, err := p.Grow(Growth{Cause: CauseQuorum, Task: "review"}); err == nil {
		t.Error("it grew twice")
	}
	if _, err := p.Grow(Growth{Cause: CauseGate, Task: "part[a]", Round: 4}); err == nil {
		t.Error("a third fix")
	}
	if p.Digest() != digest || p.declared != 6 || len(p.Order()) != len(p.Tasks) {
		t.Error("the submitted plan changed")
	}
}

// proves R-O9
func TestConstructsThatMakeNoSenseAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`{"id":"t","subagent":"a","input":{"x":"{{each.name}}"}}`:                                                                          `$.tasks[0].input.x (task t): "{{each.name}}": only a task with for_each has items`,
		`{"id":"t","subagent":"a","for_each":{"values":["a"]},"input":{"x":"say {{each.name}}"}}`:                                          `$.tasks[0].input.x (task t): "say {{each.name}}": a placeholder is a whole text here`,
		`{"id":"t","subagent":"a","for_each":{"values":["a"]},"input":{"x":"{{each.path}}"}}`:                                              `"{{each.path}}": an item has {{each.name}} and {{each.value}}`,
		`{"id":"t","subagent":"a","for_each":{"values":["a","a"]}}`:                                                                        `$.tasks[0].for_each.values (task t): item 2: duplicate name "a"`,
		`{"id":"t","subagent":"a","for_each":{"values":["../a"]}}`:                                                                         `item 1: name "../a": want 1 to 64`,
		`{"id":"t","subagent":"a","for_each":{"from":"x","outputs":"../*"}},{"id":"x","subagent":"a"}`:                                     `leads out of outputs/`,
		`{"id":"t","quorum":{"of":["a"],"approve":2}}`:                                                                                     `$.tasks[0].quorum.approve (task t): 2 are wanted, but of has 1`,
		`{"id":"t","approval":{"by":["human:ann"],"count":2}}`:                                                                             `2 are wanted, but by has 1`,
		`{"id":"t","approval":{"by":["human:ann","local:ann"]}}`:                                                                           `$.tasks[0].approval.by[1] (task t): duplicate "local:ann": a person votes once`,
		`{"id":"t","quorum":{"of":["human:ann","a","local:ann"],"approve":2}}`:                                                             `$.tasks[0].quorum.of[2] (task t): duplicate "local:ann": a person votes once`,
		`{"id":"t","approval":{"by":["agent:x"]}}`:                                                                                         `"agent:x": want a person`,
		`{"id":"t","approval":{"by":["human:ann"],"show":["u"]}}`:                                                                          `$.tasks[0].approval.show[0] (task t): no such task "u"`,
		`{"id":"t","subagent":"a","quorum":{"of":["a"],"approve":1}}`:                                                                      `a task with quorum has no subagent`,
		`{"id":"t","subagent":"a","gate":{"verify":"v","fix":"f"}},{"id":"t.fix1","subagent":"a"}`:                                         `"t.fix1" is the name of a task that grows from "t"`,
		`{"id":"t","subagent":"a","gate":{"verify":"v","fix":"f"},"needs":{"change":{"from":"u","patch":true}}},{"id":"u","subagent":"a"}`: `inputs/change is what the gate gives its fix`,
		`{"id":"q","quorum":{"of":["a"],"approve":1}},{"id":"t","subagent":"a","needs":{"x":{"from":"q","result":true}}}`:                  `task "q" has no products`,
		`{"id":"t","subagent":"a","when":{"task":"t","result":"$.x","is":1}}`:                                                              `$.tasks[0].when.task (task t): task "t" depends on itself`,
		`{"id":"t","subagent":"a","when":{"task":"u","result":"$.x","is":1}},{"id":"u","subagent":"a","depends_on":["t"]}`:                 `dependency cycle: t -> u -> t`,
		`{"id":"u","subagent":"a"},{"id":"t","subagent":"a","needs":{"x":{"from":"u","patch":true,"allow_failed":true}}}`:                  `task "u" has no for_each`,
		`{"id":"t","subagent":"a","for_each":{"items":"$.x[*]"}}`:                                                                          `missing key "from": the task whose outputs or result have the list`,
		`{"id":"t","subagent":"a","for_each":{"from":"u","values":["a"]}},{"id":"u","subagent":"a"}`:                                       `$.tasks[0].for_each (task t): from does not go with values`,
		`{"id":"t","quorum":{"of":["agent:x"],"approve":1}}`:                                                                               `"agent:x": want a subagent, or a person`,
		`{"id":"t","subagent":"a","depends_on":["u[b]"]},{"id":"u","subagent":"a"}`:                                                        `"u[b]": this task is generated at run time; refer to the task that generates it, "u"`,
	} {
		_, problems := Parse([]byte(`{"tasks":[` + raw + `]}`))
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%s\ngot %q\nwant %s", raw, all, want)
		}
	}
}

// proves R-O9
func TestHostileProductsGrowNothing(t *testing.T) {
	items := func(value string) error {
		_, err := ItemsOf(&api.ForEach{From: "x", Items: "$.f[*]"}, &api.ResultSummary{Value: json.RawMessage(value)})
		return err
	}
	if err := items(`{"f":["a","b"]}`); err != nil {
		t.Fatalf("control: %v", err)
	}
	for value, want := range map[string]string{
		``: "no structured result", `[]`: "want an object", `{"f":{}}`: "want a list", `{"g":[]}`: "no member", `{"f":[1]}`: `want a name, or an object with "name"`,
		`{"f":["a","a"]}`: "duplicate name", `{"f":["a/b"]}`: "name", `{"f":[".."]}`: "name", `{"f":["{{each.name}}"]}`: "name", `{"f":["a\u0000"]}`: "name",
		`{"f":[{"name":1}]}`: "want a name", `{"f":[` + strings.Repeat(`"a",`, 100) + `"b"]}`: "101 items, more than max 100",
	} {
		if err := items(value); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.60s: %v, want %s", value, err, want)
		}
	}
	files := func(leftOut ...api.LeftOut) (int, error) {
		list, err := ItemsOf(&api.ForEach{From: "x", Outputs: "in/*.csv"}, &api.ResultSummary{Outputs: []api.Artifact{{Path: "in/a.csv"}, {Path: "result.json"}}, LeftOut: leftOut})
		return len(list), err
	}
	for path, refused := range map[string]bool{
		"outputs": true, "outputs/in": true, "outputs/in/b.csv": true, "\"outputs/in/b\\n.csv\"": true, // a list that is not whole
		"outputs/in/b.txt": false, "outputs/in/b/c.csv": false, "outputs/other": false, "in/b.csv": false, "...": false,
	} {
		if n, err := files(api.LeftOut{Path: path, Why: "a symbolic link"}); (err != nil) != refused || err == nil && n != 1 {
			t.Errorf("%s was left out: %d items, %v", path, n, err)
		}
	}
	if _, err := files(api.LeftOut{Path: "outputs/x"}, api.LeftOut{Path: "...", Why: "and 7 more paths"}); err == nil {
		t.Error("more were left out than are listed")
	}
	for _, value := range []string{`{"verdict":"GREEN"}`, `{"verdict":["green"]}`, `{}`, `{"verdict":null}`} {
		if _, err := VerdictOf(&api.ResultSummary{Value: json.RawMessage(value)}, api.VerdictGreen, api.VerdictRed); err == nil {
			t.Errorf("%s is a verdict", value)
		}
	}
	if green, err := VerdictOf(&api.ResultSummary{Value: json.RawMessage(`{"verdict":"green"}`)}, api.VerdictGreen, api.VerdictRed); err != nil || !green {
		t.Errorf("control: %v %v", green, err)
	}
}
