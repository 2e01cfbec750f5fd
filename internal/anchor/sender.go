package anchor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// sender sends checkpoints to one anchor of a Keeper. Only its goroutine talks to
// the anchor.
type sender struct {
	Schedule
	k            *Keeper
	hung         <-chan struct{} // of an abandoned exchange; closed when that returns
	acknowledged []byte          // the checkpoint of the newest receipt at the start of the service

	mu       sync.Mutex
	size     uint64    // guarded by mu
	at       time.Time // guarded by mu
	err      error     // guarded by mu
	since    time.Time // guarded by mu
	failures int       // in a row; guarded by mu
}

func (s *sender) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{ID: s.ID(), Every: s.Every, Size: s.size, At: s.at, Err: s.err, Since: s.since}
}

// firstRound is when an anchor gets its first checkpoint after the start.
const firstRound = time.Second

func (s *sender) run(ctx context.Context) {
	timer := time.NewTimer(min(firstRound, s.Every))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(s.round(ctx))
		case <-s.k.stop:
			s.round(ctx)
			return
		}
	}
}

// round sends the anchor the newest checkpoint, and returns when the next round
// is due.
func (s *sender) round(ctx context.Context) time.Duration {
	defer s.k.cfg.sent()
	if err := s.send(ctx); err != nil {
		return s.failed(ctx, err)
	}
	s.mu.Lock()
	recovered := s.err != nil
	s.err, s.since, s.failures = nil, time.Time{}, 0
	s.mu.Unlock()
	if recovered {
		s.k.cfg.Logger.InfoContext(ctx, "an anchor recovered", slog.String("anchor", s.ID().Name))
	}
	return s.Every + rand.N(s.Every/10+1) //nolint:gosec // G404: not a secret
}

// failed records err, logs failures number 1, 2, 4, 8 …, and returns when to
// retry.
func (s *sender) failed(ctx context.Context, err error) time.Duration {
	s.mu.Lock()
	s.failures++
	n := s.failures
	s.err = err
	if n == 1 {
		s.since = s.k.cfg.Now()
	}
	s.mu.Unlock()
	if n&(n-1) == 0 && ctx.Err() == nil {
		s.k.cfg.Logger.WarnContext(ctx, "an anchor does not take checkpoints", slog.String("anchor", s.ID().Name), slog.Int("tries", n), slog.Any("err", err))
	}
	return backoff(s.k.cfg.Retry, n)
}

// exchange calls the anchor. A call that outlives its timeout is abandoned, and
// no other begins until it returns.
func exchange[T any](ctx context.Context, s *sender, timeout time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	if s.hung != nil {
		select {
		case <-s.hung:
			s.hung = nil
		default:
			return none, fmt.Errorf("%s: an earlier exchange still hangs", s.ID())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	type result struct {
		v   T
		err error
	}
	results, done := make(chan result, 1), make(chan struct{})
	go func() { // ends with the call, at the latest with the process
		defer cancel()
		defer close(done)
		v, err := call(ctx)
		results <- result{v, err}
	}()
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
	}
	// An anchor that observes its context now returns a better error.
	grace := time.NewTimer(time.Second / 2)
	defer grace.Stop()
	select {
	case r := <-results:
		return r.v, r.err
	case <-grace.C:
		s.hung = done
		return none, fmt.Errorf("%s: no answer within %s", s.ID(), timeout)
	}
}

// compare compares the log with the newest receipt and with the anchor. refusal
// is why the service must not start; trouble is what is wrong with the anchor.
func (s *sender) compare(ctx context.Context) (refusal, trouble error) {
	// Whatever has become of the anchor, the log contained what it acknowledged.
	if s.acknowledged != nil {
		tree, cancel := context.WithTimeout(ctx, s.k.cfg.TreeTimeout)
		defer cancel()
		if _, err := s.k.verify(tree, s.ID(), s.acknowledged); err != nil {
			if mismatch, ok := errors.AsType[*MismatchError](err); ok {
				mismatch.Why += " (according to its stored receipt)"
			}
			return err, nil
		}
	}
	held, err := exchange(ctx, s, s.k.cfg.CompareTimeout, s.Newest)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.k.cfg.TreeTimeout)
	defer cancel()
	return s.compareHeld(ctx, held)
}

// compareHeld compares what the anchor holds, or nil, with the log and with what
// it acknowledged.
func (s *sender) compareHeld(ctx context.Context, held []byte) (refusal, trouble error) {
	var size uint64
	if held != nil {
		if _, err := note.Peek(held); err != nil {
			return nil, fmt.Errorf("%s: holds no valid checkpoint: %w", s.ID(), err)
		}
		cp, err := s.k.verify(ctx, s.ID(), held)
		if err != nil {
			return err, nil // also if the log could not be read
		}
		size = cp.Size
	}
	if had := s.status().Size; size < had && s.ID().Kind != receipt.TSA { // an authority keeps nothing
		return nil, fmt.Errorf("%s: holds a checkpoint of %s, but acknowledged one of %d: the anchor has lost it, or is another place; repair it, or configure it under another name", s.ID(), record.Plural(size, "entry"), had)
	}
	return nil, nil
}

// send sends the anchor the newest checkpoint, unless it has it.
func (s *sender) send(ctx context.Context) error {
	signed, cp := s.k.cfg.Log.Latest()
	before := s.status()
	switch {
	case signed == nil || cp.Size == 0, cp.Size <= before.Size && before.Err == nil:
		return nil
	case cp.Size <= before.Size: // nothing to send; has it recovered?
		return errors.Join(s.compare(ctx))
	}
	failpoint.Hit(failpoint.AnchorPut, s.ID().Name)
	r, err := exchange(ctx, s, s.k.cfg.ExchangeTimeout, func(ctx context.Context) (receipt.Receipt, error) {
		held, err := s.Newest(ctx)
		if err == nil { // add nothing to a history that is not the log's
			err = errors.Join(s.compareHeld(ctx, held))
		}
		if err != nil {
			return receipt.Receipt{}, err
		}
		return s.Put(ctx, signed)
	})
	if err != nil {
		return err
	}
	// The anchor may lie.
	if err := r.Validate(); err != nil {
		return err
	}
	if id := s.ID(); r.Checkpoint() != cp || r.Name != id.Name || r.Kind != id.Kind || r.Place != id.Place {
		return fmt.Errorf("%s: the receipt is for another checkpoint", id)
	}
	failpoint.Hit(failpoint.AnchorGiven, s.ID().Name)
	if err := saveReceipt(ctx, s.k.cfg.Store, r); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AnchorKept, s.ID().Name)
	s.mu.Lock()
	s.size, s.at = cp.Size, r.At
	s.mu.Unlock()
	return nil
}
