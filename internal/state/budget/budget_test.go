package budget

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

func open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "state"), Migrations: []store.Migration{Migration()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func manifest(id string) *record.Manifest {
	return &record.Manifest{ID: api.DispatchID(id), Attempt: 1, Principal: "agent:a", Subagent: "edit", Target: "local", Limits: api.Limits{Timeout: api.Duration(time.Minute)}}
}

func grant(b api.Budget) []api.Grant {
	return []api.Grant{{Name: "night", Principal: "agent:a", Budget: &b}}
}

// reserve is one admission.
func reserve(ctx context.Context, s *store.Store, m *record.Manifest, b api.Budget, at time.Time) (list []record.BudgetClaim, err error) {
	err = s.Update(ctx, func(tx *store.Tx) error {
		list, err = Reserve(tx, m, Claims(grant(b), nil, m, at), "usd", nil, at)
		return err
	})
	return list, err
}

// 10,000 submits race a budget of 100: exactly 100 begin. The control decides by a
// balance that was read before the transaction, as a check outside it would.
//
// proves R-O11
func TestExactlyAsManyBeginAsTheBudgetAllows(t *testing.T) {
	const submits, limit, callers = 10_000, 100, 64
	race := func(admit func(*store.Store, *record.Manifest) error) int64 {
		s := open(t)
		var begun, next atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for n := next.Add(1); n <= submits; n = next.Add(1) {
					err := admit(s, manifest(fmt.Sprintf("d-%05d", n)))
					var refused *Refusal
					switch {
					case err == nil:
						begun.Add(1)
					case !errors.As(err, &refused):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return begun.Load()
	}
	b := api.Budget{Dispatches: limit, Per: api.PerDay}
	if n := race(func(s *store.Store, m *record.Manifest) error {
		_, err := reserve(t.Context(), s, m, b, noon())
		return err
	}); n != limit {
		t.Errorf("%d began, want %d", n, limit)
	}
	var read sync.WaitGroup // all callers have read the balance before one changes it
	read.Add(callers)
	var first atomic.Int64
	control := race(func(s *store.Store, m *record.Manifest) error {
		var seen balance
		if err := s.Read(t.Context(), func(v *store.View) (err error) {
			seen, err = load(v, "grant:night", m.Principal, "2026-03-04")
			return err
		}); err != nil {
			return err
		}
		if seen.held.Dispatches >= 1 {
			return &Refusal{Reason: "spent"}
		}
		if first.Add(1) <= callers {
			read.Done()
			read.Wait()
		}
		_, err := reserve(t.Context(), s, m, api.Budget{Dispatches: submits, Per: api.PerDay}, noon())
		return err
	})
	if control <= 1 {
		t.Errorf("control: a check outside the transaction let %d pass a budget of 1", control)
	}
}

// What an attempt did not use is free again, once; a second end settles nothing.
//
// proves R-O11
func TestAnEndSettlesOnce(t *testing.T) {
	s := open(t)
	m := manifest("d-one")
	m.Model, m.Endpoint, m.Limits.Tokens = "m/l", &api.ModelUse{Name: "m"}, 600
	b := api.Budget{Tokens: 1000, Per: api.PerDay}
	if _, err := reserve(t.Context(), s, m, b, noon()); err != nil {
		t.Fatal(err)
	}
	second := *m
	second.ID = "d-two"
	_, err := reserve(t.Context(), s, &second, b, noon())
	for _, want := range []string{`grant "night"`, "tokens", "0 of 1000 spent", "600 reserved", "400 left", "may use 600", "new again at 2026-03-05T00:00:00Z", "budget.tokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %q in it", err, want)
		}
	}
	used := &api.ResultSummary{Usage: api.Usage{Model: &api.ModelUsage{Tokens: api.Tokens{Input: 100, Output: 20}}}}
	for range 2 {
		if err := s.Update(t.Context(), func(tx *store.Tx) error {
			held, err := Held(tx, "d-one", 1)
			if err != nil {
				return err
			}
			return Settle(tx, "d-one", 1, Settlements(held, true, used, 5000))
		}); err != nil {
			t.Fatal(err)
		}
	}
	var list []api.BudgetStatus
	if err := s.Read(t.Context(), func(v *store.View) (err error) {
		list, err = List(v, grant(b), api.BudgetFilter{}, noon())
		return err
	}); err != nil || len(list) != 1 || list[0].Spent.Tokens != 120 || list[0].Spent.Millis != 5000 || list[0].Reserved.Tokens != 0 || list[0].Left.Tokens != 880 {
		t.Errorf("%v %+v", err, list)
	}
	if claims, err := reserve(t.Context(), s, &second, b, noon()); err != nil || claims[0].Before.Tokens != 120 {
		t.Errorf("%v %+v", err, claims)
	}
}

// What is left is less what was spent, and less what is reserved, of the cost, too.
//
// proves R-O11
func TestAListAddsUpCosts(t *testing.T) {
	s := open(t)
	m := manifest("d-one")
	m.Model, m.Endpoint, m.Limits.Cost = "m/l", &api.ModelUse{Name: "m"}, 600
	second := *m
	second.ID = "d-two"
	b := api.Budget{Cost: api.Money{Amount: 1000, Currency: "usd"}, Per: api.PerDay}
	if _, err := reserve(t.Context(), s, m, b, noon()); err != nil {
		t.Fatal(err)
	}
	used := &api.ResultSummary{Usage: api.Usage{Model: &api.ModelUsage{Cost: 100, Currency: "usd"}}}
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		held, err := Held(tx, "d-one", 1)
		if err != nil {
			return err
		}
		return Settle(tx, "d-one", 1, Settlements(held, true, used, 5000))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := reserve(t.Context(), s, &second, b, noon()); err != nil {
		t.Fatal(err)
	}
	var list []api.BudgetStatus
	if err := s.Read(t.Context(), func(v *store.View) (err error) {
		list, err = List(v, grant(b), api.BudgetFilter{}, noon())
		return err
	}); err != nil || len(list) != 1 || list[0].Spent.Cost != 100 || list[0].Reserved.Cost != 600 || list[0].Reserved.Currency != "usd" || list[0].Left.Cost != 300 {
		t.Errorf("%v %+v", err, list)
	}
}

// Without a count no attempt begins, and none that left no result is free.
//
// proves R-O11
func TestWhatIsNotCountedFailsClosed(t *testing.T) {
	m := manifest("d-one")
	m.Model, m.Endpoint = "m/l", &api.ModelUse{Name: "m"}
	for want, b := range map[string]api.Budget{
		"set limits.tokens": {Tokens: 10, Per: api.PerDay},
		"set limits.cost":   {Cost: api.Money{Amount: 1, Currency: "usd"}, Per: api.PerDay},
	} {
		if _, err := reserve(t.Context(), open(t), m, b, noon()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %q", err, want)
		}
	}
	m.Limits.Cost = 1
	if _, err := reserve(t.Context(), open(t), m, api.Budget{Cost: api.Money{Amount: 5, Currency: "eur"}, Per: api.PerDay}, noon()); err == nil || !strings.Contains(err.Error(), "prices of model") {
		t.Errorf("another currency: %v", err)
	}
	if _, err := reserve(t.Context(), open(t), m, api.Budget{Cost: api.Money{Amount: 5, Currency: "usd"}, Per: api.PerDay}, noon()); err != nil { // control
		t.Error(err)
	}
	m.Limits.Timeout = api.Duration(time.Hour)
	for _, want := range []string{"wall: this attempt may use 1h0m0s, more than the whole budget of 30m0s, so it never begins", `lower limits.timeout of subagent "edit"`, `raise budget.wall of grant "night"`} {
		if _, err := reserve(t.Context(), open(t), m, api.Budget{Wall: api.Duration(30 * time.Minute), Per: api.PerDay}, noon()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refused with %v, want %q", err, want)
		}
	}
	unmetered := manifest("d-two")
	unmetered.Model = "some words"
	if _, err := reserve(t.Context(), open(t), unmetered, api.Budget{Tokens: 10, Per: api.PerDay}, noon()); err == nil {
		t.Error("a model that nothing counts began")
	}
	held := api.Spend{Dispatches: 1, Tokens: 600, Millis: 60_000}
	if s := record.SettledSpend(held, true, nil, 90_000); s != held {
		t.Errorf("an attempt that left no result settles %+v", s)
	}
	if s := record.SettledSpend(held, false, nil, 10); s.Tokens != 0 || s.Millis != 10 {
		t.Errorf("an attempt that never started settles %+v", s)
	}
	held.Cost, held.Currency = 50, "usd"
	for uncounted, want := range map[int64]api.Spend{0: {Dispatches: 1, Tokens: 30, Cost: 70, Currency: "usd", Millis: 10}, 1: {Dispatches: 1, Tokens: 600, Cost: 70, Currency: "usd", Millis: 10}} {
		used := &api.ResultSummary{}
		used.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 30}, Cost: 70, Currency: "usd", Uncounted: uncounted}
		if s := record.SettledSpend(held, true, used, 10); s != want {
			t.Errorf("an attempt with %d uncounted requests settles %+v, want %+v", uncounted, s, want)
		}
	}
}

