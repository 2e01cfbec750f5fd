package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Appended tasks have the checks of a plan, and are a growth of their own.
//
// proves R-O9
func TestAppendedTasksAreCheckedAsThoseOfAPlan(t *testing.T) {
	p := parse(t, strings.Replace(growing, `{"tasks":[`, `{"source":{"name":"service","commit":"c0ffee"},"limits":{"tasks":9},"tasks":[`, 1))
	g, problems := p.ParseAppend([]byte(`[{"id":"z","subagent":"x","depends_on":["y"]},{"id":"y","subagent":"x","needs":{"m":{"from":"merge","patch":true}},"retry":{"attempts":1}},{"id":"ok","approval":{"by":["human:ann"]},"depends_on":["z"]}]`))
	if problems != nil {
		t.Fatal(problems)
	}
	raw, err := g.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadGrowth(raw)
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.WithID("other")
	if err != nil {
		t.Fatal(err)
	}
	grow(t, p, again, "y", "z", "ok")
	y, _ := p.Index("y")
	if s := p.Tasks[y].Source; s == nil || s.Commit != "c0ffee" || p.Tasks[y+2].Source != nil || p.Parent(y) != -1 {
		t.Errorf("%+v", p.Tasks[y])
	}
	if _, ok := other.Index("y"); ok || len(other.Tasks) != 6 || len(other.Dependents(2)) != 2 {
		t.Errorf("a copy grew too: %v", other.Dependents(2))
	}
	if again, err := p.WithID("r2"); err != nil || len(again.Tasks) != 6 || indexed(again, "y") {
		t.Errorf("a copy of a run that grew: %v", err)
	}
	for raw, want := range map[string]string{
		`{}`: "$.tasks: want a list", `[]`: "$.tasks: is empty", `[1]`: "want an object", `[{"id":"a","subagent":"x"}] ,"limits":{}`: "not valid JSON",
		`[{"id":"merge","subagent":"x"}]`: `the run has a task "merge" already`, `[{"id":"y","subagent":"x"}]`: `the run has a task "y" already`,
		`[{"id":"part[a]","subagent":"x"}]`: `task id "part[a]"`, `[{"id":"a","subagent":"x","depends_on":["part[b]"]}]`: `task id "part[b]"`,
		`[{"id":"a","subagent":"x","depends_on":["gone"]}]`:                                           `no such task "gone"`,
		`[{"id":"review.vote2","subagent":"x"}]`:                                                      `is the name of a task that grows from "review"`,
		`[{"id":"a","subagent":"x","depends_on":["b"]},{"id":"b","subagent":"x","depends_on":["a"]}]`: `dependency cycle: a -> b -> a`,
		`[{"id":"a","subagent":"x","needs":{"m":{"from":"ship","patch":true}}}]`:                      `task "ship" has no products`,
		`[{"id":"a","subagent":"x","input":{"x":"{{each.name}}"}}]`:                                   `only a task with for_each has items`,
		`[{"id":"a","subagent":"x","gate":{"verify":"v","fix":"f"}}]`:                                 `the run has 9 tasks, and would have at least 11: its limit is 9`,
		`[{"id":"a","subagent":"x","when":{"task":"review","result":"$.x","is":1}}]`:                  `task "review" has no result of its own`,
	} {
		_, problems := p.ParseAppend([]byte(raw))
		if got := fmt.Sprint(problems); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	// What did not pass these checks does not grow either.
	fresh, _ := p.WithID("r3")
	for name, g := range map[string]Growth{
		"a bad task":         {Cause: CauseAppend, Tasks: []api.PlanTask{{ID: "a"}}},
		"another order":      {Cause: CauseAppend, Tasks: []api.PlanTask{again.Tasks[1], again.Tasks[0]}},
		"a default":          {Cause: CauseAppend, Tasks: []api.PlanTask{{ID: "a", Subagent: "x", Source: again.Tasks[0].Source, Retry: api.Retry{Attempts: 1}}}},
		"another source":     {Cause: CauseAppend, Tasks: []api.PlanTask{{ID: "a", Subagent: "x"}}},
		"tasks of a growth":  {Cause: CauseForEach, Task: "part", Tasks: again.Tasks},
		"items of an append": {Cause: CauseAppend, Tasks: again.Tasks, Items: []Item{{Name: "a"}}},
	} {
		if _, err := fresh.Grow(g); err == nil || len(fresh.Tasks) != 6 {
			t.Errorf("%s grows", name)
		}
	}
	mixed := parse(t, `{"tasks":[{"id":"a","subagent":"x","source":{"name":"s"}},{"id":"b","subagent":"x","source":{"name":"t"}}]}`)
	if _, problems := mixed.ParseAppend([]byte(`[{"id":"c","subagent":"x"}]`)); !strings.Contains(fmt.Sprint(problems), "name its source") {
		t.Errorf("sources: %v", problems)
	}
	none := parse(t, `{"tasks":[{"id":"a","subagent":"x","source":{"name":"s"}},{"id":"b","subagent":"x"}]}`)
	if g, problems := none.ParseAppend([]byte(`[{"id":"c","subagent":"x"}]`)); problems != nil || g.Tasks[0].Source != nil {
		t.Errorf("no source: %v", problems)
	}
}

// ended are the ends of the tasks of a plan, done but for those that are named.
func ended(p *Plan, except map[api.TaskID]End) func(int) End {
	return func(i int) End {
		if e, ok := except[p.Tasks[i].ID]; ok {
			return e
		}
		return End{State: api.TaskDone}
	}
}

const mapped = `{"id":"r1","source":{"name":"service","commit":"c0"},"tasks":[{"id":"split","subagent":"x"},
{"id":"part","subagent":"x","for_each":{"from":"split","items":"$[*]"},"gate":{"verify":"v","fix":"f"}},
{"id":"all","subagent":"x","needs":{"p":{"from":"part","patch":true}}},
{"id":"vote","quorum":{"of":["a","b"],"approve":1},"needs":{"p":{"from":"all","patch":true}}},
{"id":"low","subagent":"x","when":{"task":"split","result":"$.a","is":1}},
{"id":"end","subagent":"x","after":"any","depends_on":["low","vote"]}]}`

// A retry of a run that grew runs what is not done, and what depends on that.
//
// proves R-O4
// proves R-O9
func TestARetryTakesOverWhatGrew(t *testing.T) {
	old := parse(t, mapped)
	three := []Item{{Name: "a", Value: []byte(`"a"`)}, {Name: "b", Value: []byte(`"b"`)}, {Name: "c", Value: []byte(`"c"`)}}
	growths := []Growth{{Cause: CauseForEach, Task: "part", Items: three}}
	for _, g := range []api.TaskID{"part[a]", "part[b]", "part[c]"} {
		growths = append(growths, Growth{Cause: CauseGate, Task: g, Round: 1})
	}
	growths = append(growths, Growth{Cause: CauseGate, Task: "part[a]", Round: 2}, Growth{Cause: CauseQuorum, Task: "vote"})
	for _, g := range growths {
		if _, err := old.Grow(g); err != nil {
			t.Fatal(err)
		}
	}
	late, problems := old.ParseAppend([]byte(`[{"id":"late","subagent":"x","depends_on":["split"]}]`))
	if problems != nil {
		t.Fatal(problems)
	}
	if _, err := old.Grow(late); err != nil {
		t.Fatal(err)
	}
	growths = append(growths, late)
	failed, skipped := End{State: api.TaskFailed}, End{State: api.TaskSkipped}
	condition := End{State: api.TaskSkipped, ByCondition: true}
	for _, c := range []struct {
		name   string
		except map[api.TaskID]End
		from   []api.TaskID
		commit string
		grown  int // growths that the new run begins with
		runs   string
	}{
		{"all done", map[api.TaskID]End{"vote.vote2": {State: api.TaskCancelled}, "low": condition}, nil, "", 6, "low"},
		{"one of the map failed", map[api.TaskID]End{"part[b]": failed, "part": failed, "all": skipped, "vote": skipped, "end": skipped, "low": condition}, nil, "", 5, "part all vote low end part[b]"},
		{"one gate is red", map[api.TaskID]End{"part[a]": failed, "part": failed, "all": skipped, "vote": skipped, "end": skipped, "low": condition}, nil, "", 4, "part all vote low end part[a]"},
		{"one of the map again", map[api.TaskID]End{"low": condition}, []api.TaskID{"part[c]"}, "", 5, "part all vote low end part[c]"},
		{"a check again", map[api.TaskID]End{"low": condition}, []api.TaskID{"part[a].gate1"}, "", 4, "part all vote low end part[a]"},
		{"the map again", map[api.TaskID]End{"low": condition}, []api.TaskID{"part"}, "", 1, "part all vote low end"},
		{"the source of the map again", map[api.TaskID]End{"low": condition}, []api.TaskID{"split"}, "", 1, "split part all vote low end late"},
		{"a vote again", map[api.TaskID]End{"low": condition}, []api.TaskID{"vote.vote1"}, "", 6, "vote low end"},
		{"a condition that failed", map[api.TaskID]End{"low": failed, "end": skipped}, nil, "", 6, "low end"},
		{"another commit", map[api.TaskID]End{"low": condition}, nil, "c1", 1, "split part all vote low end late"},
	} {
		var sources []api.SourceRequest
		if c.commit != "" {
			sources = []api.SourceRequest{{Name: "service", Commit: c.commit}}
		}
		p, err := old.Edited("r2", sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.RetryOf(old, growths, ended(old, c.except), c.from)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var runs []string
		for i, taken := range r.Taken {
			if !taken {
				runs = append(runs, string(p.Tasks[i].ID))
			}
		}
		if got := strings.Join(runs, " "); got != c.runs || len(r.Growths) != c.grown || len(r.Taken) != len(p.Tasks) {
			t.Errorf("%s: runs %s, begins with %d growths; want %s, %d", c.name, got, len(r.Growths), c.runs, c.grown)
		}
		if l, ok := p.Index("late"); !ok || c.commit != "" && p.Tasks[l].Source.Commit != c.commit {
			t.Errorf("%s: the appended task starts from another commit", c.name)
		}
	}
	if _, err := old.Edited("r2", nil, map[api.TaskID]json.RawMessage{"part[a]": nil}); err == nil {
		t.Error("the input of a grown task was changed")
	}
}

// What people approved, they approved for one run.
//
// proves R-O9
func TestARetryAsksPeopleAgain(t *testing.T) {
	old := parse(t, `{"id":"r1","tasks":[{"id":"a","subagent":"x"},{"id":"ok","approval":{"by":["human:ann"]},"depends_on":["a"]},{"id":"vote","quorum":{"of":["x","human:ann"],"approve":1}},{"id":"auto","quorum":{"of":["x"],"approve":1}},{"id":"b","subagent":"x","depends_on":["ok"]}]}`)
	p, _ := old.WithID("r2")
	r, err := p.RetryOf(old, nil, ended(old, nil), nil)
	if want := []bool{true, false, false, true, false}; err != nil || !slices.Equal(r.Taken, want) {
		t.Errorf("%v, %v, want %v", r.Taken, err, want)
	}
}

// proves R-O9
func TestHowARunEndsFollowsFromItsTasks(t *testing.T) {
	p := parse(t, mapped)
	if _, err := p.Grow(Growth{Cause: CauseForEach, Task: "part", Items: []Item{{Name: "a", Value: []byte(`"a"`)}}}); err != nil {
		t.Fatal(err)
	}
	type end struct {
		state api.TaskState
		cause api.TaskID
	}
	for name, c := range map[string]struct {
		ends map[api.TaskID]end
		want api.RunState
	}{
		"all done":                    {nil, api.RunDone},
		"a child failed, not it":      {map[api.TaskID]end{"part[a]": {state: api.TaskFailed}}, api.RunDone},
		"a child was cancelled":       {map[api.TaskID]end{"part[a]": {state: api.TaskCancelled}}, api.RunDone},
		"it failed":                   {map[api.TaskID]end{"part": {state: api.TaskFailed}}, api.RunFailed},
		"a condition did not hold":    {map[api.TaskID]end{"low": {api.TaskSkipped, "split"}}, api.RunDone},
		"and another was skipped":     {map[api.TaskID]end{"low": {api.TaskSkipped, "split"}, "end": {api.TaskSkipped, "low"}}, api.RunDone},
		"skipped after a failure":     {map[api.TaskID]end{"all": {state: api.TaskFailed}, "end": {api.TaskSkipped, "all"}}, api.RunFailed},
		"causes that name each other": {map[api.TaskID]end{"low": {api.TaskSkipped, "end"}, "end": {api.TaskSkipped, "low"}}, api.RunFailed},
		"a task was cancelled":        {map[api.TaskID]end{"low": {state: api.TaskCancelled}}, api.RunCancelled},
	} {
		counts := p.Counts(func(i int) (api.TaskState, int) {
			e, ok := c.ends[p.Tasks[i].ID]
			if !ok {
				return api.TaskDone, 0
			}
			cause, _ := p.Index(e.cause)
			return e.state, cause
		})
		if got := Settle(api.RunRunning, counts, false); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
