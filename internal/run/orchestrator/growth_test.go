package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// growing is a world whose dispatches end as the test says.
type growing struct {
	*world
	ends  map[api.TaskID]api.Reason // of tasks that fail
	gives map[api.TaskID]string     // structured results
	files map[api.TaskID][]string   // outputs
	hold  map[api.TaskID]bool       // tasks that do not end
	crash bool                      // the service is killed after every step
	needs map[api.TaskID][]string   // what each dispatch was given
}

func inGrowing(t *testing.T, fn func(g *growing)) {
	root := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		g := &growing{ends: map[api.TaskID]api.Reason{}, gives: map[api.TaskID]string{}, files: map[api.TaskID][]string{}, hold: map[api.TaskID]bool{}, needs: map[api.TaskID][]string{}}
		g.world = newWorld(t, root, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 4}})
		defer func() { _ = g.stop() }()
		g.desk.gives = func(task api.TaskID) *api.ResultSummary {
			sum := &api.ResultSummary{Captured: true}
			if v := g.gives[task]; v != "" {
				sum.Value = json.RawMessage(v)
			}
			for _, f := range g.files[task] {
				sum.Outputs = append(sum.Outputs, api.Artifact{Path: f, Digest: api.DigestOf([]byte(f)), Size: 1})
			}
			return sum
		}
		fn(g)
	})
}

// run submits a plan and ends its dispatches until nothing happens any more.
func (g *growing) run(text string) api.Run {
	g.t.Helper()
	r, err := g.o.Submit(context.Background(), as(ann), api.RunRequest{Plan: json.RawMessage(text)})
	g.must(err)
	return g.drive(r.RunID)
}

func (g *growing) drive(id api.RunID) api.Run {
	g.t.Helper()
	for range 300 {
		synctest.Wait()
		if g.crash {
			g.kill()
			if !g.killed() {
				g.t.Fatalf("not killed")
			}
			synctest.Wait()
		}
		list := g.desk.sorted(func(j *job) bool { return j.active() && (!g.hold[j.order.Task] || j.d.CancelBy != "") })
		if len(list) == 0 {
			break
		}
		j := list[0]
		if g.needs[j.order.Task] == nil {
			for _, n := range j.order.Needs {
				place := string(n.Name)
				if n.Item != "" {
					place += "/" + n.Item
				}
				g.needs[j.order.Task] = append(g.needs[j.order.Task], fmt.Sprintf("%s=%s %s", place, n.Task, n.Kind))
			}
		}
		switch reason := g.ends[j.order.Task]; {
		case j.d.CancelBy != "":
			g.desk.end(j, api.EventCancelled, "", true)
		case reason != "":
			g.desk.end(j, api.EventFailed, reason, true)
		default:
			g.desk.end(j, api.EventFinished, "", true)
		}
	}
	synctest.Wait()
	g.must(g.o.Err())
	r, err := g.o.Describe(context.Background(), ann, id, "", 1000)
	g.must(err)
	g.must(g.store.Read(context.Background(), func(v *store.View) error { return orchestrator.CheckOpen(v, 1000) }))
	return r
}

// told is how the tasks of a run stand, as "TASK STATE".
func told(r api.Run) string {
	var list []string
	for i := range r.Tasks {
		list = append(list, fmt.Sprintf("%s %s", r.Tasks[i].Task, r.Tasks[i].State))
	}
	return strings.Join(list, ", ") + ": " + string(r.State)
}

