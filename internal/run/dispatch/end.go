package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// outcome is how an attempt ended.
type outcome struct {
	event      api.Event
	reason     api.Reason
	message    string
	digest     api.Digest // of the signed result; empty without one
	summary    *api.ResultSummary
	cancelBy   api.Actor
	answerTime time.Duration // of a question: how long it waits for an answer
	calls      *api.Artifact // the record of its tool calls; nil without
}

// end makes the end of an attempt durable, once; save stores the row.
func (l *lifecycle) end(ctx context.Context, r row, o outcome, save func(*store.Tx, row) error) error {
	now := l.cfg.Now().UTC()
	rec := &r.record
	r.finish = finish{}
	rec.State, rec.Reason, rec.Message, rec.EndedAt, rec.Result, rec.Outcome = o.event, o.reason, o.message, &now, o.digest, o.summary
	if o.calls != nil {
		if rec.Calls == nil {
			rec.Calls = &api.ToolCalls{}
		}
		rec.Calls.Record = o.calls
	}
	if o.event != api.EventNeedsInput { // a cancel may still end that one
		if rec.CancelBy = o.cancelBy; o.cancelBy == "" {
			rec.CancelReason = ""
		}
	} else {
		by := now.Add(o.answerTime)
		rec.AnswerBy = &by
	}
	spent, err := l.settlements(ctx, r, o, now)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.EndCommit, string(rec.ID))
	_, err = l.cfg.Ledger.Record(ctx, endEntry(r, spent, now), func(tx *store.Tx) error {
		if err := save(tx, r); err != nil {
			return err
		}
		if err := budget.Settle(tx, rec.ID, rec.Attempt, spent); err != nil {
			return err
		}
		if o.calls != nil {
			if err := gateway.Drop(tx, rec.ID, rec.Attempt); err != nil {
				return err
			}
		}
		if final(rec) {
			if err := l.cfg.People.EndDispatch(tx, rec.ID); err != nil {
				return err
			}
		}
		if err := offerReuse(tx, rec); err != nil {
			return err
		}
		return requireAttestation(tx, rec)
	})
	failpoint.Hit(failpoint.EndCommitted, string(rec.ID))
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	l.observeEnded(l.life, *rec)
	if rec.AnswerBy == nil {
		l.ended.Send()
		err := l.files.remove(rec.ID)
		failpoint.Hit(failpoint.EndRemoved, string(rec.ID))
		return err
	}
	l.questions.Send()
	// The next attempt may start at once, in a directory beside this one.
	return os.RemoveAll(l.files.dir(&r))
}

var errCancelled = errors.New("the dispatch was cancelled after it was read")

// endLatest makes the outcome of an attempt durable. It derives the outcome again if a
// cancel was recorded meanwhile.
func (l *lifecycle) endLatest(ctx context.Context, r row, outcomeOf func(context.Context, row) (outcome, error)) error {
	for {
		// A cancel may have been recorded while the worker ran.
		latest, ok, err := l.row(ctx, r.record.ID)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("dispatch %s: %w", r.record.ID, errNoRecord))
		}
		by := latest.record.CancelBy
		o, err := outcomeOf(ctx, latest)
		if err != nil {
			return err
		}
		err = l.end(ctx, latest, o, func(tx *store.Tx, r row) error {
			now, ok, err := load(tx, r.record.ID)
			if err == nil && ok && now.record.CancelBy != by {
				err = errCancelled
			}
			if err != nil {
				return err
			}
			return update(tx, r)
		})
		if errors.Is(err, errCancelled) {
			continue // at most once: it cannot be cancelled again
		}
		if err != nil || o.event != api.EventNeedsInput || by == "" {
			return err
		}
		// It asked a question after it had been cancelled.
		latest, ok, err = l.row(ctx, r.record.ID)
		if err != nil || !ok || latest.record.State != api.EventNeedsInput {
			return err
		}
		return l.endWaiting(ctx, latest, cancelled(latest.record))
	}
}

// endEntry is the entry of the end of an attempt, whose row is r by now.
func endEntry(r row, spent []record.BudgetSettlement, now time.Time) record.Entry {
	entry := record.Ended(&r.record)
	detail, _ := entry.Detail.(record.DispatchEnd)
	detail.Budgets, detail.Millis = spent, r.millis(now)
	entry.Detail = detail
	return entry
}
