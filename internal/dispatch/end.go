package dispatch

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
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
}

// end makes the end of an attempt durable, once; save stores the row.
func (l *lifecycle) end(ctx context.Context, r row, o outcome, save func(*store.Tx, row) error) error {
	now := l.cfg.Now().UTC()
	rec := &r.record
	rec.State, rec.Reason, rec.Message, rec.EndedAt, rec.Result, rec.Outcome = o.event, o.reason, o.message, &now, o.digest, o.summary
	if o.event != api.EventNeedsInput { // a cancel may still end that one
		if rec.CancelBy = o.cancelBy; o.cancelBy == "" {
			rec.CancelReason = ""
		}
	} else {
		by := now.Add(o.answerTime)
		rec.AnswerBy = &by
	}
	failpoint.Hit(failpoint.EndCommit, string(rec.ID))
	_, err := l.cfg.Ledger.Record(ctx, endEntry(r, o, now), func(tx *store.Tx) error {
		if err := save(tx, r); err != nil {
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
	l.observeEnded(*rec)
	if rec.AnswerBy == nil {
		signal(l.ended)
		err := l.removeWork(rec.ID)
		failpoint.Hit(failpoint.EndRemoved, string(rec.ID))
		return err
	}
	signal(l.questions)
	// The next attempt may start at once, in a directory beside this one.
	return os.RemoveAll(l.attemptDir(r))
}

// endEntry is the entry of the end of an attempt, whose row is r by now.
func endEntry(r row, o outcome, now time.Time) record.Entry {
	detail, refs := record.EndOf(o.summary)
	detail.By, detail.Message, detail.Reason, detail.Millis = string(o.cancelBy), o.message, string(o.reason), max(0, now.Sub(r.record.Since())).Milliseconds()
	entry := lifeEntry(record.KindOf(o.event), r, detail)
	entry.Refs = refs
	refs[record.RefManifest] = r.record.Manifest
	if o.digest != "" {
		refs[record.RefResult] = o.digest
	}
	return entry
}

// signal wakes the receiver of c, now or when it next receives.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