func (g *growing) want(r api.Run, want string) {
	g.t.Helper()
	if got := told(r); got != want {
		for i := range r.Tasks {
			g.t.Logf("%s: %s %s", r.Tasks[i].Task, r.Tasks[i].Reason, r.Tasks[i].Message)
		}
		g.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func taskOf(r api.Run, id api.TaskID) api.RunTask {
	i := slices.IndexFunc(r.Tasks, func(t api.RunTask) bool { return t.Task == id })
	if i < 0 {
		return api.RunTask{}
	}
	return r.Tasks[i]
}

const mapReduce = `{"tasks":[{"id":"split","subagent":"work"},
{"id":"part","subagent":"work","for_each":{"from":"split","items":"$.files[*]"},"input":{"file":"{{each.name}}"}},
{"id":"reduce","subagent":"work","needs":{"all":{"from":"part","patch":true}}}]}`

// A growth is the same whether or not the service is killed after each step.
//
// proves R-O9
func TestRunsGrow(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%t", crash), func(t *testing.T) {
			for _, c := range []struct {
				name, plan, want string
				set              func(g *growing)
				needs            map[api.TaskID]string
			}{
				{
					"a list in a result", mapReduce, "split done, part done, reduce done, part[b] done, part[a] done: done",
					func(g *growing) { g.gives["split"] = `{"files":["b","a"]}` },
					map[api.TaskID]string{"reduce": "all/a=part[a] patch all/b=part[b] patch"},
				},
				{
					"no item", mapReduce, "split done, part done, reduce done: done",
					func(g *growing) { g.gives["split"] = `{"files":[]}` }, nil,
				},
				{
					"an item fails", mapReduce, "split done, part failed, reduce skipped, part[b] failed, part[a] done: failed",
					func(g *growing) {
						g.gives["split"] = `{"files":["b","a"]}`
						g.ends["part[b]"] = api.ReasonVerify
					}, nil,
				},
				{
					"an item may fail", strings.Replace(mapReduce, `"patch":true`, `"patch":true,"allow_failed":true`, 1), "split done, part failed, reduce done, part[b] failed, part[a] done: failed",
					func(g *growing) {
						g.gives["split"] = `{"files":["b","a"]}`
						g.ends["part[b]"] = api.ReasonVerify
					},
					map[api.TaskID]string{"reduce": "all/a=part[a] patch"},
				},
				{
					"outputs", strings.Replace(mapReduce, `"items":"$.files[*]"`, `"outputs":"parts/*.csv"`, 1), "split done, part done, reduce done, part[x] done, part[y] done: done",
					func(g *growing) { g.files["split"] = []string{"parts/y.csv", "parts/x.csv", "other", "parts/d/z.csv"} }, nil,
				},
				{
					"values with a gate", `{"tasks":[{"id":"p","subagent":"work","for_each":{"values":["a"]},"gate":{"verify":"work","fix":"work"}},{"id":"z","subagent":"work","needs":{"all":{"from":"p","patch":true}}}]}`,
					"p done, z done, p[a] done, p[a].gate1 done, p[a].fix1 done, p[a].gate2 done: done",
					func(g *growing) {
						g.gives["p[a].gate1"], g.gives["p[a].gate2"] = `{"verdict":"red"}`, `{"verdict":"green"}`
					},
					map[api.TaskID]string{"z": "all/a=p[a].fix1 patch", "p[a].fix1": "change=p[a] patch verdict=p[a].gate1 result", "p[a].gate2": "change=p[a].fix1 patch"},
				},
				{
					"a green gate", `{"tasks":[{"id":"p","subagent":"work","gate":{"verify":"work","fix":"work"}},{"id":"z","subagent":"work","needs":{"c":{"from":"p","patch":true}}}]}`,
					"p done, z done, p.gate1 done: done",
					func(g *growing) { g.gives["p.gate1"] = `{"verdict":"green"}` },
					map[api.TaskID]string{"z": "c=p patch"},
				},
				{
					"a red gate", `{"tasks":[{"id":"p","subagent":"work","gate":{"verify":"work","fix":"work"}},{"id":"z","subagent":"work","depends_on":["p"]}]}`,
					"p failed, z skipped, p.gate1 done, p.fix1 done, p.gate2 done: failed",
					func(g *growing) {
						g.gives["p.gate1"], g.gives["p.gate2"] = `{"verdict":"red"}`, `{"verdict":"red"}`
					}, nil,
				},
				{
					"a fix fails", `{"tasks":[{"id":"p","subagent":"work","gate":{"verify":"work","fix":"work"}}]}`,
					"p failed, p.gate1 done, p.fix1 failed, p.gate2 skipped: failed",
					func(g *growing) { g.gives["p.gate1"], g.ends["p.fix1"] = `{"verdict":"red"}`, api.ReasonVerify }, nil,
				},
				{
					"no verdict", `{"tasks":[{"id":"p","subagent":"work","gate":{"verify":"work","fix":"work"}}]}`,
					"p failed, p.gate1 done: failed",
					func(g *growing) { g.gives["p.gate1"] = `{"verdict":"GREEN"}` }, nil,
				},
				{
					"two of three", `{"tasks":[{"id":"c","subagent":"work"},{"id":"q","quorum":{"of":["work","work","work"],"approve":2},"needs":{"x":{"from":"c","patch":true}}},{"id":"z","subagent":"work","depends_on":["q"]}]}`,
					"c done, q done, z done, q.vote1 cancelled, q.vote2 done, q.vote3 done: done",
					func(g *growing) {
						g.hold["q.vote1"] = true
						g.gives["q.vote2"], g.gives["q.vote3"] = `{"verdict":"approve"}`, `{"verdict":"approve"}`
					},
					map[api.TaskID]string{"q.vote2": "x=c patch"},
				},
				{
					"two reject", `{"tasks":[{"id":"q","quorum":{"of":["work","work","work"],"approve":2}}]}`,
					"q failed, q.vote1 cancelled, q.vote2 done, q.vote3 failed: failed",
					func(g *growing) {
						g.hold["q.vote1"] = true
						g.gives["q.vote2"], g.ends["q.vote3"] = `{"verdict":"reject"}`, api.ReasonVerify
					}, nil,
				},
				{
					"a condition", `{"tasks":[{"id":"r","subagent":"work"},{"id":"hi","subagent":"work","when":{"task":"r","result":"$.risk","is":"high"}},
{"id":"lo","subagent":"work","when":{"task":"r","result":"$.risk","is":"low"}},{"id":"x","subagent":"work","depends_on":["hi"]},
{"id":"z","subagent":"work","after":"any","needs":{"h":{"from":"hi","patch":true},"l":{"from":"lo","patch":true}}}]}`,
					"r done, hi skipped, lo done, x skipped, z done: done",
					func(g *growing) { g.gives["r"] = `{"risk":"low"}` },
					map[api.TaskID]string{"z": "l=lo patch"},
				},
				{
					"a condition on, and a list of, what was skipped", `{"tasks":[{"id":"r","subagent":"work"},{"id":"hi","subagent":"work","when":{"task":"r","result":"$.risk","is":"high"}},
{"id":"c","subagent":"work","after":"any","when":{"task":"hi","result":"$.x","is":1}},{"id":"p","subagent":"work","after":"any","for_each":{"from":"hi","items":"$.f[*]"}},
{"id":"z","subagent":"work","after":"any","depends_on":["c","p"]}]}`,
					"r done, hi skipped, c skipped, p skipped, z done: done",
					func(g *growing) { g.gives["r"] = `{"risk":"low"}` }, nil,
				},
				{
					"a condition on nothing", `{"tasks":[{"id":"r","subagent":"work"},{"id":"hi","subagent":"work","when":{"task":"r","result":"$.risk","is":"high"}}]}`,
					"r done, hi failed: failed", func(g *growing) { g.gives["r"] = `{}` }, nil,
				},
				{
					"a condition on what grows", `{"tasks":[{"id":"r","subagent":"work"},{"id":"p","subagent":"work","when":{"task":"r","result":"$.go","is":true},"for_each":{"from":"r","items":"$.of[*]"}}]}`,
					"r done, p done, p[a] done: done", func(g *growing) { g.gives["r"] = `{"go":true,"of":["a"]}` }, nil,
				},
			} {
				t.Run(c.name, func(t *testing.T) {
					inGrowing(t, func(g *growing) {
						g.crash = crash
						c.set(g)
						g.want(g.run(c.plan), c.want)
						for task, want := range c.needs {
							if got := strings.Join(g.needs[task], " "); got != want {
								g.t.Fatalf("needs of %s: %s, want %s", task, got, want)
							}
						}
					})
				})
			}
		})
	}
}

