package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// mapped is a run over n items: of a plan that grows by them, and of one that was
// submitted with a task for each.
func mapped(id api.RunID, n int, grown bool) api.Plan {
	p := api.Plan{ID: id, Tasks: []api.PlanTask{{ID: list, Subagent: work}}}
	if grown {
		p.Tasks = append(p.Tasks, api.PlanTask{
			ID: "part", Subagent: work, Input: json.RawMessage(`{"file":"{{each.name}}"}`),
			ForEach: &api.ForEach{From: list, Items: "$.files[*]", Max: api.MaxForEach},
		})
		return p
	}
	for i := range n {
		p.Tasks = append(p.Tasks, api.PlanTask{
			ID: api.TaskID(fmt.Sprintf("part-%d", i)), Subagent: work, DependsOn: []api.TaskID{list},
			Input: json.RawMessage(fmt.Sprintf(`{"file":"item-%d"}`, i)),
		})
	}
	return p
}

// list is the task whose result has the items.
const list api.TaskID = "list"

func listed(n int) *api.ResultSummary {
	files := make([]string, n)
	for i := range files {
		files[i] = fmt.Sprintf("item-%d", i)
	}
	value, _ := json.Marshal(map[string]any{"files": files}) //nolint:errchkjson // strings
	return &api.ResultSummary{Captured: true, Value: value}
}

// A run that grows by 10,000 items beside the same run submitted whole (less one task:
// a plan has at most 10,000), in turn, on one engine; medians.
//
//   - x-fixed, x-fixed-cpu: what a task costs in time and processor time, from the
//     request to the end of the run, compared with the fixed plan.
//   - grow-ms: from the end of the task with the list to the first dispatch of a grown
//     one, and grow-commits how many commits are between.
//   - first-ms: the same of the fixed plan.
func BenchmarkForEach(b *testing.B) {
	for _, n := range []int{100, api.MaxForEach} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) { benchForEach(b, n) })
	}
}

func benchForEach(b *testing.B, n int) {
	x := newBench(b, filepath.Join(b.TempDir(), "state"), 64)
	defer x.close()
	x.echo.gives = listed(n)
	tasks := map[bool]float64{false: float64(min(n, api.MaxPlanTasks-1)), true: float64(n)}
	took, used, first, commits := map[bool][]float64{}, map[bool][]float64{}, map[bool][]float64{}, map[bool][]float64{}
	round := func() {
		for _, grown := range []bool{false, true} {
			plans := raw(b, mapped(api.RunID(fmt.Sprintf("r-%d-%t", len(took[true]), grown)), int(tasks[grown]), grown))
			var at time.Time
			var before int64
			var once sync.Once
			x.echo.seen = func(id api.TaskID) {
				if id == list {
					at, before = time.Now(), x.commits.Load()
					return
				}
				once.Do(func() {
					first[grown] = append(first[grown], time.Since(at).Seconds())
					commits[grown] = append(commits[grown], float64(x.commits.Load()-before))
				})
			}
			runtime.GC()
			from := cpu(b)
			took[grown] = append(took[grown], x.run(b, plans, 1).Seconds()/tasks[grown])
			used[grown] = append(used[grown], (cpu(b)-from)/tasks[grown])
		}
	}
	for b.Loop() {
		round()
	}
	for len(took[true]) < 5 {
		round()
	}
	b.ReportMetric(median(took[true])/median(took[false]), "x-fixed")
	b.ReportMetric(median(used[true])/median(used[false]), "x-fixed-cpu")
	b.ReportMetric(median(took[true])*1e6, "us/task")
	b.ReportMetric(median(used[true])*1e6, "cpu-us/task")
	b.ReportMetric(median(first[true])*1000, "grow-ms")
	b.ReportMetric(median(commits[true]), "grow-commits")
	b.ReportMetric(median(first[false])*1000, "first-ms")
	b.ReportMetric(0, "ns/op")
}

