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
)

// post is one anchor of a Keeper. Its goroutine alone talks to the anchor.
type post struct {
	Plan
	k    *Keeper
	hung <-chan struct{} // of an exchange that was left behind; closed when it ends
	// given is the checkpoint of the newest receipt when the service started.
	given []byte

	mu    sync.Mutex
	size  uint64    // guarded by mu
	at    time.Time // guarded by mu
	err   error     // guarded by mu
	since time.Time // guarded by mu
	fails int       // in a row; guarded by mu
}

func (p *post) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{ID: p.ID(), Every: p.Every, Size: p.size, At: p.at, Err: p.err, Since: p.since}
}

// first is how long after the start an anchor gets its first checkpoint.
const first = time.Second

func (p *post) run(ctx context.Context) {
	timer := time.NewTimer(min(first, p.Every))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(p.round(ctx))
		case <-p.k.stop:
			p.round(ctx)
			return
		}
	}
}

// round gives the anchor what is new, and returns when the next is due.
func (p *post) round(ctx context.Context) time.Duration {
	defer p.k.tell()
	if err := p.anchor(ctx); err != nil {
		return p.failed(ctx, err)
	}
	p.mu.Lock()
	again := p.err != nil
	p.err, p.since, p.fails = nil, time.Time{}, 0
	p.mu.Unlock()
	if again {
		p.k.cfg.Logger.InfoContext(ctx, "an anchor is well again", slog.String("anchor", p.ID().Name))
	}
	return p.Every + rand.N(p.Every/10+1) //nolint:gosec // G404: not a secret
}

// failed notes why, says so the first time and then once in a while, and
// returns when to try again.
func (p *post) failed(ctx context.Context, err error) time.Duration {
	p.mu.Lock()
	p.fails++
	n := p.fails
	p.err = err
	if n == 1 {
		p.since = p.k.cfg.Now()
	}
	p.mu.Unlock()
	if n&(n-1) == 0 && ctx.Err() == nil { // the 1st, 2nd, 4th, 8th …
		p.k.cfg.Logger.WarnContext(ctx, "an anchor does not take checkpoints", slog.String("anchor", p.ID().Name), slog.Int("tries", n), slog.Any("err", err))
	}
	return backoff(p.k.cfg.Retry, n)
}

// exchange is what the anchor is asked. One that does not end in time is left
// behind, and nothing else is asked until it does.
func exchange[T any](ctx context.Context, p *post, bound time.Duration, ask func(context.Context) (T, error)) (T, error) {
	var none T
	if p.hung != nil {
		select {
		case <-p.hung:
			p.hung = nil
		default:
			return none, fmt.Errorf("%s: has not ended an exchange that began long ago", p.ID())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	type answer struct {
		v   T
		err error
	}
	came, done := make(chan answer, 1), make(chan struct{})
	go func() { // ends with the anchor, at the latest with the process
		defer cancel()
		defer close(done)
		v, err := ask(ctx)
		came <- answer{v, err}
	}()
	select {
	case a := <-came:
		return a.v, a.err
	case <-ctx.Done():
	}
	// One that heeds its context says in a moment what was wrong.
	grace := time.NewTimer(time.Second / 2)
	defer grace.Stop()
	select {
	case a := <-came:
		return a.v, a.err
	case <-grace.C:
		p.hung = done
		return none, fmt.Errorf("%s: no answer within %s", p.ID(), bound)
	}
}

// compare is the comparison of the start. What the anchor has against it is
// trouble, and a warning; refusal is why the service may not start.
func (p *post) compare(ctx context.Context) (refusal, trouble error) {
	// Whatever has become of the anchor, what it gave a receipt for was the log.
	if p.given != nil {
		tree, cancel := context.WithTimeout(ctx, p.k.cfg.Tree)
		defer cancel()
		if _, err := p.k.fits(tree, p.ID(), p.given); err != nil {
			if wrong, ok := errors.AsType[*MismatchError](err); ok {
				wrong.Why += " (by the receipt for it, which is here)"
			}
			return err, nil
		}
	}
	signed, err := exchange(ctx, p, p.k.cfg.Compare, p.Newest)
	if err != nil {
		return nil, err
	}
	if signed == nil {
		return nil, p.gone()
	}
	if _, err := note.Peek(signed); err != nil {
		return nil, fmt.Errorf("%s: what it holds is no checkpoint: %w", p.ID(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.k.cfg.Tree)
	defer cancel()
	cp, err := p.k.fits(ctx, p.ID(), signed)
	if err != nil {
		return err, nil // also where the log here could not be looked at
	}
	if cp.Size < p.had() {
		return nil, p.less(cp.Size)
	}
	return nil, nil
}

// gone is an error where an anchor holds nothing and has given receipts.
func (p *post) gone() error {
	if p.ID().Kind == receipt.TSA || p.had() == 0 {
		return nil
	}
	return p.less(0)
}

func (p *post) had() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

func (p *post) less(holds uint64) error {
	return fmt.Errorf("%s: holds a checkpoint of %d entries, and was given one of %d: it has lost it, or is not the same place; mend it, or give what is there now another name", p.ID(), holds, p.had())
}

// anchor gives the anchor the newest checkpoint, unless it has it.
func (p *post) anchor(ctx context.Context) error {
	signed, cp := p.k.cfg.Log.Latest()
	switch {
	case signed == nil || cp.Size == 0:
		return nil
	case cp.Size <= p.had() && p.status().Err == nil:
		return nil
	case cp.Size <= p.had(): // there is nothing to give it, and it was not well
		return errors.Join(p.compare(ctx))
	}
	failpoint.Hit(failpoint.AnchorPut, p.ID().Name)
	r, err := exchange(ctx, p, p.k.cfg.Exchange, func(ctx context.Context) (receipt.Receipt, error) {
		return p.put(ctx, signed)
	})
	if err != nil {
		return err
	}
	// What an anchor says is held against what it was given: it may lie.
	if err := r.Validate(); err != nil {
		return err
	}
	if id := p.ID(); r.Checkpoint() != cp || r.Name != id.Name || r.Kind != id.Kind || r.Place != id.Place {
		return fmt.Errorf("%s: the receipt is of another checkpoint", id)
	}
	failpoint.Hit(failpoint.AnchorGiven, p.ID().Name)
	if err := keep(ctx, p.k.cfg.Store, r); err != nil {
		return err
	}
	failpoint.Hit(failpoint.AnchorKept, p.ID().Name)
	p.mu.Lock()
	p.size, p.at = cp.Size, r.At
	p.mu.Unlock()
	return nil
}

// put compares before it puts, so that nothing is added to what does not fit.
func (p *post) put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	held, err := p.Newest(ctx)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if held == nil {
		if err := p.gone(); err != nil {
			return receipt.Receipt{}, err
		}
		return p.Put(ctx, signed)
	}
	cp, err := p.k.fits(ctx, p.ID(), held)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if cp.Size < p.had() {
		return receipt.Receipt{}, p.less(cp.Size)
	}
	return p.Put(ctx, signed)
}
