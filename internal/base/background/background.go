// Package background runs work beside a service's calls: goroutines that end with their
// owner, steps that repeat at intervals or on a signal, and pauses that grow with each
// failure. It never decides what a failure means: a step logs or stores its own.
package background

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Keeper owns goroutines that run until Close. A nil Keeper has none.
type Keeper struct {
	life context.Context //nolint:containedctx // the life of the goroutines, not of a call
	stop context.CancelFunc
	work sync.WaitGroup
}

// Start returns a Keeper whose goroutines get the values of ctx, and outlive it.
func Start(ctx context.Context) *Keeper {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	return &Keeper{life: life, stop: stop}
}

// Go runs f until it returns, which it does soon after its context is done.
func (k *Keeper) Go(f func(context.Context)) { k.work.Go(func() { f(k.life) }) }

// Close ends the context of the goroutines and waits for them.
func (k *Keeper) Close() {
	if k != nil {
		k.stop()
		k.work.Wait()
	}
}

// Never is the wait of a step that only a signal repeats.
const Never = time.Duration(math.MaxInt64)

// Loop repeats a step.
type Loop struct {
	// First is the wait before the first step.
	First time.Duration
	// Wake returns a channel that ends a wait: by a value, or by being closed. It is
	// called before each step, so that a change during the step is not missed. nil: only
	// time ends a wait.
	Wake func() <-chan struct{}
	// Step returns the wait before the next step.
	Step func(context.Context) time.Duration
}

// Run repeats the step until ctx is done.
func (l Loop) Run(ctx context.Context) {
	timer := time.NewTimer(l.First)
	defer timer.Stop()
	wake := l.wake()
	for {
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		wake = l.wake()
		timer.Reset(l.Step(ctx))
	}
}

func (l Loop) wake() <-chan struct{} {
	if l.Wake == nil {
		return nil
	}
	return l.Wake()
}

// Signal wakes a loop. Signals that were sent since it woke last are one.
type Signal chan struct{}

// NewSignal returns a signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the loop. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // about to wake
	}
}

// Sent is Loop.Wake for the signal.
func (s Signal) Sent() <-chan struct{} { return s }

// Pause waits for d. It returns the error of ctx if that is done first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backoff is the wait between tries that fail: First, then twice as long each time, up to
// Most. Both are positive.
type Backoff struct{ First, Most time.Duration }

// After returns the wait after that many failures in a row, at least one. It is exact; a
// caller of other machines adds Jitter.
func (b Backoff) After(failures int) time.Duration {
	d := min(b.First, b.Most)
	for range failures - 1 {
		if d > b.Most/2 {
			d = b.Most
			break
		}
		d *= 2
	}
	return d
}

// Jitter returns d and up to a tenth of it more, so that those who begin together do not
// repeat together.
func Jitter(d time.Duration) time.Duration {
	return d + rand.N(d/10+1) //nolint:gosec // G404: not a secret
}
