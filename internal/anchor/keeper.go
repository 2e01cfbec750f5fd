package anchor

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Log is the Merkle tree of the log. An audit.Tree is one.
type Log interface {
	Latest() (signed []byte, cp note.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	Root(ctx context.Context, size uint64) (note.Hash, error)
}

// Schedule is an anchor and the time between two checkpoints for it.
type Schedule struct {
	Anchor
	Every time.Duration // 0: a minute. Nothing is sent while nothing is logged
}

// Config is what Open needs.
type Config struct {
	Store   *store.Store // opened with Migration among its migrations
	Len     func(context.Context) (uint64, error)
	Log     Log
	Origin  string              // of the log
	Keys    []ed25519.PublicKey // every key that has signed its checkpoints
	Anchors []Schedule
	Now     func() time.Time
	Logger  *slog.Logger // nil discards
	// ExchangeTimeout bounds one exchange with an anchor. 0: 30 s.
	ExchangeTimeout time.Duration
	// Retry is the wait after the first failure in a row. 0: 1 s.
	Retry time.Duration
	// CompareTimeout bounds the exchange with each anchor in Open. 0: 15 s.
	CompareTimeout time.Duration
	// TreeTimeout bounds the wait in Open for a tree that is being rebuilt.
	// 0: 10 minutes.
	TreeTimeout time.Duration

	sent func() // called after each round of an anchor; may be nil
}

func (c *Config) validate() error {
	if c.Store == nil || c.Len == nil || c.Log == nil || c.Now == nil || c.Origin == "" || len(c.Keys) == 0 {
		return errors.New("anchors: a store, a log with its origin and keys, and a clock are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.sent == nil {
		c.sent = func() {}
	}
	c.ExchangeTimeout = cmp.Or(c.ExchangeTimeout, 30*time.Second)
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.CompareTimeout = cmp.Or(c.CompareTimeout, 15*time.Second)
	c.TreeTimeout = cmp.Or(c.TreeTimeout, 10*time.Minute)
	seen := map[string]bool{}
	for i := range c.Anchors {
		name := c.Anchors[i].ID().Name
		if !receipt.ValidName(name) || seen[name] {
			return fmt.Errorf("anchors: name %.80q: want a unique one of 1 to 63 of a-z, 0-9 and -", name)
		}
		seen[name] = true
		c.Anchors[i].Every = cmp.Or(c.Anchors[i].Every, time.Minute)
	}
	return nil
}

// Keeper sends the log's checkpoints to anchors, each on its own goroutine.
type Keeper struct {
	cfg     Config
	senders []*sender
	stop    chan struct{}      // closed to begin the last round
	cancel  context.CancelFunc // aborts that too
	work    sync.WaitGroup
	once    sync.Once
}

// Open compares the log with every anchor and with the newest receipt of each.
// It fails with a *MismatchError if the log is shorter than what an anchor holds
// or has another history. An unreachable anchor is only a warning. Then Open
// starts to send checkpoints.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg, stop: make(chan struct{})}
	for _, a := range cfg.Anchors {
		r, ok, err := lastReceipt(ctx, cfg.Store, a.ID().Name)
		if err != nil {
			return nil, err
		}
		s := &sender{Schedule: a, k: k}
		if ok {
			s.size, s.at, s.acknowledged = r.Checkpoint().Size, r.At, r.Signed
		}
		k.senders = append(k.senders, s)
	}
	if err := k.compare(ctx); err != nil {
		return nil, err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancel = cancel
	for _, s := range k.senders {
		k.work.Go(func() { s.run(work) })
	}
	return k, nil
}

// compare compares the log with all anchors, concurrently.
func (k *Keeper) compare(ctx context.Context) error {
	errs := make([]error, len(k.senders))
	var all sync.WaitGroup
	for i, s := range k.senders {
		all.Go(func() {
			refusal, trouble := s.compare(ctx)
			if errs[i] = refusal; trouble != nil {
				s.failed(ctx, trouble)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// verify compares a checkpoint that an anchor holds with the log. While the
// tree does not reach that far, it waits until ctx is done.
func (k *Keeper) verify(ctx context.Context, id ID, signed []byte) (note.Checkpoint, error) {
	claimed, err := note.Peek(signed)
	if err != nil {
		return note.Checkpoint{}, fmt.Errorf("%s: holds no valid checkpoint: %w", id, err)
	}
	have, err := k.cfg.Len(ctx)
	if err != nil {
		return note.Checkpoint{}, err
	}
	differs := func(format string, args ...any) (note.Checkpoint, error) {
		return claimed, &MismatchError{id, claimed.Size, have, fmt.Sprintf(format, args...)}
	}
	switch _, _, err := note.Open(signed, k.cfg.Origin, k.cfg.Keys...); {
	case errors.Is(err, note.ErrOrigin):
		return differs("it is of another log, %s", claimed.Origin)
	case err != nil:
		return differs("no key that this state knows has signed it: the state is older than the key, or another party wrote there")
	case claimed.Size > have:
		return differs("the state was restored from an older copy, or its log was truncated")
	}
	if err := k.cfg.Log.Wait(ctx, claimed.Size); err != nil {
		return claimed, err
	}
	root, err := k.cfg.Log.Root(ctx, claimed.Size)
	if err != nil {
		return claimed, err
	}
	if root != claimed.Root {
		return differs("the first %s differ: there are two histories, and one of them is forged", record.Plural(claimed.Size, "entry"))
	}
	return claimed, nil
}

// closeTime bounds how long Close waits for the tree, and then for anchors.
const closeTime = 2 * time.Second

// Close waits until the tree covers all durable entries, sends every anchor the
// newest checkpoint once more, and stops. Anchors that take too long are
// abandoned.
func (k *Keeper) Close() error {
	k.once.Do(func() {
		covered, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if n, err := k.cfg.Len(covered); err == nil {
			_ = k.cfg.Log.Wait(covered, n) // best effort
		}
		close(k.stop)
		timer := time.AfterFunc(closeTime, k.cancel)
		defer timer.Stop()
		k.work.Wait()
		k.cancel()
	})
	return nil
}

// Status is the state of an anchor.
type Status struct {
	ID
	Every  time.Duration
	Size   uint64    // entries of the largest checkpoint with a receipt
	At     time.Time // of that receipt; zero: none yet
	Behind uint64    // durable entries beyond Size
	Err    error     // of the last attempt, or nil
	Since  time.Time // of the first failure in a row, or zero
}

// Status returns the state of each anchor.
func (k *Keeper) Status(ctx context.Context) ([]Status, error) {
	n, err := k.cfg.Len(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(k.senders))
	for i, s := range k.senders {
		out[i] = s.status()
		out[i].Behind = n - min(n, out[i].Size)
	}
	return out, nil
}

// backoff returns the wait after that many failures in a row: first, then twice
// as long each time up to ten minutes, plus up to a tenth of jitter.
func backoff(first time.Duration, failures int) time.Duration {
	d := min(first<<min(failures-1, 20), 10*time.Minute)
	return d + rand.N(d/10+1) //nolint:gosec // G404: not a secret
}
