package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// purse is what the attempts of a desk spend. The product keeps the budgets, in the store
// of the service; the reference adds up what the attempts reserved and used.
type purse struct {
	grants  []api.Grant // that have a budget
	plan    func(api.RunID) *api.Budget
	commit  func(func(*store.Tx) error) error // by the service that lives; an error: nothing is durable
	refused map[api.DispatchID]int            // attempts that did not begin, by the budgets
	waited  map[api.Principal]bool            // whose attempts have waited for what others had reserved
	waiting map[api.DispatchID]*waiter        // attempts that were refused for that
	passed  []*waiter                         // that others passed in the present step
}

// want is what the limits of a subagent let an attempt use, and its model.
type want struct {
	timeout time.Duration
	tokens  int64
	cost    api.Cost
	model   string
	unknown bool // the model is not in the catalog
}

func wants(subagent api.Name) want {
	switch subagent { //nolint:exhaustive // the others are the same
	case work:
		return want{timeout: time.Hour, tokens: 1000, cost: 500_000, model: "m/high"}
	case checker, voter:
		return want{timeout: 10 * time.Minute, tokens: 200, cost: 100_000, model: "m/high"}
	case fixer:
		return want{timeout: 30 * time.Minute, tokens: 1000, model: "m/high"} // its cost has no bound
	case busy:
		return want{timeout: 30 * time.Minute, model: "other", unknown: true}
	}
	return want{timeout: 30 * time.Minute}
}

// bill is what one attempt of a dispatch has reserved, and what it used.
type bill struct {
	attempt int
	at      time.Time
	claims  []claim
	ended   bool
	used    api.Spend // once it has ended
}

// claim is a budget of an attempt, in a period.
type claim struct {
	name   string
	by     api.Principal
	period string
}

// usage is how an attempt uses its model.
type usage struct {
	counted bool // the broker's count is there
	lost    bool // and a request is uncounted
	tokens  int64
	cost    api.Cost
	started bool
}

// owner says whose budgets an attempt spends.
type owner struct {
	id       api.DispatchID
	attempt  int
	by       api.Principal
	run      api.RunID
	subagent api.Name
}

func (o owner) manifest(at time.Time) *record.Manifest {
	w := wants(o.subagent)
	m := &record.Manifest{ID: o.id, Attempt: o.attempt, Principal: o.by, Run: o.run, Subagent: o.subagent, Target: "local", Model: w.model}
	m.Limits = api.Limits{Timeout: api.Duration(w.timeout), Tokens: w.tokens, Cost: w.cost}
	if w.model != "" && !w.unknown {
		m.Endpoint = &api.ModelUse{Name: "m", Level: "high", ID: "x"}
	}
	return m
}

// most is what an attempt may use.
func (o owner) most() api.Spend {
	w := wants(o.subagent)
	s := api.Spend{Millis: w.timeout.Milliseconds()}
	if o.attempt == 1 {
		s.Dispatches = 1
	}
	if !w.unknown {
		s.Tokens, s.Cost = w.tokens, w.cost
	}
	return s
}