// What a worker writes decides how many tasks there are and what they work on, and
// nothing of it grows when any of it is wrong.
//
// proves R-O9
func TestHostileProductsGrowNothing(t *testing.T) {
	many := strings.Repeat(`"a",`, 999_999) + `"a"`
	for name, c := range map[string]struct{ result, want string }{
		"a path":              {`{"files":["ok","../../etc/passwd"]}`, `item 2: name`},
		"dots":                {`{"files":[".."]}`, `item 1: name`},
		"a control character": {`{"files":["a\u0007b"]}`, `item 1: name`},
		"a placeholder":       {`{"files":["{{each.name}}"]}`, `item 1: name`},
		"twice":               {`{"files":["a","b","a"]}`, `item 3: duplicate name`},
		"a million":           {`{"files":[` + many + `]}`, `more than max 100`},
		"no list":             {`{"files":"a"}`, `want a list`},
		"nothing":             {`{}`, `no member`},
		"a number":            {`{"files":[1]}`, `item 1: want a name`},
		"refused input":       {`{"files":["a","refused"]}`, `item "refused": input does not match`},
	} {
		t.Run(name, func(t *testing.T) {
			inGrowing(t, func(g *growing) {
				g.gives["split"] = c.result
				r := g.run(mapReduce)
				g.want(r, "split done, part failed, reduce skipped: failed")
				if p := taskOf(r, "part"); p.Reason != api.ReasonOutput || !strings.Contains(p.Message, c.want) || len(p.Message) > 1200 {
					g.t.Fatalf("%s: %s, want %s", p.Reason, p.Message, c.want)
				}
			})
		})
	}
}

