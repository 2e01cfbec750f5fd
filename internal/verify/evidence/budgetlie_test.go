package evidence

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// purse says in each entry of a story what the attempt reserves and settles, as the
// service does, and changes one entry.
type purse struct {
	s     *story
	grant *api.Budget // of grant:g0
	plan  *api.Budget
	of    map[string]*account
	lie   func(e *record.Entry)
}

// budgeting is a purse of s whose catalog has a model, and a grant with this budget.
func (s *story) budgeting(grant, plan *api.Budget, lie func(e *record.Entry)) *purse {
	p := &purse{s: s, grant: grant, plan: plan, of: map[string]*account{}, lie: lie}
	s.reach = reaching
	s.editCatalog = func(docs map[api.Ref]any) {
		withModel(docs)
		g := docs["grant/g0"].(api.Grant) //nolint:forcetypeassert // publish made it
		g.Budget = p.grant
		docs["grant/g0"] = g
	}
	s.editResult = func(r *record.Result) {
		r.Summary.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 100, Output: 5}, Requests: 1, Turns: 1}
	}
	s.publish("local:ann")
	s.editEntry = p.fill
	return p
}

func (p *purse) fill(_ uint64, e *record.Entry) {
	key := fmt.Sprintf("%s/%d", e.Dispatch, e.Attempt)
	switch d := e.Detail.(type) {
	case record.DispatchRequest:
		d.Budgets = p.reserve(p.s.manifests[key])
		e.Detail = d
	case record.AnswerRequest:
		d.Budgets = p.reserve(p.s.manifests[key])
		e.Detail = d
	case record.DispatchEnd:
		d.Budgets = p.settle(key, e.Kind != record.KindDispatchFailed)
		e.Detail = d
	}
	if p.lie != nil {
		p.lie(e)
	}
}

func (p *purse) reserve(m *record.Manifest) (list []record.BudgetClaim) {
	claim := func(name string, b *api.Budget) {
		if b == nil {
			return
		}
		c := record.BudgetClaim{Budget: name, Limit: b.Limit(), Period: record.BudgetPeriod(b.Per, m.Run, m.ID, m.NotBefore), Reserved: record.MostSpend(m, "usd")}
		a := p.account(c.Budget + c.Period)
		c.Before = a.spent.Plus(a.held)
		a.held = a.held.Plus(c.Reserved)
		list = append(list, c)
	}
	claim("grant:g0", p.grant)
	if m.Run != "" {
		claim(record.PlanBudget, p.plan)
	}
	return list
}

func (p *purse) account(key string) *account {
	if p.of[key] == nil {
		p.of[key] = &account{}
	}
	return p.of[key]
}

func (p *purse) settle(key string, left bool) (list []record.BudgetSettlement) {
	i := slices.IndexFunc(p.s.entries, func(e record.Entry) bool {
		return (e.Kind == record.KindDispatchAccepted || e.Kind == record.KindDispatchAnswered) && fmt.Sprintf("%s/%d", e.Dispatch, e.Attempt) == key
	})
	for _, c := range claimsOf(&entry{Entry: p.s.entries[i]}) {
		var sum *api.ResultSummary
		if left {
			sum = &p.s.results[key].Summary
		}
		x := record.BudgetSettlement{Budget: c.Budget, Period: c.Period, Spent: record.SettledSpend(c.Reserved, true, sum, 0)}
		a := p.account(c.Budget + c.Period)
		a.held, a.spent = a.held.Minus(c.Reserved), a.spent.Plus(x.Spent)
		list = append(list, x)
	}
	return list
}

// perRun is a budget of a plan that lets two attempts begin, or three where earlier ones
// used less than their limits.
func perRun() *api.Budget { return &api.Budget{Tokens: 2200, Dispatches: 3, Per: api.PerRun} }

const budgetOfPlan = `,"budget":{"tokens":2200,"dispatches":3}`

// budgetTale is a run of three dispatches, one after the other: the second
// asks a question, the third leaves no result. lie changes one entry.
func budgetTale(row report.RowName, lie func(s *story, e *record.Entry)) tale {
	return budgetTaleOf(row, perRun(), perRun(), lie)
}