// reserve has the product reserve the budgets of an attempt, and compares that with
// the sums of the reference. The caller holds the booking, not the mutex. The bill is
// there if the attempt may begin.
func (k *desk) reserve(o owner, plan *api.Budget, d policy.Decision, at time.Time, fence uint64, behind []string) (*bill, error) {
	if k.purse == nil {
		return &bill{attempt: o.attempt, at: at}, nil
	}
	m := o.manifest(at)
	claims := budget.Claims(k.engine.Budgeted(o.by, d.Policies()), plan, m, at)
	currency := ""
	if m.Endpoint != nil {
		currency = "usd"
	}
	var list []record.BudgetClaim
	err := k.purse.commit(func(tx *store.Tx) (err error) {
		if o.attempt > 1 { // as it was when the run began to spend it
			if plan, err = budget.OfRun(tx, o.run); err != nil {
				return err
			}
			claims = budget.Claims(k.engine.Budgeted(o.by, d.Policies()), plan, m, at)
		}
		list, err = budget.Reserve(tx, m, claims, currency, behind, at)
		return err
	})
	refusal, refused := errors.AsType[*budget.Refusal](err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && !refused {
		return nil, err
	}
	b, why, full := k.admits(o, at)
	if why == "" && k.purse.behind(b, behind) {
		full, why = true, "earlier tasks wait"
	}
	switch {
	case refused && (refusal.Waits != "") != full:
		k.object("dispatch %s attempt %d of %s/%s by %s: refused with %v; by the reference, others have reserved the room: %t", o.id, o.attempt, o.run, o.subagent, o.by, err, full)
	case refused != (why != ""):
		k.object("dispatch %s attempt %d of %s/%s by %s: refused with %v; by the reference: %q", o.id, o.attempt, o.run, o.subagent, o.by, err, why)
	case !refused && len(list) != len(b.claims):
		k.object("dispatch %s attempt %d has reserved %v, want %v", o.id, o.attempt, list, b.claims)
	}
	if refused && full {
		k.purse.waited[o.by] = true
		k.purse.wait(o, fence, refusal.Line, at)
		k.calls["full"]++
		return nil, &dispatch.Reserved{Budget: refusal.Waits, Line: refusal.Line, Behind: refusal.Behind, Reason: refusal.Reason}
	}
	if refused {
		delete(k.purse.waiting, o.id)
		k.purse.refused[o.id] = o.attempt
		k.calls["spent"]++
		return nil, api.Errorf(api.CodeDenied, "%s", refusal.Reason)
	}
	for i, c := range list {
		spent, held := k.balance(b.claims[i])
		if before := spent.Plus(held); c.Before != before || c.Reserved.Dispatches != o.most().Dispatches || c.Reserved.Millis != o.most().Millis || c.Reserved.Tokens != o.most().Tokens || c.Reserved.Cost != o.most().Cost {
			k.object("dispatch %s attempt %d reserves %+v of %s after %+v, want %+v after %+v", o.id, o.attempt, c.Reserved, c.Budget, c.Before, o.most(), before)
		}
	}
	k.purse.pass(o, b, fence, at)
	return b, nil
}

// budgets are those of an attempt, by the reference.
func (k *desk) budgets(o owner, at time.Time) (claims []claim, limits []api.Budget) {
	for _, g := range k.purse.grants {
		if g.Principal != o.by || !slices.Contains(g.Subagents, o.subagent) {
			continue
		}
		period := at.UTC().Format("2006-01-02")
		if g.Budget.Per == api.PerRun {
			period = "run/" + string(o.run)
		}
		claims, limits = append(claims, claim{"grant:" + string(g.Name), o.by, period}), append(limits, *g.Budget)
	}
	if p := k.purse.plan(o.run); p != nil {
		claims, limits = append(claims, claim{"plan", o.by, "run/" + string(o.run)}), append(limits, *p)
	}
	return claims, limits
}

// admits says by the reference whether an attempt may begin, or why not, and whether only
// what others have reserved is in its way. The caller holds the mutex.
func (k *desk) admits(o owner, at time.Time) (b *bill, why string, full bool) {
	claims, limits := k.budgets(o, at)
	w, most := wants(o.subagent), o.most()
	for i, c := range claims {
		spent, held := k.balance(c)
		limit, what, waits := limits[i], "", false
		over := func(name string, bound, spent, held, more int64) {
			switch {
			case bound == 0 || more == 0:
			case spent+more > bound:
				what = name
			case spent+held+more > bound:
				waits = true
			}
		}
		over("dispatches", int64(limit.Dispatches), spent.Dispatches+held.Dispatches, 0, most.Dispatches)
		over("wall", time.Duration(limit.Wall).Milliseconds(), spent.Millis, held.Millis, most.Millis)
		over("tokens", int64(limit.Tokens), spent.Tokens, held.Tokens, most.Tokens)
		over("cost", int64(limit.Cost.Amount), int64(spent.Cost), int64(held.Cost), int64(most.Cost))
		metered := limit.Tokens > 0 || limit.Cost.Amount > 0
		switch {
		case w.unknown && metered:
			what = "nothing counts its model"
		case w.model != "" && (limit.Tokens > 0 && w.tokens == 0 || limit.Cost.Amount > 0 && w.cost == 0):
			what = "nothing bounds its model"
		}
		if what != "" {
			return nil, c.name + ": " + what, false
		}
		if waits {
			full, why = true, c.name+" is reserved"
		}
	}
	if full {
		return nil, why, true
	}
	return &bill{attempt: o.attempt, at: at, claims: claims}, "", false
}

// balance adds up what the attempts under one budget used and may use. The caller holds
// the mutex.
func (k *desk) balance(c claim) (spent, held api.Spend) {
	for _, j := range k.jobs {
		for _, b := range j.bills {
			if !slices.Contains(b.claims, c) {
				continue
			}
			sum, s := &spent, b.used
			if !b.ended {
				sum, s = &held, j.owner(b.attempt).most()
			}
			sum.Dispatches, sum.Millis, sum.Tokens, sum.Cost = sum.Dispatches+s.Dispatches, sum.Millis+s.Millis, sum.Tokens+s.Tokens, sum.Cost+s.Cost
		}
	}
	if spent.Cost > 0 || held.Cost > 0 {
		spent.Currency, held.Currency = "usd", "usd"
	}
	return spent, held
}

func (j *job) owner(attempt int) owner {
	return owner{id: j.order.Request.DispatchID, attempt: attempt, by: j.by, run: j.order.Run, subagent: j.order.Request.Subagent}
}

// settle has the product settle the current attempt of a job that is about to end. An
// error says that the end is not durable. The caller holds the booking.
func (k *desk) settle(j *job) error {
	if k.purse == nil || !j.active() {
		return nil
	}
	b, u, now := j.bills[len(j.bills)-1], j.usage, k.now()
	var result *api.ResultSummary
	if u.counted {
		result = &api.ResultSummary{}
		if w := wants(j.order.Request.Subagent); w.model != "" {
			result.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: u.tokens - u.tokens/3, Output: u.tokens / 3}, Cost: u.cost, Currency: "usd"}
			if u.lost {
				result.Usage.Model.Uncounted = 1
			}
		}
	}
	id, attempt := j.d.ID, b.attempt
	if err := k.purse.commit(func(tx *store.Tx) error {
		held, err := budget.Held(tx, id, attempt)
		if err != nil {
			return err
		}
		return budget.Settle(tx, id, attempt, budget.Settlements(held, u.started, result, max(0, now.Sub(b.at)).Milliseconds()))
	}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most := j.owner(b.attempt).most()
	b.ended, b.used = true, api.Spend{Dispatches: most.Dispatches, Millis: min(most.Millis, now.Sub(b.at).Milliseconds())}
	switch {
	case u.counted && wants(j.order.Request.Subagent).model != "":
		b.used.Tokens, b.used.Cost = u.tokens, u.cost
		if u.lost {
			b.used.Tokens, b.used.Cost = max(u.tokens, most.Tokens), max(u.cost, most.Cost)
		}
	case !u.counted && u.started: // nothing says what it used
		b.used.Tokens, b.used.Cost = most.Tokens, most.Cost
	}
	return nil
}