// A day ends at midnight UTC, and a run has one budget on all days.
func TestPeriods(t *testing.T) {
	s := open(t)
	b := api.Budget{Dispatches: 1, Per: api.PerDay}
	zone := time.FixedZone("east", 9*3600)
	for id, at := range map[string]time.Time{"d-1": time.Date(2026, 3, 5, 8, 59, 0, 0, zone), "d-2": time.Date(2026, 3, 5, 9, 0, 0, 0, zone)} {
		if _, err := reserve(t.Context(), s, manifest(id), b, at); err != nil {
			t.Error(err)
		}
	}
	if _, err := reserve(t.Context(), s, manifest("d-3"), b, time.Date(2026, 3, 5, 23, 0, 0, 0, time.UTC)); err == nil {
		t.Error("two on one day")
	}
	b.Per = api.PerRun
	for _, c := range []struct {
		id, run string
		ok      bool
	}{{"d-4", "r1", true}, {"d-5", "r1", false}, {"d-6", "r2", true}, {"d-7", "", true}, {"d-8", "", true}} {
		m := manifest(c.id)
		m.Run = api.RunID(c.run)
		if _, err := reserve(t.Context(), s, m, b, noon().AddDate(0, 0, len(c.id))); (err == nil) != c.ok {
			t.Errorf("%s of run %q: %v", c.id, c.run, err)
		}
	}
	// The balances of days long past are removed when a day begins.
	if _, err := reserve(t.Context(), s, manifest("d-9"), api.Budget{Dispatches: 1, Per: api.PerDay}, noon().AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), func(v *store.View) error {
		var past int
		err := v.Get("SELECT count(*) FROM budget_balance WHERE period LIKE '2026-%'", nil, &past)
		if past != 2 { // they are still reserved
			t.Errorf("%d balances of the past year, want 2", past)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// A budget of wall time reserves the time of the verify command with that of the agent.
// The control has no verify command.
//
// proves R-O11
func TestWallReservesTheTimeOfVerify(t *testing.T) {
	for verify, want := range map[time.Duration]int{0: 9, 2 * time.Minute: 3, 8 * time.Minute: 1} {
		s, begun := open(t), 0
		for i := range 10 {
			m := manifest(fmt.Sprintf("d-%d", i))
			m.VerifyTime = api.Duration(verify)
			list, err := reserve(t.Context(), s, m, api.Budget{Wall: api.Duration(9 * time.Minute), Per: api.PerDay}, noon())
			if err == nil {
				begun++
				if most := (time.Minute + verify).Milliseconds(); list[0].Reserved.Millis != most {
					t.Errorf("with %s of verify it reserves %d ms, want %d", verify, list[0].Reserved.Millis, most)
				}
			}
		}
		if begun != want {
			t.Errorf("with %s of verify %d begin, want %d", verify, begun, want)
		}
	}
}

// A budget of wall time reserves the wait for outstanding answers of a model. The control
// is an older manifest.
//
// proves R-O11
func TestWallReservesTheWaitForOutstandingAnswers(t *testing.T) {
	for _, drain := range []api.Duration{0, record.DrainOf(&api.ModelUse{})} {
		m := manifest("d-one")
		m.Drain = drain
		if got, want := record.MostSpend(m, "usd").Millis, (time.Minute + time.Duration(drain)).Milliseconds(); got != want {
			t.Errorf("with %s it reserves %d ms, want %d", time.Duration(drain), got, want)
		}
	}
	if record.DrainOf(nil) != 0 || record.DrainOf(&api.ModelUse{}) != record.DrainTime {
		t.Error("only an attempt with a model waits")
	}
}

// What denies an attempt, or makes it wait, says which part of its wall time is the wait
// for outstanding answers. The control is an attempt without a model.
func TestAFullWallBudgetNamesTheWaitForOutstandingAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		drain api.Duration
		wall  api.Duration
		waits bool
		want  string
	}{
		{"more than the whole budget", record.DrainTime, api.Duration(time.Minute), false, "wall: this attempt may use 1m30s (with 30s for outstanding answers of its model), more than the whole budget of 1m0s"},
		{"others have reserved it", record.DrainTime, api.Duration(2 * time.Minute), true, "30s left; this attempt may use 1m30s (with 30s for outstanding answers of its model); new again"},
		{"without a model", 0, api.Duration(90 * time.Second), true, "30s left; this attempt may use 1m0s; new again"},
	} {
		s, b := open(t), api.Budget{Wall: c.wall, Per: api.PerDay}
		first, second := manifest("d-one"), manifest("d-two")
		first.Drain, second.Drain = c.drain, c.drain
		_, err := reserve(t.Context(), s, first, b, noon())
		if c.waits && err == nil {
			_, err = reserve(t.Context(), s, second, b, noon())
		}
		var refused *Refusal
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.want) || (refused.Waits != "") != c.waits {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}