// proves R-O9
func TestCancelOfWhatGrewEndsAllOfIt(t *testing.T) {
	for _, c := range []struct {
		task api.TaskID
		want string
	}{
		{"", "split done, part cancelled, reduce cancelled, part[a] cancelled, part[b] cancelled: cancelled"},
		{"part", "split done, part cancelled, reduce skipped, part[a] cancelled, part[b] cancelled: cancelled"},
		{"part[a]", "split done, part cancelled, reduce skipped, part[a] cancelled, part[b] done: cancelled"},
	} {
		t.Run(string(c.task), func(t *testing.T) {
			inGrowing(t, func(g *growing) {
				g.gives["split"] = `{"files":["a","b"]}`
				g.hold["part[a]"], g.hold["part[b]"] = true, true
				r := g.run(mapReduce)
				g.want(r, "split done, part growing, reduce pending, part[a] running, part[b] running: running")
				if p := taskOf(r, "part"); p.Message != "0 of 2 done" || taskOf(r, "part[a]").GrewFrom != "part" {
					g.t.Fatalf("%+v", p)
				}
				_, err := g.o.Cancel(context.Background(), as(ann), r.RunID, api.RunCancel{Task: c.task})
				g.must(err)
				g.drive(r.RunID)
				g.hold["part[b]"] = false
				g.want(g.drive(r.RunID), c.want)
				time.Sleep(time.Second)
			})
		})
	}
}

// Three of a for_each that failed run again, and not all.
//
// proves R-O9
func TestARetryRunsAgainWhatFailedOfAForEach(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%t", crash), func(t *testing.T) {
			inGrowing(t, func(g *growing) {
				g.crash = crash
				g.gives["split"] = `{"files":["a","b","c"]}`
				g.ends["part[b]"] = api.ReasonVerify
				r := g.run(mapReduce)
				g.want(r, "split done, part failed, reduce skipped, part[a] done, part[b] failed, part[c] done: failed")
				g.ends["part[b]"] = ""
				again, err := g.o.Retry(context.Background(), as(ann), r.RunID, api.RunRetry{})
				g.must(err)
				next := g.drive(again.RunID)
				g.want(next, "split done, part done, reduce done, part[a] done, part[b] done, part[c] done: done")
				for _, task := range []api.TaskID{"split", "part[a]", "part[c]"} {
					if !taskOf(next, task).TakenOver {
						g.t.Fatalf("task %s ran again", task)
					}
				}
				if got := strings.Join(g.needs["reduce"], " "); got != "all/a=part[a] patch all/b=part[b] patch all/c=part[c] patch" {
					g.t.Fatalf("needs of reduce: %s", got)
				}
			})
		})
	}
}