// What it takes to open an engine with a run of 10,000 tasks under way, to show a page
// of it, and to list it: of one that has grown, beside a fixed one.
func BenchmarkGrownRun(b *testing.B) {
	for _, c := range []struct {
		name string
		do   func(x *bench) error
	}{
		{"open", nil},
		{"first-page", func(x *bench) error { return shown(x, "") }},
		{"last-page", func(x *bench) error { return shown(x, "9900") }},
		{"list", func(x *bench) error {
			_, err := x.o.List(context.Background(), ann, api.RunFilter{Limit: 100})
			return err
		}},
		{"watch", func(x *bench) error {
			_, err := x.o.Events(context.Background(), ann, "r", "", 0)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2]time.Duration
			var dirs [2]string
			var of [2]*bench
			for i, p := range []api.Plan{mapped("r", api.MaxPlanTasks-1, false), mapped("r", api.MaxForEach, true)} {
				dirs[i] = filepath.Join(b.TempDir(), "state")
				of[i] = newBench(b, dirs[i], 64)
				of[i].underWay(b, p, 65)
			}
			defer func() { of[0].close(); of[1].close() }()
			rounds := 0
			for b.Loop() {
				rounds++
				for i := range of {
					if c.do == nil {
						of[i].close()
						runtime.GC()
					}
					from := time.Now()
					if c.do == nil {
						of[i] = openBench(b, dirs[i], 64, of[i].echo)
					} else if err := c.do(of[i]); err != nil {
						b.Fatal(err)
					}
					took[i] += time.Since(from)
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "x-fixed")
			b.ReportMetric(took[1].Seconds()*1000/float64(rounds), "ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func shown(x *bench, after string) error {
	r, err := x.o.Describe(context.Background(), ann, "r", after, 100)
	if err == nil && len(r.Tasks) < 99 {
		err = fmt.Errorf("%d tasks", len(r.Tasks))
	}
	return err
}

// Another principal submits one task while 10,000 of one are ready, on one slot: how many
// of those start first, by the log, and how long it waits, beside the same on an idle
// engine. The run is in the log before the engine has it, so that one may start meanwhile.
func BenchmarkFairness(b *testing.B) {
	x := newBench(b, filepath.Join(b.TempDir(), "state"), 1)
	defer x.close()
	var starts, busy, alone []float64
	submit := func(who api.Principal, p api.Plan) {
		if _, err := x.o.Submit(context.Background(), as(who), api.RunRequest{Plan: raw(b, p)[0]}); err != nil {
			b.Fatal(err)
		}
	}
	first := make(chan time.Time, 1)
	x.echo.seen = func(id api.TaskID) {
		if id == "other" {
			first <- time.Now()
		}
	}
	other := func(run api.RunID) float64 {
		from := time.Now()
		submit(root, api.Plan{ID: run, Tasks: []api.PlanTask{{ID: "other", Subagent: work}}})
		return (<-first).Sub(from).Seconds()
	}
	round := func(n int) {
		alone = append(alone, other(api.RunID(fmt.Sprintf("alone-%d", n))))
		<-x.line.settled
		many, one, fired := api.RunID(fmt.Sprintf("many-%d", n)), api.RunID(fmt.Sprintf("one-%d", n)), x.echo.fired.Load()
		submit(ann, fan(many, api.MaxPlanTasks))
		for x.echo.fired.Load() < fired+10 {
			time.Sleep(time.Millisecond)
		}
		busy = append(busy, other(one))
		if _, err := x.o.Cancel(context.Background(), as(ann), many, api.RunCancel{}); err != nil {
			b.Fatal(err)
		}
		<-x.line.settled
		<-x.line.settled
		seq := func(kind record.Kind) uint64 {
			list, err := x.ledger.List(context.Background(), audit.Query{Run: one, Kind: kind, Limit: 1})
			if err != nil || len(list) != 1 {
				b.Fatalf("%v %v", list, err)
			}
			return list[0].Seq
		}
		between, err := x.ledger.List(context.Background(), audit.Query{From: seq(record.KindRunSubmitted), Before: seq(record.KindTaskStarted), Run: many, Kind: record.KindTaskStarted, Limit: 1000})
		if err != nil {
			b.Fatal(err)
		}
		starts = append(starts, float64(len(between)))
	}
	n := 0
	for b.Loop() {
		round(n)
		n++
	}
	for ; n < 5; n++ {
		round(n)
	}
	b.ReportMetric(median(starts), "starts-before")
	b.ReportMetric(slices.Max(starts), "most-starts-before")
	b.ReportMetric(median(busy)*1000, "ms")
	b.ReportMetric(median(alone)*1000, "idle-ms")
	b.ReportMetric(0, "ns/op")
}
