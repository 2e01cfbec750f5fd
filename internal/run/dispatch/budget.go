package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// spending is the budgets that an attempt is subject to.
type spending struct {
	manifest *record.Manifest
	claims   []budget.Claim
	currency string // of its model
	at       time.Time
	behind   []string // see TaskRequest
}

// spending returns the budgets of m: those of the grants that allow it by the snapshot
// of x, and that of the plan of its run. A resumed attempt has the budget that its
// run began with.
func (s *admitter) spending(ctx context.Context, x *subject, task *TaskRequest, m *record.Manifest, at time.Time) (p spending, err error) {
	var plan *api.Budget
	p = spending{manifest: m, at: at}
	if task != nil {
		plan, p.behind = task.Budget, task.Behind
	} else if m.Run != "" {
		err = s.cfg.Store.Read(ctx, func(v *store.View) error {
			plan, err = budget.OfRun(v, m.Run)
			return err
		})
	}
	if err == nil {
		p.claims = budget.Claims(x.snapshot.Engine.Budgeted(m.Principal, m.Policies), plan, m, at)
	}
	if err == nil && len(p.claims) > 0 && m.Endpoint != nil {
		p.currency, err = s.currency(ctx, m)
	}
	return p, err
}

// currency returns that of the prices of m's model, in the revision of m.
func (s *admitter) currency(ctx context.Context, m *record.Manifest) (string, error) {
	snap, err := s.cfg.InForce.At(ctx, m.RevisionDigest)
	if err != nil {
		return "", err
	}
	model, _, err := snap.Revision.Model(m.Endpoint.Name)
	return cmp.Or(model.Currency, api.DefaultCurrency), err
}

// commit is Ledger.Commit with the reservation of budgets in the same transaction; the
// entry says what is reserved.
func (s *admitter) commit(ctx context.Context, d policy.Decision, e record.Entry, p spending, fn func(*store.Tx) error) (audit.Admission, error) {
	if len(p.claims) == 0 {
		return s.cfg.Ledger.Commit(ctx, d, e, fn)
	}
	return s.cfg.Ledger.Decide(ctx, d, e, func(tx *store.Tx, _ uint64, e *record.Entry) error {
		if err := fn(tx); err != nil {
			return err
		}
		list, err := budget.Reserve(tx, p.manifest, p.claims, p.currency, p.behind, p.at)
		if err != nil {
			return err
		}
		switch detail := e.Detail.(type) {
		case record.DispatchRequest:
			detail.Budgets = list
			e.Detail = detail
		case record.AnswerRequest:
			detail.Budgets = list
			e.Detail = detail
		}
		return nil
	})
}

// Reserved is the error of SubmitTask and ResumeTask for a task that has to wait for room
// in a budget: others have reserved it, and may not use it, or tasks that started before
// wait for it. Nothing was decided or stored.
type Reserved struct {
	Budget string // with its period
	Line   string // see budget.Refusal
	Behind bool   // likewise
	Reason string
}

// Error implements error.
func (r *Reserved) Error() string { return r.Reason }

// denySpent denies a subject for which a budget had no room. Where others have only
// reserved it, a task waits, and any other subject is refused without a decision. Any
// other error is returned as it is.
func (s *admitter) denySpent(ctx context.Context, x subject, err error) error {
	refusal, ok := errors.AsType[*budget.Refusal](err)
	switch {
	case !ok:
		return err
	case refusal.Waits != "" && x.run != "":
		return &Reserved{refusal.Waits, refusal.Line, refusal.Behind, refusal.Reason}
	case refusal.Waits != "":
		return api.Errorf(api.CodeThrottled, "%s", refusal.Reason).WithHint("try again when an attempt has ended; see: bailiwick budget list")
	}
	x.spent = []string{refusal.Reason}
	return s.deny(ctx, x, x.decide())
}

// settlements returns what an attempt that ends has spent.
func (s *records) settlements(ctx context.Context, r row, o outcome, now time.Time) (list []record.BudgetSettlement, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		held, err := budget.Held(v, r.record.ID, r.record.Attempt)
		result := o.summary
		if o.digest == "" { // what the worker left is not signed
			result = nil
		}
		list = budget.Settlements(held, r.key != "", result, r.millis(now))
		return err
	})
	return list, err
}

// millis is how long an attempt has taken.
func (r *row) millis(now time.Time) int64 {
	return max(0, now.Sub(r.record.Since())).Milliseconds()
}

// Budgets returns the budgets that f selects and p may see: of its own grants and runs,
// or all.
func (s *reader) Budgets(ctx context.Context, p api.Principal, f api.BudgetFilter) ([]api.BudgetStatus, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	list := []api.BudgetStatus{}
	if !engine.Decide(policy.Request{Principal: p, Action: policy.ActionDispatchRead, Resource: "all"}).Allowed() {
		if f.Principal != "" && f.Principal != p {
			return list, nil
		}
		f.Principal = p
	}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		found, err := budget.List(v, engine.Budgets(), f, s.cfg.Now())
		list = append(list, found...)
		return err
	})
	return list, err
}

// BudgetsOfToday returns the first most budgets per day of grants, for metrics. It checks
// no permissions.
func (s *reader) BudgetsOfToday(ctx context.Context, most int) (list []api.BudgetStatus, err error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		list, err = budget.Today(v, engine.Budgets(), most, s.cfg.Now())
		return err
	})
	return list, err
}
