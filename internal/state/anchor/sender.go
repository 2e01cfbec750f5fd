package anchor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// sender sends checkpoints to one anchor of a Keeper. Only its goroutine talks to
// the anchor.
type sender struct {
	Schedule
	k    *Keeper
	hung <-chan struct{} // of an abandoned exchange; closed when that returns

	mu       sync.Mutex
	compared bool      // guarded by mu
	lost     bool      // guarded by mu
	size     uint64    // guarded by mu
	at       time.Time // guarded by mu
	err      error     // guarded by mu
	since    time.Time // guarded by mu
	failures int       // in a row; guarded by mu
}

func (s *sender) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{ID: s.ID(), Every: s.Every, Size: s.size, At: s.at, Compared: s.compared, Lost: s.lost, Err: s.err, Since: s.since}
}

const (
	// firstRound is when an anchor gets its first checkpoint after the start.
	firstRound = time.Second
	// maxBackoff is the longest wait after a failure, without jitter.
	maxBackoff = 10 * time.Minute
)

// run repeats rounds until ctx is done, and adds a last one.
func (s *sender) run(ctx context.Context) {
	round := func(context.Context) time.Duration { return s.round(s.k.work) }
	background.Loop{First: min(firstRound, s.Every), Step: round}.Run(ctx)
	s.round(s.k.work)
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
	return background.Jitter(s.Every)
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
	return background.Jitter(background.Backoff{First: s.k.cfg.Retry, Most: maxBackoff}.After(n))
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
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
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
		return none, fmt.Errorf("%s: %w", s.ID(), context.Cause(ctx))
	}
}

// errLost is the error of an anchor that gets nothing more.
var errLost = errors.New("an operator named it as lost: it gets no more checkpoints; configure another anchor, with another name and place")

// compare compares the log with all that the anchor holds and acknowledged. refusal
// is why the service must not start; trouble is what is wrong with the anchor.
func (s *sender) compare(ctx context.Context) (refusal, trouble error) {
	found, err := s.find(ctx)
	unfit, read := errors.AsType[*UnfitError](err)
	lost := found != nil && s.k.cfg.Lost(s.ID().Name, found.Found)
	s.mu.Lock()
	s.compared, s.lost = (err == nil || read) && (found == nil || lost), lost
	s.mu.Unlock()
	local, failed := errors.AsType[*localError](err)
	switch {
	case lost:
		return nil, errLost
	case found != nil:
		return found, err
	case failed:
		return local.err, nil // the log could not be read
	case read:
		return nil, unfit
	}
	return nil, err
}

// localError is an error of the state or the log, not of an anchor.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

// find reads all that the anchor holds and returns what is wrong with it, or nil,
// together with the error of an anchor that could not be read to its end.
func (s *sender) find(ctx context.Context) (*MismatchError, error) {
	j, err := s.k.newJudge(ctx, s.ID())
	if err == nil {
		err = j.receipts(ctx)
	}
	if err != nil {
		return nil, &localError{err}
	}
	scanned := s.scan(ctx, j)
	if errors.Is(scanned, errTooMany) {
		return j.overlong(fmt.Sprintf("it holds more than %d checkpoints", maxItems)), nil
	}
	if errors.Is(scanned, errTooLong) {
		return j.overlong(fmt.Sprintf("it could not be read to its end within %s", s.k.cfg.ScanTimeout)), nil
	}
	if _, ok := errors.AsType[*localError](scanned); ok {
		return nil, scanned
	}
	_, unfit := errors.AsType[*UnfitError](scanned)
	found, err := j.verdict(ctx, scanned == nil || unfit)
	if err != nil {
		return nil, &localError{err}
	}
	return found, scanned
}

var errTooLong = errors.New("takes too long")

// scan has j see all that the anchor holds.
func (s *sender) scan(ctx context.Context, j *judge) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence, total := s.k.cfg.CompareTimeout, s.k.cfg.ScanTimeout
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("no answer within %s", silence)) })
	defer silent.Stop()
	var mu sync.Mutex // an abandoned exchange may still call see
	now := s.k.cfg.Now
	over, began := false, now()
	waited := time.Duration(0) // for the tree
	see := func(it Item) error {
		mu.Lock()
		defer mu.Unlock()
		if over || ctx.Err() != nil {
			return context.Canceled
		}
		silent.Stop()
		defer silent.Reset(silence)
		if now().Sub(began)-waited > total {
			return errTooLong
		}
		from := now()
		defer func() { waited += now().Sub(from) }()
		err := j.see(ctx, it)
		if err != nil && !errors.Is(err, errTooMany) {
			err = &localError{err}
		}
		return err
	}
	known := func(size uint64) []byte {
		r, _, _ := receiptFor(ctx, s.k.cfg.Store, s.ID().Name, size) // without one it is fetched
		return r.Signed
	}
	_, err := exchange(ctx, s, total+s.k.cfg.TreeTimeout+time.Minute, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Scan(ctx, known, see) })
	mu.Lock()
	defer mu.Unlock()
	over = true
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("%s: %w", s.ID(), cause)
	}
	return err
}

// agrees compares what the anchor got last, or nil, with the log and with what it
// acknowledged.
func (s *sender) agrees(ctx context.Context, newest []byte) error {
	var size uint64
	if newest != nil {
		j, err := s.k.newJudge(ctx, s.ID())
		if err == nil {
			err = j.see(ctx, Item{Where: "the newest", Signed: newest})
		}
		if err != nil {
			return err
		}
		if found, err := j.verdict(ctx, false); err != nil || found != nil {
			return cmp.Or[error](err, found)
		}
		size = j.largest.Size
	}
	if had := s.status().Size; size < had && s.ID().Kind != receipt.TSA { // an authority keeps nothing
		return fmt.Errorf("%s: holds a checkpoint of %s, but acknowledged one of %d: the anchor has lost it, or is another place; repair it, or configure it under another name", s.ID(), record.Plural(size, "entry"), had)
	}
	return nil
}

// send sends the anchor the newest checkpoint, unless it has it. An anchor that was
// not reached at the start of the service is compared first.
func (s *sender) send(ctx context.Context) error {
	signed, cp := s.k.cfg.Log.Latest()
	before := s.status()
	switch {
	case before.Lost:
		return errLost
	case !before.Compared:
		if err := errors.Join(s.compare(ctx)); err != nil {
			s.k.proves(ctx, err)
			return err
		}
	}
	if signed == nil || cp.Size == 0 || cp.Size <= before.Size && before.Err == nil {
		return nil
	}
	failpoint.Hit(failpoint.AnchorPut, s.ID().Name)
	r, err := exchange(ctx, s, s.k.cfg.ExchangeTimeout, func(ctx context.Context) (*receipt.Receipt, error) {
		held, err := s.Newest(ctx)
		if err == nil { // add nothing to a history that is not the log's
			err = s.agrees(ctx, held)
		}
		if err != nil || cp.Size <= before.Size { // nothing to send; it has recovered
			return nil, err
		}
		r, err := s.Put(ctx, signed)
		return &r, err
	})
	if err != nil || r == nil {
		s.k.proves(ctx, err)
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
	if err := saveReceipt(ctx, s.k.cfg.Store, *r); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AnchorKept, s.ID().Name)
	s.mu.Lock()
	s.size, s.at = cp.Size, r.At
	s.mu.Unlock()
	return nil
}
