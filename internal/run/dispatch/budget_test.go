package dispatch

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// newBudgetGate is a service whose only grant has a budget.
func newBudgetGate(t *testing.T, budget string) gate {
	t.Helper()
	return newCatalogGate(t, strings.Replace(fmt.Sprintf(runManifest, "first", "edit, change"), "ceiling: irreversible}", "ceiling: irreversible, budget: "+budget+"}", 1))
}

var racing = flag.Int("submits", 1_000, "how many submits race a budget in TestSubmitsThatRaceABudget")

// Many submits race a budget of 100 through the admission of the service: exactly 100
// begin, and each other one is denied with the reason. The control for the transaction is
// in package budget.
//
// proves R-O11
func TestSubmitsThatRaceABudget(t *testing.T) {
	const limit, callers = 100, 64
	submits := int64(*racing)
	g := newBudgetGate(t, fmt.Sprintf("{dispatches: %d}", limit))
	var begun, denied, next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for n := next.Add(1); n <= submits; n = next.Add(1) {
				_, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: api.DispatchID(fmt.Sprintf("d-%05d", n))})
				switch {
				case err == nil:
					begun.Add(1)
				case api.CodeOf(err) == api.CodeDenied && strings.Contains(err.Error(), "0 left"):
					denied.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	g.work.Wait()
	if begun.Load() != limit || denied.Load() != submits-limit {
		t.Errorf("%d began and %d were denied of %d", begun.Load(), denied.Load(), submits)
	}
	for kind, want := range map[record.Kind]int{record.KindDispatchAccepted: limit, record.KindDispatchStarted: 0} {
		if list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: kind, Limit: *racing}); err != nil || len(list) != want {
			t.Errorf("%v, %d entries %s, want %d", err, len(list), kind, want)
		}
	}
	list, err := g.Budgets(t.Context(), "local:ann", api.BudgetFilter{})
	if err != nil || len(list) != 1 || list[0].Spent.Dispatches != limit || list[0].Reserved != (api.Spend{}) || list[0].Left.Dispatches != 0 {
		t.Errorf("%v %+v", err, list)
	}
}

// A budget per day is new at midnight UTC, whatever the zone of the clock; an attempt is
// settled on the day of its reservation, and a clock that goes back finds what was spent.
//
// proves R-O11
func TestABudgetIsNewOnTheNextDay(t *testing.T) {
	g := newBudgetGate(t, "{dispatches: 1}")
	var now atomic.Pointer[time.Time]
	set := func(s string) {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		now.Store(&at)
	}
	g.cfg.Now = func() time.Time { return *now.Load() }
	for i, c := range []struct {
		at    string
		fails bool
	}{
		{"2026-03-08T23:59:59Z", false},
		{"2026-03-08T16:00:00-07:59", true},
		{"2026-03-09T00:00:00Z", false},
		{"2026-03-09T09:00:00+09:00", true},
		{"2026-03-08T20:00:00-04:00", true},
		{"2026-03-08T12:00:00Z", true}, // the clock goes back
		{"2026-03-10T08:00:00+09:00", true},
		{"2026-03-10T09:00:00+09:00", false},
	} {
		set(c.at)
		_, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: api.DispatchID(fmt.Sprintf("d-day-%d", i))})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.at, err)
		}
		g.work.Wait()
	}
}