func budgetTaleOf(row report.RowName, grant, inPlan *api.Budget, lie func(s *story, e *record.Entry)) tale {
	doc := plannedAs(budgetOfPlan, "a", `b ,"depends_on":["a"]`, `c ,"depends_on":["b"]`)
	return tale{row, "", func(s *story, lies bool) {
		var change func(e *record.Entry)
		if lies {
			change = func(e *record.Entry) { lie(s, e) }
		}
		s.budgeting(grant, inPlan, change)
		s.submit(doc, "", 0)
		a, b, c := of("a", 1), of("b", 2), of("c", 4)
		s.fire(a, 1)
		s.done(a, 1)
		s.fire(b, 1)
		s.asks(b)
		s.act(record.KindTaskAnswered, "local:ann", "b", record.RunAction{})
		b = s.resumes(b, 3)
		s.admit(b)
		s.start(b)
		s.done(b, 1)
		s.fire(c, 1)
		s.failed(c, 1, "lost")
		s.settle("r1", record.RunEnd{State: "failed", Done: 2, Failed: 1})
	}}
}

// reserving changes the claims of the entry that admits an attempt.
func reserving(id string, attempt int, change func(list []record.BudgetClaim) []record.BudgetClaim) func(s *story, e *record.Entry) {
	return func(_ *story, e *record.Entry) {
		if string(e.Dispatch) != id || e.Attempt != attempt {
			return
		}
		switch d := e.Detail.(type) {
		case record.DispatchRequest:
			d.Budgets = change(d.Budgets)
			e.Detail = d
		case record.AnswerRequest:
			d.Budgets = change(d.Budgets)
			e.Detail = d
		}
	}
}

// settling changes what the end of an attempt says that it spent.
func settling(id string, attempt int, change func(list []record.BudgetSettlement) []record.BudgetSettlement) func(s *story, e *record.Entry) {
	return func(_ *story, e *record.Entry) {
		if d, ok := e.Detail.(record.DispatchEnd); ok && string(e.Dispatch) == id && e.Attempt == attempt {
			d.Budgets = change(slices.Clone(d.Budgets))
			e.Detail = d
		}
	}
}

func claim(i int, change func(c *record.BudgetClaim)) func(list []record.BudgetClaim) []record.BudgetClaim {
	return func(list []record.BudgetClaim) []record.BudgetClaim {
		change(&list[i])
		return list
	}
}

func settlement(i int, change func(x *record.BudgetSettlement)) func(list []record.BudgetSettlement) []record.BudgetSettlement {
	return func(list []record.BudgetSettlement) []record.BudgetSettlement {
		change(&list[i])
		return list
	}
}

func budgetTales() map[string]tale {
	free := func(c *record.BudgetClaim) { c.Before = api.Spend{} }
	return map[string]tale{
		"a start beyond the budget": budgetTale(report.RowAuthorisation, func(s *story, e *record.Entry) {
			if e.Kind == record.KindDispatchStarted && e.Dispatch == "t-a1" { // everything else is stated as it is
				s.editResult = func(r *record.Result) {
					r.Summary.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 2000}, Requests: 1, Turns: 1}
				}
			}
		}),
		"a start that says that less was spent before it":    budgetTale(report.RowAuthorisation, reserving("t-c1", 1, claim(1, free))),
		"a start that says that less of its grant was spent": budgetTale(report.RowAuthorisation, reserving("t-c1", 1, claim(0, free))),
		"a start that says that more was spent before it":    budgetTale(report.RowAuthorisation, reserving("t-b1", 1, claim(1, func(c *record.BudgetClaim) { c.Before.Tokens++ }))),
		"a start that reserves less than its limits":         budgetTale(report.RowAuthorisation, reserving("t-c1", 1, claim(1, func(c *record.BudgetClaim) { c.Reserved.Tokens = 1 }))),
		"a resume that reserves nothing":                     budgetTale(report.RowAuthorisation, reserving("t-b1", 2, func([]record.BudgetClaim) []record.BudgetClaim { return nil })),
		"a start that leaves out the budget of its grant":    budgetTale(report.RowAuthorisation, reserving("t-a1", 1, func(list []record.BudgetClaim) []record.BudgetClaim { return list[1:] })),
		"a start that leaves out the budget of its plan":     budgetTale(report.RowAuthorisation, reserving("t-a1", 1, func(list []record.BudgetClaim) []record.BudgetClaim { return list[:1] })),
		"a larger budget than that of the catalog":           budgetTale(report.RowAuthorisation, reserving("t-a1", 1, claim(0, func(c *record.BudgetClaim) { c.Limit.Tokens = 9000 }))),
		"a larger budget than that of the plan":              budgetTale(report.RowAuthorisation, reserving("t-a1", 1, claim(1, func(c *record.BudgetClaim) { c.Limit.Tokens = 9000 }))),
		"a budget that the catalog does not have": budgetTaleOf(report.RowAuthorisation, nil, perRun(), reserving("t-a1", 1, func(list []record.BudgetClaim) []record.BudgetClaim {
			return append([]record.BudgetClaim{{Budget: "grant:g0", Limit: list[0].Limit, Period: list[0].Period, Reserved: list[0].Reserved}}, list...)
		})),
		"a budget of another run":                                   budgetTale(report.RowAuthorisation, reserving("t-a1", 1, claim(1, func(c *record.BudgetClaim) { c.Period = "run/r2" }))),
		"a budget of another day":                                   budgetTaleOf(report.RowAuthorisation, &api.Budget{Tokens: 9000, Per: api.PerDay}, perRun(), reserving("t-a1", 1, claim(0, func(c *record.BudgetClaim) { c.Period = "2026-11-22" }))),
		"a settlement of less than the broker counted":              budgetTale(report.RowResult, settling("t-a1", 1, settlement(1, func(x *record.BudgetSettlement) { x.Spent.Tokens-- }))),
		"a settlement that is left out":                             budgetTale(report.RowResult, settling("t-a1", 1, func(list []record.BudgetSettlement) []record.BudgetSettlement { return list[:1] })),
		"a settlement of another budget":                            budgetTale(report.RowResult, settling("t-a1", 1, settlement(0, func(x *record.BudgetSettlement) { x.Budget = "grant:g1" }))),
		"a question that settles nothing":                           budgetTale(report.RowResult, settling("t-b1", 1, func([]record.BudgetSettlement) []record.BudgetSettlement { return nil })),
		"a worker that left no result and claims to have used less": budgetTale(report.RowResult, settling("t-c1", 1, settlement(1, func(x *record.BudgetSettlement) { x.Spent.Tokens = 0 }))),
	}
}

