package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// giveUp ends dispatches whose questions nobody answered in time, until the
// service ends.
func (s *Service) giveUp() {
	for {
		wait, err := s.giveUpDue()
		if err != nil {
			s.cfg.Logger.ErrorContext(s.life, "questions that wait cannot be looked after", slog.Any("err", err))
			wait = time.Minute
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.asked:
		case <-s.life.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// giveUpDue ends those whose time is over and returns how long the next has.
func (s *Service) giveUpDue() (time.Duration, error) {
	const most = time.Hour // the clock may be set
	for {
		var list []row
		if err := s.cfg.Store.Read(s.life, func(v *store.View) (err error) {
			list, err = expiring(v)
			return err
		}); err != nil {
			return 0, err
		}
		for _, r := range list {
			left := r.record.AnswerBy.Sub(s.cfg.Now())
			if left > 0 {
				return min(left, most), nil
			}
			words := "nobody answered by " + r.record.AnswerBy.Format(time.RFC3339)
			failpoint.Hit(failpoint.ExpireCommit, string(r.record.ID))
			if err := s.endUnanswered(s.life, r, outcome{event: api.EventFailed, reason: api.ReasonTimeout, message: words}); err != nil {
				return 0, err
			}
		}
		if len(list) == 0 {
			return most, nil
		}
	}
}

// endWaiting ends a dispatch that waits for an answer. What its last attempt
// brought stays in its record.
func (s *Service) endWaiting(ctx context.Context, r row, o outcome) error {
	return s.endWaitingIf(ctx, r, o, func(*api.Dispatch) bool { return true })
}

// endUnanswered is endWaiting unless the question has been answered meanwhile.
func (s *Service) endUnanswered(ctx context.Context, r row, o outcome) error {
	return s.endWaitingIf(ctx, r, o, func(now *api.Dispatch) bool { return now.AnswerBy != nil })
}

func (s *Service) endWaitingIf(ctx context.Context, r row, o outcome, still func(now *api.Dispatch) bool) error {
	o.digest, o.summary = r.record.Result, r.record.Outcome
	attempt := r.record.Attempt
	r.record.AnswerBy = nil
	return s.end(ctx, r, o, func(tx *store.Tx, r row) error {
		now, ok, err := load(tx, r.record.ID)
		if err != nil {
			return err
		}
		if !ok || !still(&now.record) {
			return errEnded
		}
		return updateWaiting(tx, r, attempt)
	})
}

// Answered says that the question of a task has been answered: from here on it
// is not given up, however long the task waits for its locks. A dispatch that
// asks nothing is left alone.
func ClearAnswerDeadline(tx *store.Tx, id api.DispatchID) error {
	r, ok, err := load(tx, id)
	if err != nil || !ok || r.record.Run == "" || r.record.State != api.EventNeedsInput || r.record.AnswerBy == nil {
		return err
	}
	r.record.AnswerBy = nil
	return updateWaiting(tx, r, r.record.Attempt)
}
