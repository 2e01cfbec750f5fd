package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// claimsOf returns what an admitting entry reserves of budgets.
func claimsOf(e *entry) []record.BudgetClaim {
	switch d := e.Detail.(type) {
	case record.DispatchRequest:
		return d.Budgets
	case record.AnswerRequest:
		return d.Budgets
	}
	return nil
}

// budgeted refuses an admission that left out a budget of the grants that allowed it, or
// of the plan of its run, or that reserved something else than its manifest's limits.
func (d *decider) budgeted(e *entry, engine *policy.Engine, m *record.Manifest) error {
	claims := claimsOf(e)
	i := 0
	next := func(name string, b *api.Budget) error {
		if i == len(claims) || claims[i].Budget != name {
			return fmt.Errorf("it reserved nothing of the budget of %s", name)
		}
		c := &claims[i]
		i++
		switch period := record.BudgetPeriod(b.Per, m.Run, m.ID, m.NotBefore); {
		case c.Limit != b.Limit():
			return fmt.Errorf("the budget of %s is not the one that it reserved of", name)
		case c.Period != period:
			return fmt.Errorf("it reserved of the budget of %s for %s, not for %s", name, c.Period, period)
		}
		return nil
	}
	for _, g := range engine.Budgeted(m.Principal, m.Policies) {
		if err := next("grant:"+string(g.Name), g.Budget); err != nil {
			return err
		}
	}
	if r := d.v.replayed[m.Run]; m.Run != "" && r != nil && r.plan != nil && r.plan.Budget != nil {
		b := *r.plan.Budget
		b.Per = api.PerRun
		if err := next(record.PlanBudget, &b); err != nil {
			return err
		}
	} else if i < len(claims) && claims[i].Budget == record.PlanBudget && (r == nil || r.plan == nil) {
		i++ // the bundle is about the dispatch alone
	}
	if i < len(claims) {
		return fmt.Errorf("it reserved of %.80q, which is not a budget of it", claims[i].Budget)
	}
	return d.reserved(claims, m)
}

// reserved refuses claims that are not what the limits of m allow, or that exceed.
func (d *decider) reserved(claims []record.BudgetClaim, m *record.Manifest) error {
	if len(claims) == 0 {
		return nil
	}
	currency := d.v.currencyOf(m)
	for i := range claims {
		c := &claims[i]
		want := record.MostSpend(m, currency)
		if c.Limit.Cost == 0 && c.Reserved.Currency == "" { // other costs of the period are in another currency
			want.Cost, want.Currency = 0, ""
		}
		if why := record.Uncounted(m, c.Limit, currency); why != "" {
			return fmt.Errorf("budget of %s: %s", c.Budget, why)
		}
		if c.Reserved != want {
			return fmt.Errorf("budget of %s: what it reserved is not what its manifest's limits allow", c.Budget)
		}
		if what := c.Reserved.Exceeds(c.Before, c.Limit); what != "" {
			return fmt.Errorf("it began beyond the budget of %s: %s: %s before it and %s for it, of %s", c.Budget, what, c.Before.Of(what), c.Reserved.Of(what), c.Limit.Of(what))
		}
	}
	return nil
}

// currencyOf returns the currency of the prices of m's model.
func (w *world) currencyOf(m *record.Manifest) string {
	if m.Endpoint == nil {
		return ""
	}
	r := w.revisions[m.RevisionDigest]
	if r == nil {
		return "" // the manifest row reports it
	}
	model, err := r.model(m.Endpoint.Name)
	if err != nil {
		return "" // likewise
	}
	return cmp.Or(model.Currency, api.DefaultCurrency)
}

// checkSettled compares what an attempt spent of each budget with what it had reserved and
// what its result says.
func checkSettled(s *scene) verdict {
	got := detail[record.DispatchEnd](s.e).Budgets
	if s.a == nil || s.a.admitted == nil {
		return holds(len(got) == 0)
	}
	if s.e != s.a.end {
		return holds(len(got) == 0) // its question ended before: that end settled it
	}
	claims := claimsOf(s.a.admitted)
	var result *api.ResultSummary
	if s.a.result != nil {
		result = &s.a.result.Summary
	} else if s.e.Refs[record.RefResult] != "" && len(claims) > 0 {
		return agrees // it cannot be read, which dispatchCheck.bindResult reports
	}
	want := make([]record.BudgetSettlement, 0, len(claims))
	for _, c := range claims {
		want = append(want, record.BudgetSettlement{Budget: c.Budget, Period: c.Period, Spent: record.SettledSpend(c.Reserved, s.a.started != nil, result, detail[record.DispatchEnd](s.e).Millis)})
	}
	return holds(slices.Equal(got, want))
}

// account is what the entries at hand say is spent and reserved of one budget.
type account struct{ spent, held api.Spend }

// accounts adds up what attempts reserved and spent, in the order of the log, and
// refuses one that says of less before it. All attempts of a run are in the evidence of
// the run, so the sum is exact; those of a day need not be.
func accounts(w *world, row *report.Finding) {
	all := map[string]*account{}
	of := func(e *entry, name, period string) *account {
		key := fmt.Sprintf("%q %q %q", name, w.ownerOf(e), period)
		if all[key] == nil {
			all[key] = &account{}
		}
		return all[key]
	}
	for i := range w.entries {
		e := &w.entries[i]
		if !e.ok || e.Dispatch == "" {
			continue
		}
		for _, c := range claimsOf(e) {
			a := of(e, c.Budget, c.Period)
			r := w.replayed[api.RunID(e.Run)]
			exact := e.Run != "" && r != nil && r.plan != nil && c.Period == "run/"+e.Run
			known := a.spent.Plus(a.held)
			for _, name := range api.SpendNames() {
				if n, said := known.Member(name), c.Before.Member(name); c.Limit.Member(name) > 0 && (said < n || exact && said != n) {
					row.Fail("entry #%d: it says that %s %s of the budget of %s were spent or reserved before it, but the log says %s", e.seq, c.Before.Of(name), name, c.Budget, known.Of(name))
				}
			}
			a.held = a.held.Plus(c.Reserved)
		}
		if d, ok := e.Detail.(record.DispatchEnd); ok {
			settle(w, e, d, of)
		}
	}
}

func settle(w *world, e *entry, d record.DispatchEnd, of func(*entry, string, string) *account) {
	h := w.dispatches[e.Dispatch]
	if h == nil {
		return
	}
	at := h.at(e.seq)
	if at == nil || at.admitted == nil || e != at.end {
		return
	}
	claims := claimsOf(at.admitted)
	for _, s := range d.Budgets {
		i := slices.IndexFunc(claims, func(c record.BudgetClaim) bool { return c.Budget == s.Budget })
		if i < 0 {
			continue // checkSettled reports it
		}
		a := of(e, s.Budget, s.Period)
		a.held, a.spent = a.held.Minus(claims[i].Reserved), a.spent.Plus(s.Spent)
	}
}

// ownerOf returns the principal of an entry's dispatch.
func (w *world) ownerOf(e *entry) api.Principal {
	if h := w.dispatches[e.Dispatch]; h != nil && len(h.attempts) > 0 && h.attempts[0].manifest != nil {
		return h.attempts[0].manifest.Principal
	}
	return ""
}