// Each run with budgets is written with one lie, which needs the service key, and
// without: the first fails, and in the row for it, the second in none.
//
// proves R-A7, R-O11
func TestEachLieAboutABudgetIsFound(t *testing.T) {
	for name, x := range budgetTales() {
		t.Run(name, func(t *testing.T) {
			for _, lie := range []bool{false, true} {
				s := newStory(t)
				x.tell(s, lie)
				r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
				if want := map[bool]report.Status{false: report.Pass, true: report.Fail}[lie]; r.Failed() != lie || r.Row(x.row).Status != want {
					t.Errorf("lie %t:\n%s", lie, r.Text())
				}
			}
		})
	}
}

// budgets is a run with budgets, and a dispatch with that of its grant alone.
func budgets(s *story) []bundle.Case {
	budgetTale(report.RowAuthorisation, nil).tell(s, false)
	s.whole("d-50")
	return []bundle.Case{{Run: "r1"}, {Dispatch: "t-a1"}, {Dispatch: "d-50"}}
}

// What an attempt reserved is compared with the catalog and the plan that the bundle
// has, also where the story is about one dispatch.
//
// proves R-O11
func TestADispatchIsVerifiedWithItsBudgets(t *testing.T) {
	s := newStory(t)
	for _, c := range budgets(s) {
		b := reread(t, s.bundle(c))
		if r := Verify(b, s.trust(), Options{}); r.Failed() {
			t.Errorf("%+v:\n%s", c, r.Text())
		}
		// The catalog without the budget, under the same name: the digests disagree.
		for d, doc := range b.Documents {
			var g api.Grant
			if canon.DecodeExact(doc, &g) == nil && g.Budget != nil {
				g.Budget = nil
				less, err := canon.Marshal(g)
				s.must(err)
				b.Documents[d] = less
			}
		}
		if r := Verify(b, s.trust(), Options{}); !r.Failed() {
			t.Errorf("%+v passes with a grant without its budget:\n%s", c, r.Text())
		}
	}
}

// uncounted is a run with requests that were not counted.
func uncounted(s *story) []bundle.Case {
	s.runUncounted(false)
	return []bundle.Case{{Run: "r1"}, {Dispatch: "t-a1"}}
}

// runUncounted writes that run. A lie settles what was counted.
func (s *story) runUncounted(lie bool) {
	var change func(e *record.Entry)
	if lie {
		less := settling("t-a1", 1, settlement(1, func(x *record.BudgetSettlement) { x.Spent.Tokens = 105 }))
		change = func(e *record.Entry) { less(s, e) }
	}
	s.budgeting(perRun(), perRun(), change)
	s.editResult = func(r *record.Result) {
		r.Summary.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 100, Output: 5}, Requests: 3, Turns: 1, Uncounted: 2}
	}
	s.submit(plannedAs(budgetOfPlan, "a"), "", 0)
	a := of("a", 1)
	s.fire(a, 1)
	s.done(a, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 1})
	s.editResult = nil
}

