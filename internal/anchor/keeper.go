package anchor

import (
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
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Log is the tree of the log. An audit.Tree is one.
type Log interface {
	Latest() (signed []byte, cp note.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	Root(ctx context.Context, size uint64) (note.Hash, error)
}

// Plan is an anchor, and how often it gets a checkpoint.
type Plan struct {
	Anchor
	Every time.Duration // 0: a minute. While nothing is logged it gets none
}

// Config is what a Keeper is made of.
type Config struct {
	Store  *store.Store // opened with Migration among its migrations
	Len    func(context.Context) (uint64, error)
	Log    Log
	Origin string              // of the log
	Keys   []ed25519.PublicKey // every key that has signed checkpoints of it
	Plans  []Plan
	Now    func() time.Time
	Logger *slog.Logger // nil discards
	// Exchange bounds one exchange with an anchor. 0: 30 s.
	Exchange time.Duration
	// Retry is how long to wait after the first failure of several. 0: 1 s.
	Retry time.Duration
	// Compare bounds the comparison at the start. 0: 15 s for what is at the
	// anchor, and 10 minutes for a tree that has to be built again.
	Compare, Tree time.Duration
}

func (c *Config) validate() error {
	if c.Store == nil || c.Len == nil || c.Log == nil || c.Now == nil || c.Origin == "" || len(c.Keys) == 0 {
		return errors.New("anchors: a store, a log with its origin and keys, and a clock are needed")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for of, d := range map[*time.Duration]time.Duration{&c.Exchange: 30 * time.Second, &c.Retry: time.Second, &c.Compare: 15 * time.Second, &c.Tree: 10 * time.Minute} {
		if *of == 0 {
			*of = d
		}
	}
	seen := map[string]bool{}
	for i := range c.Plans {
		p := &c.Plans[i]
		if id := p.ID(); !receipt.ValidName(id.Name) || seen[id.Name] {
			return fmt.Errorf("anchors: name %.80q: want one of its own, of 1 to 63 of a-z, 0-9 and -", id.Name)
		}
		seen[p.ID().Name] = true
		if p.Every == 0 {
			p.Every = time.Minute
		}
	}
	return nil
}

// Keeper gives the log's checkpoints to anchors, each on its own goroutine.
type Keeper struct {
	cfg   Config
	posts []*post
	stop  chan struct{}      // closed when the last round is to begin
	end   context.CancelFunc // ends also that
	work  sync.WaitGroup
	once  sync.Once

	mu   sync.Mutex
	news chan struct{} // closed after the next round of any anchor; guarded by mu
}

// Changed returns a channel that is closed after the next round of any anchor.
// Take it, then look at Status, then wait: nothing is missed.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.news
}

func (k *Keeper) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.news)
	k.news = make(chan struct{})
}

// Open compares the log with every anchor, and with the newest receipt of each,
// and refuses one that is behind, or not of the same history: a *MismatchError.
// An anchor that cannot be asked is a warning. Then it begins to anchor.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg, stop: make(chan struct{}), news: make(chan struct{})}
	for _, p := range cfg.Plans {
		r, ok, err := last(ctx, cfg.Store, p.ID().Name)
		if err != nil {
			return nil, err
		}
		one := &post{Plan: p, k: k}
		if ok {
			one.size, one.at, one.given = r.Checkpoint().Size, r.At, r.Signed
		}
		k.posts = append(k.posts, one)
	}
	if err := k.compare(ctx); err != nil {
		return nil, err
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	k.end = end
	for _, p := range k.posts {
		k.work.Go(func() { p.run(work) })
	}
	return k, nil
}

// compare asks all anchors at once.
func (k *Keeper) compare(ctx context.Context) error {
	errs := make([]error, len(k.posts))
	var all sync.WaitGroup
	for i, p := range k.posts {
		all.Go(func() {
			refusal, trouble := p.compare(ctx)
			if errs[i] = refusal; trouble != nil {
				p.failed(ctx, trouble)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// fits compares a checkpoint that an anchor holds with the log. It waits, as
// long as ctx does, for a tree that does not reach so far yet.
func (k *Keeper) fits(ctx context.Context, id ID, signed []byte) (note.Checkpoint, error) {
	claimed, err := note.Peek(signed)
	if err != nil {
		return note.Checkpoint{}, fmt.Errorf("%s: what it holds is no checkpoint: %w", id, err)
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
		return differs("no key that this state knows has signed it: the state is older than the key, or somebody else wrote there")
	case claimed.Size > have:
		return differs("the state was restored from an older copy, or its log was cut")
	}
	if err := k.cfg.Log.Wait(ctx, claimed.Size); err != nil {
		return claimed, err
	}
	root, err := k.cfg.Log.Root(ctx, claimed.Size)
	if err != nil {
		return claimed, err
	}
	if root != claimed.Root {
		return differs("and its first %d entries are others: there are two histories, one of which is not to be believed", claimed.Size)
	}
	return claimed, nil
}

// closeTime is how long the end of the service waits for anchors.
const closeTime = 2 * time.Second

// Close gives every anchor what is new once more, after the tree covers all
// that is durable, and waits for either, but not for long: what is late is left
// behind.
func (k *Keeper) Close() error {
	k.once.Do(func() {
		covered, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if n, err := k.cfg.Len(covered); err == nil {
			_ = k.cfg.Log.Wait(covered, n) // where it does not, what there is
		}
		close(k.stop)
		timer := time.AfterFunc(closeTime, k.end)
		defer timer.Stop()
		k.work.Wait()
		k.end()
	})
	return nil
}

// Status is how an anchor is.
type Status struct {
	ID
	Every  time.Duration
	Size   uint64    // entries of the largest checkpoint that there is a receipt for
	At     time.Time // when that was given; zero: never
	Behind uint64    // durable entries beyond that
	Err    error     // why the last try failed; nil: it did not
	Since  time.Time // of the first failure of several; zero: none
}

// Status returns how each anchor is.
func (k *Keeper) Status(ctx context.Context) ([]Status, error) {
	n, err := k.cfg.Len(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(k.posts))
	for i, p := range k.posts {
		out[i] = p.status()
		out[i].Behind = n - min(n, out[i].Size)
	}
	return out, nil
}

// backoff is how long to wait after so many failures in a row: what it is after
// the first, doubling, up to ten minutes, with a tenth of jitter.
func backoff(first time.Duration, failures int) time.Duration {
	d := min(first<<min(failures-1, 20), 10*time.Minute)
	return d + rand.N(d/10+1) //nolint:gosec // G404: not a secret
}
