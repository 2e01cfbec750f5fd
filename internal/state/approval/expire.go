package approval

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// expire denies the requests that people did not decide in time, and returns how long
// until the next is overdue.
func (a *Approvals) expire(ctx context.Context) time.Duration {
	wait, err := a.expireDue(ctx)
	if err == nil {
		return wait
	}
	if ctx.Err() == nil {
		a.cfg.Logger.ErrorContext(ctx, "expiring approvals failed", slog.Any("err", err))
	}
	return time.Minute
}

// expireDue denies what is overdue, and returns how long until the next is.
func (a *Approvals) expireDue(ctx context.Context) (time.Duration, error) {
	next := time.Minute // the clock may be set
	var overdue []row
	open := map[api.ApprovalID]bool{}
	if err := a.cfg.Store.Read(ctx, func(v *store.View) error {
		return each(v, "state = 'open'", nil, func(r row) error {
			open[r.action.ID] = true
			if left := a.timeLeft(&r.action); left > 0 {
				next = min(next, left)
			} else {
				overdue = append(overdue, r)
			}
			return nil
		})
	}); err != nil {
		return 0, err
	}
	for _, r := range overdue {
		_, err := a.cfg.Ledger.Record(ctx, entry(record.KindApprovalExpired, r), func(tx *store.Tx) error {
			return settle(tx, r.action.ID, api.ApprovalExpired)
		})
		if err != nil && !errors.Is(err, errSettled) {
			return 0, err
		}
		a.announce(r.action)
	}
	a.forget(open)
	return next, nil
}

// timeLeft returns how long a request may still be approved and used. A clock that is
// set back while the service runs gives no time. One that is set forward takes it: what
// the log says has expired is denied.
func (a *Approvals) timeLeft(action *api.Action) time.Duration {
	left, now := action.Expires.Sub(a.cfg.Now()), a.cfg.Steady()
	a.mu.Lock()
	defer a.mu.Unlock()
	due, ok := a.due[action.ID]
	if !ok {
		due = now.Add(left)
		a.due[action.ID] = due
	}
	return min(left, due.Sub(now))
}

// forget forgets when requests expire that are not open.
func (a *Approvals) forget(open map[api.ApprovalID]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.due, func(id api.ApprovalID, _ time.Time) bool { return !open[id] })
}