// An attempt with a request that was not counted settles its whole reservation. A bundle
// in which the service settles what was counted instead fails, and the report says how
// many requests are uncounted.
//
// proves R-O11, R-P10
func TestAnUncountedRequestSettlesTheWholeReservation(t *testing.T) {
	for _, lie := range []bool{false, true} {
		s := newStory(t)
		s.runUncounted(lie)
		r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
		if want := map[bool]report.Status{false: report.Pass, true: report.Fail}[lie]; r.Failed() != lie || r.Row(report.RowResult).Status != want {
			t.Errorf("lie %t:\n%s", lie, r.Text())
		}
		if text := r.Text(); !strings.Contains(text, "3 requests, 105 tokens, uncounted: 2") {
			t.Errorf("the report does not say what is uncounted:\n%s", text)
		}
	}
}

// The manifest of a run's dispatch has the time of the verify command of its subagent, so
// that the reservation of wall time can be repeated. One without it passes only for a run
// of rules before 5.
//
// proves R-O11
func TestAManifestHasTheTimeOfVerify(t *testing.T) {
	for _, c := range []struct {
		time    api.Duration
		rules   int64
		earlier bool // the operator keys have no principals
		want    report.Status
	}{
		{api.DefaultVerifyTime, 5, false, report.Pass},
		{0, 5, false, report.Fail},
		{1, 5, false, report.Fail},
		{0, 4, false, report.Fail},
		{api.DefaultVerifyTime, 5, true, report.Pass},
		{0, 5, true, report.Fail},
		{0, 4, true, report.Pass},
		{1, 4, true, report.Fail},
	} {
		s := newStory(t)
		s.earlier5 = c.earlier
		s.editCatalog = func(docs map[api.Ref]any) {
			code := docs["subagent/code"].(api.Subagent) //nolint:forcetypeassert // publish made it
			code.Verify = &api.Verify{Command: []string{"true"}}
			docs["subagent/code"] = code
		}
		s.publish("local:ann")
		s.editManifest = func(m *record.Manifest) { m.VerifyTime = c.time }
		s.editEntry = func(_ uint64, e *record.Entry) {
			if d, ok := e.Detail.(record.RunRequest); ok {
				d.Rules = c.rules
				e.Detail = d
			}
		}
		s.submit(plannedAs("", "a"), "", 0)
		a := of("a", 1)
		s.fire(a, 1)
		s.done(a, 1)
		s.settle("r1", record.RunEnd{State: "done", Done: 1})
		if r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{}); r.Row(report.RowProvenance).Status != c.want || r.Failed() != (c.want == report.Fail) {
			t.Errorf("%s under rules %d, earlier %t:\n%s", time.Duration(c.time), c.rules, c.earlier, r.Text())
		}
	}
}

// The manifest of a run's dispatch with a model has the time for outstanding answers. One
// without it passes only for a run of rules before 5, and no manifest has another time.
//
// proves R-O11
func TestAManifestHasTheTimeForOutstandingAnswers(t *testing.T) {
	for _, c := range []struct {
		drain api.Duration
		rules int64
		want  report.Status
	}{{record.DrainTime, 5, report.Pass}, {0, 5, report.Fail}, {0, 4, report.Pass}, {1, 5, report.Fail}, {1, 4, report.Fail}} {
		s := newStory(t)
		s.earlier5 = c.rules < 5
		s.budgeting(perRun(), nil, func(e *record.Entry) {
			if d, ok := e.Detail.(record.RunRequest); ok {
				d.Rules = c.rules
				e.Detail = d
			}
		})
		s.editManifest = func(m *record.Manifest) { m.Drain = c.drain }
		s.submit(plannedAs("", "a"), "", 0)
		a := of("a", 1)
		s.fire(a, 1)
		s.done(a, 1)
		s.settle("r1", record.RunEnd{State: "done", Done: 1})
		if r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{}); r.Row(report.RowProvenance).Status != c.want || r.Failed() != (c.want == report.Fail) {
			t.Errorf("%s under rules %d:\n%s", time.Duration(c.drain), c.rules, r.Text())
		}
	}
}
