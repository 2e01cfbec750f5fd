package evidence

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

func budgetClaim(before, limit int64) record.BudgetClaim {
	return record.BudgetClaim{
		Before: api.Spend{Dispatches: before}, Budget: record.PlanBudget, Limit: api.Spend{Dispatches: limit}, Period: "run/r1",
		Reserved: api.Spend{Dispatches: 1, Millis: 60_000},
	}
}

// A start beyond a budget is refused, also where the entry says less than its manifest
// allows. The honest reservation is beside each.
//
// proves R-O11
func TestAStartBeyondTheBudgetIsRefused(t *testing.T) {
	d := &decider{v: &verification{world: &world{}}}
	m := &record.Manifest{ID: "d-one", Run: "r1", Attempt: 1, Subagent: "s", Target: "t", Limits: api.Limits{Timeout: api.Duration(time.Minute)}}
	if err := d.reserved([]record.BudgetClaim{budgetClaim(1, 2)}, m); err != nil {
		t.Errorf("control: %v", err)
	}
	free := budgetClaim(1, 2)
	free.Reserved.Dispatches = 0
	for want, c := range map[string]record.BudgetClaim{"beyond the budget": budgetClaim(2, 2), "manifest's limits allow": free} {
		if err := d.reserved([]record.BudgetClaim{c}, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	m.Model = "m/l"
	c := budgetClaim(0, 2)
	c.Limit.Tokens = 5
	if err := d.reserved([]record.BudgetClaim{c}, m); err == nil {
		t.Error("a budget of tokens without a count")
	}
}

// An entry cannot say that less was spent before it than the entries before it say.
//
// proves R-O11
func TestWhatWasSpentBeforeIsAddedUp(t *testing.T) {
	for _, c := range []struct {
		second int64 // what the second dispatch says was there before it
		fails  bool
	}{{1, false}, {0, true}} {
		v := &verification{world: &world{dispatches: map[api.DispatchID]*history{}, replayed: map[api.RunID]*replay{}}}
		for i, before := range []int64{0, c.second} {
			id := api.DispatchID([]string{"d-one", "d-two"}[i])
			e := entry{Entry: record.Entry{Kind: record.KindDispatchAccepted, Run: "r1", Dispatch: id, Detail: record.DispatchRequest{Budgets: []record.BudgetClaim{budgetClaim(before, 5)}}}, seq: uint64(i), ok: true}
			v.entries = append(v.entries, e)
		}
		row := &report.Finding{}
		accounts(v.world, row)
		if row.Failed() != c.fails {
			t.Errorf("before %d: %s", c.second, row.Row(report.RowAuthorisation).Why)
		}
	}
}