// drawUsage decides what an attempt will have used.
func drawUsage(rt *rapid.T, j *job) usage {
	most := j.owner(j.d.Attempt).most()
	u := usage{counted: rapid.IntRange(0, 5).Draw(rt, "counted") > 0, lost: rapid.IntRange(0, 7).Draw(rt, "lost") == 0, started: rapid.IntRange(0, 9).Draw(rt, "started") > 0}
	part := rapid.SampledFrom([]int64{0, 3, 10, 10, 11}).Draw(rt, "used") // of ten: the last request may be over the limit
	u.tokens, u.cost = most.Tokens*part/10, most.Cost*api.Cost(part)/10
	return u
}

// drawBudget draws what a grant or a plan allows; nil: all.
func drawBudget(rt *rapid.T, per api.BudgetPeriod) *api.Budget {
	b := &api.Budget{Per: per}
	switch rapid.IntRange(-2, 5).Draw(rt, "budget") {
	case -2, -1, 0:
		return nil
	case 1:
		b.Dispatches = rapid.SampledFrom([]api.Count{2, 8, 12}).Draw(rt, "dispatches")
	case 2:
		b.Wall = rapid.SampledFrom([]api.Duration{api.Duration(40 * time.Minute), api.Duration(6 * time.Hour), api.Duration(10 * time.Hour)}).Draw(rt, "wall")
	case 3:
		b.Tokens = rapid.SampledFrom([]api.Count{999, 5000, 8500}).Draw(rt, "tokens")
	case 4:
		b.Cost = api.Money{Amount: rapid.SampledFrom([]api.Cost{1_000_000, 4_300_000}).Draw(rt, "cost"), Currency: "usd"}
	case 5:
		b.Dispatches, b.Wall, b.Tokens, b.Cost = 8, api.Duration(7*time.Hour), 7000, api.Money{Amount: 3_500_000, Currency: "usd"}
	}
	return b
}

