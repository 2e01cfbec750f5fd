package audit

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Permanent errors of OpenTree and of a Tree's Err, Admit and Check. A person has to find out what
// happened to the table.
var (
	// ErrTruncated: the table is shorter than what was signed or built.
	ErrTruncated = errors.New("the log was truncated")
	// ErrChanged: the table differs from what was signed.
	ErrChanged = errors.New("the log was changed")
	// ErrForeign: the directory belongs to another log, or the checkpoint in it
	// was signed by an unknown key.
	ErrForeign = errors.New("belongs to another log")
	// ErrImpossible: an entry cannot follow those before it, such as a second end of
	// a dispatch. The log does not write it, and the tree does not sign it.
	ErrImpossible = errors.New("an entry cannot follow those before it")
)

// TreeConfig is what OpenTree needs.
type TreeConfig struct {
	Dir    string // absolute; created if missing. It may be deleted while no service runs
	Ledger *Ledger
	Signer logproof.Signer
	Origin string              // of the log, as the function Origin returns it
	Keys   []ed25519.PublicKey // besides Signer's, that may have signed the newest checkpoint
	Now    func() time.Time
	Logger *slog.Logger // nil discards
	// Interval is the least time between two batches under load. 0: 200 ms.
	Interval time.Duration
	// Grace is how long new work is admitted while the tree cannot be kept.
	// 0: 30 s.
	Grace time.Duration
	// Retry is the time between attempts after a failure. 0: 1 s.
	Retry time.Duration
	// Watch is the time between comparisons of files of the tree with the table. 0: 1 min.
	Watch time.Duration

	stall   time.Duration                           // how long a batch may take before it is a fault; 0: 10 s
	idle    func()                                  // called when all entries are in the tree and the interval has passed; may be nil
	newest  uint64                                  // how many of the newest entries OpenTree compares with the tree; 0: newestVerified
	replace func(path string, content []byte) error // how a tile is written; nil: replaceFile
}

func (c *TreeConfig) validate() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("log tree %q: want an absolute path", c.Dir)
	}
	if c.Ledger == nil || c.Signer == nil || c.Now == nil {
		return errors.New("log tree: a ledger, a signer and a clock are required")
	}
	if _, err := logproof.VerifierKey(c.Origin, c.Signer.Public()); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.replace == nil {
		c.replace = replaceFile
	}
	c.Interval = cmp.Or(c.Interval, 200*time.Millisecond)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Retry = cmp.Or(c.Retry, time.Second)
	c.Watch = cmp.Or(c.Watch, time.Minute)
	c.stall = cmp.Or(c.stall, 10*time.Second)
	c.newest = cmp.Or(c.newest, newestVerified)
	c.Keys = append([]ed25519.PublicKey{c.Signer.Public()}, c.Keys...)
	return nil
}

// Tree is the Merkle tree over the entries: tiles that other programs can read,
// and the newest signed checkpoint. It is derived: one goroutine reads the table
// in order and writes the tiles, and what is lost or damaged is rebuilt with the
// same root. The newest signed checkpoint is not derived: it is what the service
// has attested. A table that is shorter than that, or has another root, was
// truncated or rewritten. It is refused permanently and never signed.
//
// Nothing waits for the tree: a decision is durable when its transaction is. If
// the tree cannot be kept, Err reports it at once, and after TreeConfig.Grace
// Admit refuses new work, so the number of entries without a checkpoint stays
// bounded.
//
// All methods may be called from any goroutine.
type Tree struct {
	cfg   TreeConfig
	tiles tiles

	cancel context.CancelFunc // stops the feeder
	done   chan struct{}      // closed when the feeder has exited
	wake   background.Signal  // ends the feeder's sleep

	mu      sync.Mutex
	latest  published     // guarded by mu
	fault   fault         // guarded by mu
	size    uint64        // of the tree; guarded by mu
	changed chan struct{} // closed and replaced when one of the above changes; guarded by mu
	rebuild bool          // requested; guarded by mu

	repaired Repair // guarded by mu
}

// published is the newest checkpoint.
type published struct {
	logproof.Checkpoint
	signed []byte // nil before the first
	at     time.Time
}

// fault is why the tree is not kept; the zero value if it is.
type fault struct {
	err   error
	since time.Time
}

// followedAtOpen bounds how many entries OpenTree follows that no checkpoint covers
// yet. There are few, unless the checkpoint was lost; the feeder follows the others
// before it signs them.
const followedAtOpen = 100_000

