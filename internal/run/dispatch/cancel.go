package dispatch

import (
	"context"
	"errors"
	"log/slog"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxReason bounds the reason of a cancel, which goes into the record.
const maxReason = 4 << 10

// stopper ends dispatches before they are done: one that is cancelled, or all that an
// emergency stop covers.
type stopper struct{ *reader }

// Cancel requests the end of a dispatch and returns its record after the
// request. A dispatch that has ended stays as it is.
func (s *stopper) Cancel(ctx context.Context, principal api.Principal, id api.DispatchID, reason string) (api.Dispatch, error) {
	if len(reason) > maxReason {
		return api.Dispatch{}, LogInvalid(ctx, s.cfg.Ledger, principal, "cancel", api.Errorf(api.CodeInvalid, "cancel: reason of %d bytes, the limit is %d", len(reason), maxReason))
	}
	r, decision, err := s.access(ctx, principal, policy.ActionDispatchCancel, id)
	if err != nil || final(&r.record) {
		return r.record, err
	}
	return s.cancel(ctx, r, api.Actor(principal), reason, func(fn func(*store.Tx) error) error {
		_, err := s.cfg.Ledger.Commit(ctx, decision, cancelEntry(record.KindCancelRequested, r, reason), fn)
		return err
	})
}

// Abort is Cancel by the service itself: a limit of the run that the dispatch
// belongs to was reached, or its answer cannot be delivered.
func (s *stopper) Abort(ctx context.Context, id api.DispatchID, reason string) (api.Dispatch, error) {
	r, err := s.taskRow(ctx, id)
	if err != nil || final(&r.record) {
		return r.record, err
	}
	return s.cancel(ctx, r, api.Service, reason, func(fn func(*store.Tx) error) error {
		_, err := s.cfg.Ledger.Record(ctx, cancelEntry(record.KindDispatchAborted, r, reason), fn)
		return err
	})
}

func cancelEntry(kind record.Kind, r row, reason string) record.Entry {
	return entryAbout(kind, r, record.CancelRequest{State: string(r.record.State), Why: reason})
}

// cancel records who cancels a dispatch, in the transaction of the entry that
// commit writes, and ends it.
func (s *stopper) cancel(ctx context.Context, r row, by api.Actor, reason string, commit func(func(*store.Tx) error) error) (api.Dispatch, error) {
	id := r.record.ID
	failpoint.Hit(failpoint.CancelCommit, string(id))
	err := commit(func(tx *store.Tx) error {
		now, ok, err := load(tx, id)
		switch {
		case err != nil:
			return err
		case !ok || final(&now.record):
			return errEnded // so that the request is not logged after the statement
		}
		r, err = markCancelled(tx, now, by, reason)
		return err
	})
	switch {
	case errors.Is(err, errEnded):
		return s.reload(ctx, id, nil)
	case err != nil:
		return s.reload(ctx, id, err)
	}
	failpoint.Hit(failpoint.CancelCommitted, string(id))
	if r.record.State == api.EventNeedsInput {
		if err := s.endWaiting(ctx, r, cancelled(r.record)); err != nil {
			return r.record, err
		}
		return s.reload(ctx, id, nil)
	}
	if s.deliverCancel(ctx, r) {
		failpoint.Hit(failpoint.CancelDelivered, string(id))
	}
	return r.record, nil
}

// reload returns the record of a dispatch as it is now, and err or why it could
// not be read.
func (s *records) reload(ctx context.Context, id api.DispatchID, err error) (api.Dispatch, error) {
	r, _, readErr := s.row(ctx, id)
	if err == nil {
		err = readErr
	}
	return r.record, err
}

// markCancelled records who cancels a dispatch that has not ended, unless it is
// cancelled already, and returns its row.
func markCancelled(tx *store.Tx, r row, by api.Actor, reason string) (row, error) {
	if r.record.CancelBy != "" {
		return r, nil
	}
	r.record.CancelBy, r.record.CancelReason = by, reason
	if r.record.State == api.EventNeedsInput {
		return r, updateWaiting(tx, r, r.record.Attempt)
	}
	return r, update(tx, r)
}

// deliverCancel tells the worker of a dispatch that it was cancelled. A worker
// whose key is not bound yet is told when it is: a result that it sealed before
// could not be verified.
func (l *lifecycle) deliverCancel(ctx context.Context, r row) bool {
	a := l.activeOf(r.record.ID)
	if a == nil {
		l.pending.cancel(r.record.ID)
		return false
	}
	a.cancelled.Send()
	if r.key == "" {
		return false
	}
	if err := a.worker.Cancel(cancelReason(r.record)); err != nil {
		l.logger(&r.record).WarnContext(ctx, "delivering a cancel to a worker failed", slog.Any("err", err))
	}
	return true
}

// cancelReason is what a worker is told about who cancelled, and why.
func cancelReason(d api.Dispatch) string {
	if d.CancelReason == "" {
		return "by " + string(d.CancelBy)
	}
	return "by " + string(d.CancelBy) + ": " + d.CancelReason
}

// cancelled is the outcome of a cancelled dispatch without a worker, worded as a
// worker words it.
func cancelled(d api.Dispatch) outcome {
	return outcome{event: api.EventCancelled, cancelBy: d.CancelBy, message: "cancelled: " + cancelReason(d)}
}