// withBudgets gives the grants of a world budgets, and has its attempts spend them.
func (m *machine) withBudgets(rt *rapid.T) {
	grants := deskGrants()
	grants = append(grants, api.Grant{Name: "more-of-ben", Principal: ben, Targets: []api.Name{"local"}, Ceiling: api.Reversible, Subagents: []api.Name{work, checker}})
	for i, per := range []api.BudgetPeriod{api.PerDay, api.PerRun, api.PerDay, ""} {
		grants[i].Budget = drawBudget(rt, per)
	}
	m.spendBy(grants)
}

// spendBy has the attempts of a world spend the budgets of grants.
func (w *world) spendBy(grants []api.Grant) {
	engine, err := deskEngine(grants)
	w.must(err)
	p := &purse{refused: map[api.DispatchID]int{}, waited: map[api.Principal]bool{}, waiting: map[api.DispatchID]*waiter{}, plan: w.log.budgetOf}
	for _, g := range grants {
		if g.Budget != nil {
			p.grants = append(p.grants, g)
		}
	}
	slices.SortFunc(p.grants, func(a, b api.Grant) int { return cmpString(string(a.Name), string(b.Name)) })
	p.commit = func(fn func(*store.Tx) error) error {
		return w.store.Update(context.Background(), func(tx *store.Tx) error {
			if w.dead() {
				return errKilled
			}
			return fn(tx)
		})
	}
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	w.desk.engine, w.desk.purse = engine, p
}

// budgetOf is the budget of the plan of a run that was offered under its id. As locks is,
// it may be asked before the log was read.
func (m *replay) budgetOf(id api.RunID) *api.Budget {
	if p := m.planOf(id); p != nil {
		return p.Budget
	}
	return nil
}

