package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

const (
	refusalBurst = 10          // entries at once
	refusalPause = time.Second // then one in each
	refusalTime  = time.Minute // and one that sums up the others
)

// refusals bounds how much of the log is filled by callers who cannot be
// established. It keeps nobody out who can be.
type refusals struct {
	now func() time.Time

	mu      sync.Mutex
	left    float64   // entries that may be written; guarded by mu
	at      time.Time // of left; guarded by mu
	dropped int       // since the last sum; guarded by mu
}

func newRefusals(now func() time.Time) *refusals {
	return &refusals{now: now, left: refusalBurst, at: now()}
}

// take reports whether a refusal gets an entry of its own. If not it counts.
func (f *refusals) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if passed := now.Sub(f.at); passed > 0 {
		f.left = min(refusalBurst, f.left+passed.Seconds()/refusalPause.Seconds())
	}
	f.at = now
	if f.left < 1 {
		f.dropped++
		return false
	}
	f.left--
	return true
}

// sum returns how many had none since it was called before.
func (f *refusals) sum() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.dropped
	f.dropped = 0
	return n
}

// again counts n of which the sum could not be written.
func (f *refusals) again(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped += n
}

// refusal is a caller that could not be established.
type refusal struct {
	via     string     // unix, session or token
	claimed string     // never a secret
	err     *api.Error // for the caller
}

// refuse logs a refusal and returns what the caller is told.
func (s *Server) refuse(ctx context.Context, f refusal) error {
	if !s.refusals.take() {
		return f.err
	}
	seq, err := s.cfg.Ledger.Record(ctx, record.Entry{
		Kind: record.KindAuthRefused, Detail: record.AuthRefused{Claimed: f.claimed, Message: f.err.Message, Via: f.via},
	}, nil)
	if err != nil {
		return err
	}
	told := *f.err
	told.AuditEntry = &seq
	return &told
}

// refuseToken logs that a token is not good. Whoever guesses has to wait, and
// who has one that is good never does.
func (s *Server) refuseToken(ctx context.Context, id api.TokenID, cause error) error {
	var e *api.Error
	if !errors.As(cause, &e) {
		return cause
	}
	claimed := "token " + string(id)
	if id == "" {
		claimed = "no token of ours"
	}
	err := s.refuse(ctx, refusal{via: "token", claimed: claimed, err: e})
	var told *api.Error
	if errors.As(err, &told) && told.AuditEntry == nil && (told.Code == api.CodeUnauthenticated || told.Code == api.CodeDenied) {
		return api.Errorf(api.CodeThrottled, "too many tokens that are not good").WithHint("wait a second; a good one is taken at any time")
	}
	return err
}

// sumUp logs how many refusals had no entry of their own.
func (s *Server) sumUp(ctx context.Context) error {
	told := s.sumUpTold(ctx)
	n := s.refusals.sum()
	if n == 0 {
		return told
	}
	_, err := s.cfg.Ledger.Record(ctx, record.Entry{
		Kind: record.KindAuthRefused, Detail: record.AuthRefused{Message: fmt.Sprintf("and %d more, too many to log each", n), Via: "unix"},
	}, nil)
	if err != nil {
		s.refusals.again(n)
	}
	return errors.Join(err, told)
}

// sumUpAlways does so every minute, until the gate closes.
func (s *Server) sumUpAlways() {
	t := time.NewTicker(refusalTime)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			ctx := context.Background()
			if err := s.sumUp(ctx); err != nil {
				s.cfg.Logger.ErrorContext(ctx, "refusals cannot be summed up", slog.Any("err", err))
			}
		case <-s.gate.leaving.Done():
			return
		}
	}
}