// OpenTree opens or creates the tree. It refuses a table that differs from what was
// signed (ErrTruncated, ErrChanged) or has an entry since then that cannot follow
// those before it (ErrImpossible), a directory that belongs to another log
// (ErrForeign) and one that cannot be written. A damaged tree is rebuilt in the
// background.
func OpenTree(ctx context.Context, cfg TreeConfig) (*Tree, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("log tree: %w", err)
	}
	t := &Tree{
		cfg: cfg, tiles: tiles{filepath.Join(cfg.Dir, treeName), cfg.replace},
		done: make(chan struct{}), changed: make(chan struct{}), wake: background.NewSignal(),
	}
	f := &feeder{tree: t}
	var e *edge
	var err error
	if t.latest, err = t.readCheckpoint(ctx); err == nil {
		e, err = t.inspect(ctx)
	}
	if err == nil {
		f.follow = cfg.Ledger.follower(t.latest.Size)
		err = f.followNewest(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("log tree %s: %w", cfg.Dir, err)
	}
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.ticker = time.NewTicker(cfg.Watch)
	go f.run(ctx, e)
	return t, nil
}

func (f *feeder) followNewest(ctx context.Context) error {
	n, err := f.tree.cfg.Ledger.Len(ctx)
	if err != nil {
		return err
	}
	return f.follow.to(ctx, min(n, f.follow.next+followedAtOpen))
}

// closeTime bounds how long Close waits for the feeder to catch up.
const closeTime = 3 * time.Second

const (
	treeName       = "tree"       // the tiles, below TreeConfig.Dir
	checkpointName = "checkpoint" // the newest signed checkpoint, below TreeConfig.Dir
)

// Close lets the feeder catch up with the table for at most closeTime, and stops
// it. Call it before closing the ledger's store.
func (t *Tree) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if n, err := t.cfg.Ledger.Len(ctx); err == nil {
		t.wake.Send()
		_ = t.wait(ctx, func() bool { return t.latest.Size >= n || t.fault.err != nil }) // best effort
	}
	t.cancel()
	<-t.done
	return nil
}

// Latest returns the newest checkpoint, signed and as a value. Signed is nil
// before the first.
func (t *Tree) Latest() (signed []byte, c logproof.Checkpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest.signed, t.latest.Checkpoint
}

// Wait waits until a checkpoint covers the first size entries and the tree
// contains all that it covers. It fails when ctx is done, after Close, and on a
// permanent fault.
func (t *Tree) Wait(ctx context.Context, size uint64) error {
	err := t.wait(ctx, func() bool { return t.latest.Size >= size && t.size >= t.latest.Size })
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("log tree: no checkpoint covers %s yet: %w", record.Plural(size, "entry"), err)
	}
	return err
}

// wait waits until done, which is called with mu held.
func (t *Tree) wait(ctx context.Context, done func() bool) error {
	for {
		t.mu.Lock()
		fault, changed, ok := t.fault, t.changed, done()
		t.mu.Unlock()
		switch {
		case ok:
			return nil
		case permanent(fault.err):
			return fault.err
		}
		select {
		case <-changed:
		case <-t.done:
			return errors.New("log tree: closed")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fault.err)
		}
	}
}

// Err returns why the tree is not kept, or nil.
func (t *Tree) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault.err
}

// Admit returns why new work must be refused, or nil: the tree has not been
// kept for longer than the grace, or the fault is permanent.
func (t *Tree) Admit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch f := t.fault; {
	case f.err == nil, !permanent(f.err) && t.cfg.Now().Sub(f.since) < t.cfg.Grace:
		return nil
	case permanent(f.err):
		return fmt.Errorf("the log's tree is not kept: %w", f.err)
	default:
		return fmt.Errorf("the log's tree is not kept since %s: %w", f.since.UTC().Format(time.RFC3339), f.err)
	}
}

// TreeStatus describes the tree.
type TreeStatus struct {
	Origin         string
	TreeSize       uint64        // entries in the tree
	CheckpointSize uint64        // entries that the newest checkpoint covers
	CheckpointAt   time.Time     // when it was signed; zero before the first
	Entries        uint64        // durable entries
	Lag            time.Duration // age of the oldest entry that no checkpoint covers, or 0
	Repaired       Repair        // the last damage that was noticed since OpenTree
	Err            error
}

// Status returns the state of the tree.
func (t *Tree) Status(ctx context.Context) (TreeStatus, error) {
	t.mu.Lock()
	s := TreeStatus{
		Origin: t.cfg.Origin, TreeSize: t.size, CheckpointSize: t.latest.Size, CheckpointAt: t.latest.at, Repaired: t.repaired, Err: t.fault.err,
	}
	t.mu.Unlock()
	n, err := t.cfg.Ledger.Len(ctx)
	if err != nil {
		return s, err
	}
	s.Entries = n
	if n <= s.CheckpointSize {
		return s, nil
	}
	oldest, err := t.cfg.Ledger.Get(ctx, s.CheckpointSize)
	if err != nil {
		return s, err
	}
	s.Lag = max(0, t.cfg.Now().Sub(oldest.Entry.At))
	return s, nil
}

// update calls change with mu held, and wakes the callers that wait for one.
func (t *Tree) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}
