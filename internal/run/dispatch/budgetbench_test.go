package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const budgetManifest = `version: 1
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: observe, target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit], targets: [local], ceiling: observe}
  - {principal: "local:bob", subagents: [edit], targets: [local], ceiling: observe, budget: {dispatches: 1000000, wall: 800000h, per: day}}
`

// budgeted are the ways in which an attempt has budgets: none, that of a grant, and that
// of a plan too.
var budgeted = []struct {
	name string
	as   api.Principal
	plan *api.Budget
}{
	{"none", "local:ann", nil},
	{"grant", "local:bob", nil},
	{"grant-and-plan", "local:bob", &api.Budget{Dispatches: 1_000_000, Wall: api.Duration(800000 * time.Hour)}},
}

// newSpendGate returns a service whose dispatches are admitted and then fail, since
// there is no worker.
func newSpendGate(tb testing.TB) gate {
	tb.Helper()
	g := newCatalogGate(tb, budgetManifest)
	g.cfg.Executor.Launcher = program(g.mark)
	return g
}

// spend admits a dispatch and waits for its end. It returns how many commits that took.
func (g gate) spend(tb testing.TB, way, n int) int64 {
	tb.Helper()
	before := g.commits.Load()
	p, err := g.cfg.InForce.Current(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	of := budgeted[way]
	d, err := g.SubmitTask(tb.Context(), Caller{Principal: of.as, Ceiling: api.Irreversible}, TaskRequest{
		Request: api.DispatchRequest{Subagent: "edit", DispatchID: api.DispatchID(fmt.Sprintf("d-%s-%d", of.name, n))},
		Run:     api.RunID("r-" + of.name), Task: api.TaskID(fmt.Sprintf("t-%d", n)), Revision: p.Revision.Digest(), Fence: uint64(n) + 1, Budget: of.plan, //nolint:gosec // G115: counts up
	})
	if err != nil {
		tb.Fatal(err)
	}
	g.work.Wait()
	if d, ok, err := g.Get(tb.Context(), d.ID); err != nil || !ok || d.State != api.EventFailed {
		tb.Fatalf("%+v %v", d, err)
	}
	return g.commits.Load() - before
}

// What a budget reserves and settles is in the commits that begin and end an attempt.
//
// proves R-O11
func TestABudgetAddsNoCommit(t *testing.T) {
	g := newSpendGate(t)
	for n := range 3 {
		for way := range budgeted[1:] {
			if with, without := g.spend(t, way+1, n), g.spend(t, 0, 2*n+way); with != without || with == 0 {
				t.Errorf("%d commits with a budget (%s), %d without", with, budgeted[way+1].name, without)
			}
		}
	}
	list, err := g.Budgets(t.Context(), "local:bob", api.BudgetFilter{})
	if err != nil || !slices.ContainsFunc(list, func(b api.BudgetStatus) bool { return b.Spent.Dispatches == 6 }) {
		t.Errorf("the control: the budget counted nothing: %+v %v", list, err)
	}
}

// Attempts that are admitted and end at once, without a budget and with them, in turn;
// medians. Processor time is the mean.
func BenchmarkBudget(b *testing.B) {
	g := newSpendGate(b)
	took := make([][]time.Duration, len(budgeted))
	var used [3]time.Duration
	var commits [3]int64
	n := 0
	for b.Loop() {
		for way := range budgeted {
			cpu, from := processorTime(b), time.Now()
			commits[way] += g.spend(b, way, n)
			took[way] = append(took[way], time.Since(from))
			used[way] += processorTime(b) - cpu
		}
		n++
	}
	var p50 [3]float64
	for way, list := range took {
		slices.Sort(list)
		p50[way] = float64(list[len(list)/2].Microseconds())
	}
	for way, of := range budgeted {
		b.ReportMetric(float64(commits[way])/float64(n), of.name+"-commits")
		b.ReportMetric(p50[way], of.name+"-p50-µs")
		b.ReportMetric(float64(used[way].Microseconds())/float64(n), of.name+"-cpu-µs")
		if way > 0 {
			b.ReportMetric(p50[way]/p50[0], of.name+"-x-none")
		}
	}
	b.ReportMetric(0, "ns/op")
}