// spent compares the balances of all budgets with the sums of the reference, and looks at
// who was refused.
func (m *machine) spent() (wrong []string) {
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var list []api.BudgetStatus
	held := map[api.DispatchID]map[int]int{} // how many budgets an attempt has reserved
	m.must(m.store.Read(context.Background(), func(v *store.View) (err error) {
		if list, err = budget.List(v, nil, api.BudgetFilter{All: true}, m.config.Now()); err != nil {
			return err
		}
		return v.Each("SELECT dispatch, attempt FROM budget_hold", nil, func(scan store.Scan) error {
			var id api.DispatchID
			var attempt int
			err := scan(&id, &attempt)
			if held[id] == nil {
				held[id] = map[int]int{}
			}
			held[id][attempt]++
			return err
		})
	}))
	m.desk.mu.Lock()
	defer m.desk.mu.Unlock()
	for id, attempts := range held {
		for n := range attempts {
			if j := m.desk.jobs[id]; j == nil || !j.active() || j.d.Attempt != n {
				object("attempt %d of dispatch %s has reserved something and does not run", n, id)
			}
		}
	}
	claims := map[claim]bool{}
	for id, j := range m.desk.jobs {
		for _, b := range j.bills {
			for _, c := range b.claims {
				claims[c] = true
			}
			if !b.ended && held[id][b.attempt] != len(b.claims) {
				object("attempt %d of dispatch %s runs, has reserved %d budgets and wants %v", b.attempt, id, held[id][b.attempt], b.claims)
			}
		}
	}
	for _, s := range list {
		c := claim{"plan", s.Principal, s.Period}
		if s.Grant != "" {
			c.name = "grant:" + string(s.Grant)
		}
		if !claims[c] {
			object("nothing has spent %v and it is %+v", c, s)
			continue
		}
		delete(claims, c)
		spent, held := m.desk.balance(c)
		limit := m.limit(c)
		left := api.Spend{
			Currency: limit.Cost.Currency, Dispatches: max(0, int64(limit.Dispatches)-spent.Dispatches-held.Dispatches), Tokens: max(0, int64(limit.Tokens)-spent.Tokens-held.Tokens),
			Millis: max(0, time.Duration(limit.Wall).Milliseconds()-spent.Millis-held.Millis), Cost: max(0, limit.Cost.Amount-spent.Cost-held.Cost),
		}
		if s.Spent != spent || s.Reserved != held || s.Left != left || s.Budget != limit {
			object("%v has spent %+v, reserved %+v and has %+v left; by the reference %+v, %+v and %+v", c, s.Spent, s.Reserved, s.Left, spent, held, left)
		}
	}
	for c := range maps.Keys(claims) {
		object("%v has no balance", c)
	}
	for t := range m.log.each {
		if t.state != api.TaskDenied || t.plan.Approval != nil || t.taken || t.plan.Subagent == denied || t.plan.Subagent == fickle || grows(&t.plan) {
			continue
		}
		if m.desk.purse.refused[t.dispatch] == 0 {
			object("task %s is denied, and no budget refused it", t.name())
		}
	}
	return wrong
}

// affording reports whether a task may wait, without a slot: its dispatch does not run,
// and its principal has waited for room in a budget, or it was paused, maybe when a restart
// would have submitted it, or others that waited have taken the slots of its queue since a
// restart. The caller holds the mutex.
func (k *desk) affording(t *replayTask) bool {
	if j := k.jobs[t.dispatch]; j != nil && j.active() {
		return false
	}
	if k.held(t) {
		k.idled[t.dispatch] = true
	}
	return k.idled[t.dispatch] || k.purse != nil && k.purse.waited[t.run.by] || k.overtaken(t)
}

// overtaken reports whether tasks that waited without a slot may have all slots of the
// queue of t. The caller holds the mutex.
func (k *desk) overtaken(t *replayTask) bool {
	return (len(k.idled) > 0 || k.purse != nil && len(k.purse.waited) > 0) && k.full(t)
}

// mayAfford reports whether tasks of the principal of t have waited for room in a budget,
// or t has waited, or waits, while it is paused.
func (k *desk) mayAfford(t *replayTask) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if j := k.jobs[t.dispatch]; k.held(t) && (j == nil || !j.active()) {
		return true
	}
	return k.idled[t.dispatch] || k.purse != nil && k.purse.waited[t.run.by] || k.overtaken(t)
}

// waits is affording for a caller without the mutex.
func (k *desk) waits(t *replayTask) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.affording(t)
}

// limit is what a budget allows.
func (m *machine) limit(c claim) api.Budget {
	for _, g := range m.desk.purse.grants {
		if c.name == "grant:"+string(g.Name) {
			return *g.Budget
		}
	}
	if p := m.log.budgetOf(api.RunID(c.period[len("run/"):])); c.name == "plan" && p != nil {
		return *p
	}
	return api.Budget{}
}
