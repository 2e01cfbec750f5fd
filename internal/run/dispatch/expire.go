package dispatch

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// expireQuestions fails dispatches whose questions were not answered in time, and returns
// how long until the next answer is overdue.
func (l *lifecycle) expireQuestions(context.Context) time.Duration {
	wait, err := l.expireDue()
	if err != nil {
		l.cfg.Logger.ErrorContext(l.life, "expiring questions failed", slog.Any("err", err))
		return time.Minute
	}
	return wait
}

// expireDue fails the dispatches whose answer is overdue, and returns how long
// until the next one is.
func (l *lifecycle) expireDue() (time.Duration, error) {
	for {
		list, err := l.list(l.life, expiring)
		if err != nil {
			return 0, err
		}
		next, expired := time.Hour, false // the clock may be set
		for _, r := range list {
			left := l.times.left(&r.record)
			if left > 0 {
				next = min(next, left)
				continue
			}
			expired = true
			failpoint.Hit(failpoint.ExpireCommit, string(r.record.ID))
			o := outcome{event: api.EventFailed, reason: api.ReasonTimeout, message: "no answer by " + r.record.AnswerBy.Format(time.RFC3339)}
			if err := l.endUnanswered(l.life, r, o); err != nil {
				return 0, err
			}
		}
		if !expired {
			l.times.keep(list)
			return next, nil
		}
	}
}

// answerTimes measures how long questions may still be answered.
type answerTimes struct {
	*records
	mu  sync.Mutex
	due map[question]time.Time // by Config.Steady; guarded by mu
}

type question struct {
	id      api.DispatchID
	attempt int
}

// left returns how long a question may still be answered. A clock that is set forward
// while the service runs takes none of the time.
func (t *answerTimes) left(d *api.Dispatch) time.Duration {
	left, now := d.AnswerBy.Sub(t.cfg.Now()), t.cfg.Steady()
	t.mu.Lock()
	defer t.mu.Unlock()
	q := question{d.ID, d.Attempt}
	due, ok := t.due[q]
	if !ok {
		if t.due == nil {
			t.due = map[question]time.Time{}
		}
		due = now.Add(left)
		t.due[q] = due
	}
	return max(left, due.Sub(now))
}

// keep forgets when questions expire that are not in list.
func (t *answerTimes) keep(list []row) {
	open := map[question]bool{}
	for _, r := range list {
		open[question{r.record.ID, r.record.Attempt}] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.due, func(q question, _ time.Time) bool { return !open[q] })
}

// endWaiting ends a dispatch that waits for an answer. The result of its last
// attempt stays in its record.
func (l *lifecycle) endWaiting(ctx context.Context, r row, o outcome) error {
	return l.endWaitingIf(ctx, r, o, func(*api.Dispatch) bool { return true })
}

// endUnanswered is endWaiting unless the question was answered meanwhile.
func (l *lifecycle) endUnanswered(ctx context.Context, r row, o outcome) error {
	return l.endWaitingIf(ctx, r, o, func(now *api.Dispatch) bool { return now.AnswerBy != nil })
}

func (l *lifecycle) endWaitingIf(ctx context.Context, r row, o outcome, ok func(now *api.Dispatch) bool) error {
	o.digest, o.summary = r.record.Result, r.record.Outcome
	attempt := r.record.Attempt
	r.record.AnswerBy = nil
	return l.end(ctx, r, o, func(tx *store.Tx, r row) error {
		now, found, err := load(tx, r.record.ID)
		if err != nil {
			return err
		}
		if !found || !ok(&now.record) {
			return errEnded
		}
		return updateWaiting(tx, r, attempt)
	})
}

// ClearAnswerDeadline records that the question of a task was answered: it does
// not expire while the task waits for its locks. It leaves a dispatch without a
// question alone.
func ClearAnswerDeadline(tx *store.Tx, id api.DispatchID) error {
	r, ok, err := load(tx, id)
	if err != nil || !ok || r.record.Run == "" || r.record.State != api.EventNeedsInput || r.record.AnswerBy == nil {
		return err
	}
	r.record.AnswerBy = nil
	return updateWaiting(tx, r, r.record.Attempt)
}
