package approval

import (
	"context"
	"errors"
	"log/slog"
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
			if left := a.deadlines.left(&r.action); left > 0 {
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
	a.deadlines.forget(open)
	return next, nil
}
