package anchor

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// Log is the Merkle tree of the log. An audit.Tree is one.
type Log interface {
	Latest() (signed []byte, cp logproof.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	Roots(ctx context.Context, sizes []uint64) ([]logproof.Hash, error) // for ascending sizes
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
	// CompareTimeout is how long an anchor may be silent while all that it holds is
	// read; then it counts as unreachable. 0: 15 s.
	CompareTimeout time.Duration
	// ScanTimeout bounds the reading of all that an anchor holds. One that holds more
	// is refused. 0: 10 minutes.
	ScanTimeout time.Duration
	// TreeTimeout bounds the wait in Open for a tree that is being rebuilt.
	// 0: 10 minutes.
	TreeTimeout time.Duration
	// Lost reports whether an operator named an anchor as lost in the state that
	// MismatchError.Found identifies. nil: none did.
	Lost func(name string, found api.Digest) bool

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
	if c.Lost == nil {
		c.Lost = func(string, api.Digest) bool { return false }
	}
	c.ScanTimeout = cmp.Or(c.ScanTimeout, 10*time.Minute)
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
	rounds  *background.Keeper // repeats the rounds
	work    context.Context    //nolint:containedctx // of all rounds, also of the last
	cancel  context.CancelFunc // aborts that too
	once    sync.Once
	fault   atomic.Pointer[MismatchError] // why nothing new may be admitted
}

// Open compares the log with all that every anchor holds, and with every receipt,
// also those of anchors that are no longer configured. It fails with a
// *MismatchError if the log is shorter than one of them or has another history, if
// an anchor lost what it acknowledged, or holds what the service did not write,
// unless an operator named it as lost. An unreachable anchor is only a warning: it
// is compared before anything is sent to it. Then Open starts to send checkpoints.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg}
	for _, a := range cfg.Anchors {
		r, ok, err := lastReceipt(ctx, cfg.Store, a.ID().Name)
		if err != nil {
			return nil, err
		}
		s := &sender{Schedule: a, k: k}
		if ok {
			s.size, s.at = r.Checkpoint().Size, r.At
		}
		k.senders = append(k.senders, s)
	}
	if err := errors.Join(k.compareFormer(ctx), k.compare(ctx)); err != nil {
		return nil, err
	}
	k.work, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.rounds = background.Start(ctx)
	for _, s := range k.senders {
		k.rounds.Go(s.run)
	}
	return k, nil
}

// ErrNoAnchor means that no anchor of that name is configured, and none gave a
// receipt.
var ErrNoAnchor = errors.New("no such anchor")

// Find returns what Open would refuse one anchor for, or nil. It sends nothing. The
// error is that of an anchor that cannot be reached.
func Find(ctx context.Context, cfg Config, name string) (*MismatchError, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg}
	for _, a := range cfg.Anchors {
		if a.ID().Name == name {
			return (&sender{Schedule: a, k: k}).find(ctx)
		}
	}
	id, ok, err := k.former(ctx, name)
	if err != nil || !ok {
		return nil, cmp.Or(err, ErrNoAnchor)
	}
	return k.findFormer(ctx, id)
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

// compareFormer compares the log with the receipts of anchors that are no longer
// configured: the log contained what they acknowledged.
func (k *Keeper) compareFormer(ctx context.Context) error {
	list, err := Newest(ctx, k.cfg.Store)
	if err != nil {
		return err
	}
	for _, r := range list {
		if slices.ContainsFunc(k.senders, func(s *sender) bool { return s.ID().Name == r.Name }) {
			continue
		}
		found, err := k.findFormer(ctx, ID{r.Name, r.Kind, r.Place})
		if err == nil && found != nil && !k.cfg.Lost(r.Name, found.Found) {
			err = found
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// former identifies an anchor by its newest receipt.
func (k *Keeper) former(ctx context.Context, name string) (ID, bool, error) {
	r, ok, err := lastReceipt(ctx, k.cfg.Store, name)
	return ID{name, r.Kind, r.Place}, ok, err
}

func (k *Keeper) findFormer(ctx context.Context, id ID) (*MismatchError, error) {
	j, err := k.newJudge(ctx, id)
	if err == nil {
		err = j.receipts(ctx)
	}
	if err != nil {
		return nil, err
	}
	return j.verdict(ctx, false)
}

// Err returns why nothing new may be admitted, or nil: while the service ran, an
// anchor proved that its log was truncated or forked.
func (k *Keeper) Err() error {
	if e := k.fault.Load(); e != nil {
		return e
	}
	return nil
}

// proves sets Err if err is a proof.
func (k *Keeper) proves(ctx context.Context, err error) {
	if e, ok := errors.AsType[*MismatchError](err); ok && e.Signed && k.fault.CompareAndSwap(nil, e) {
		k.cfg.Logger.ErrorContext(ctx, "an anchor contradicts the log; nothing new is admitted", slog.String("anchor", e.Anchor.Name), slog.Any("err", e))
	}
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
		timer := time.AfterFunc(closeTime, k.cancel)
		defer timer.Stop()
		k.rounds.Close()
		k.cancel()
	})
	return nil
}

// Status is the state of an anchor.
type Status struct {
	ID
	Every    time.Duration
	Size     uint64    // entries of the largest checkpoint with a receipt
	At       time.Time // of that receipt; zero: none yet
	Behind   uint64    // durable entries beyond Size
	Compared bool      // all that it holds was compared with the log since Open
	Lost     bool      // an operator named it as lost: nothing is sent to it
	Err      error     // of the last attempt, or nil
	Since    time.Time // of the first failure in a row, or zero
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
