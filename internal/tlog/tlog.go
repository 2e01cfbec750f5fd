// Package tlog keeps the Merkle tree over the entries table: tiles that others
// can read, and the newest checkpoint, signed.
//
// The tree is derived. The table in the state database is the log; one
// goroutine reads it in order and hands it to Tessera, and whatever is lost or
// damaged here is built again from the table and has the same root. What is
// *not* derived is the newest signed checkpoint: it is the service's word for
// what the table was. A table that is shorter than that, or has another root,
// was cut or changed, and is refused for good, never signed over.
//
// Nothing waits for the tree: a decision is durable when its transaction is. If
// the tree cannot be kept, Err says so at once, and after a time (Config.Grace)
// Admit refuses what is new, so what is not yet covered by a checkpoint stays
// bounded. The package verifies everything itself: it signs a root only if the
// root that it computed from the table is the one that Tessera stored.
//
// It never writes the table, decides nothing and opens no connection. Only the
// service links it.
//
// Carries R-A1 and R-A5, and for the tree R-A2 (no degraded mode).
package tlog

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// What an error of Open, Err, Admit or Check may be. Either is for good: only
// a person can say what happened to the table.
var (
	// ErrCut: the table is shorter than what was signed or built.
	ErrCut = errors.New("the log was cut")
	// ErrChanged: the table is not what was signed.
	ErrChanged = errors.New("the log was changed")
	// ErrForeign: what is in the directory is another log's, or by a key that is
	// not this service's.
	ErrForeign = errors.New("another log's")
)

// Ledger is the table that the tree is over. An audit.Ledger is one.
type Ledger interface {
	Len(ctx context.Context) (uint64, error)
	Leaves(ctx context.Context, from uint64, limit int) ([]audit.Committed, error)
	Get(ctx context.Context, seq uint64) (audit.Committed, error)
	Committed() <-chan struct{}
}

// Config is what a Log needs.
type Config struct {
	Dir    string // of the tree; made where there is none. It may be deleted while no service runs
	Ledger Ledger
	Signer note.Signer
	Origin string              // of the log; Origin finds it
	Keys   []ed25519.PublicKey // that may have signed the newest checkpoint, beside Signer's
	Now    func() time.Time
	Logger *slog.Logger // nil discards
	// Interval is how far apart entries are taken over under load. 0: 200 ms.
	Interval time.Duration
	// Grace is how long what is new is still admitted while the tree cannot be
	// kept. 0: 30 s.
	Grace time.Duration
	// Retry is how long the feeder waits before it begins again. 0: 1 s.
	Retry time.Duration

	stall  time.Duration // how long the tree may take before that is a fault; 0: 10 s
	rests  func()        // called when everything was taken over and the interval is past; nil: nobody
	newest uint64        // how many of the newest entries are held against the tree at a start; 0: newestHeld
}

func (c *Config) validate() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("log tree %q: want an absolute path", c.Dir)
	}
	if c.Ledger == nil || c.Signer == nil || c.Now == nil {
		return errors.New("log tree: a ledger, a signer and a clock are needed")
	}
	if _, err := note.VerifierKey(c.Origin, c.Signer.Public()); err != nil {
		return err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for of, d := range map[*time.Duration]time.Duration{&c.Interval: 200 * time.Millisecond, &c.Grace: 30 * time.Second, &c.Retry: time.Second, &c.stall: 10 * time.Second} {
		if *of == 0 {
			*of = d
		}
	}
	if c.newest == 0 {
		c.newest = newestHeld
	}
	c.Keys = append([]ed25519.PublicKey{c.Signer.Public()}, c.Keys...)
	return nil
}

// Log is the open tree. All methods may be called from any goroutine.
type Log struct {
	cfg   Config
	tiles tiles

	stop   chan struct{}      // closed when the feeder is to end once it has caught up
	cancel context.CancelFunc // ends it at once
	done   chan struct{}      // closed when it has ended
	closed sync.Once
	again  chan struct{} // holds one: the feeder is to begin again

	mu     sync.Mutex
	latest published     // guarded by mu
	fault  fault         // guarded by mu
	size   uint64        // of the tree; guarded by mu
	news   chan struct{} // closed when one of these changes; guarded by mu
	wipe   bool          // begin again from nothing; guarded by mu
}

// published is the newest checkpoint.
type published struct {
	note.Checkpoint
	signed []byte // nil: there is none yet
	at     time.Time
}

// fault is why the tree is not kept; the zero value: it is.
type fault struct {
	err   error
	since time.Time
	final bool // it will not pass
}

// Open opens the tree, or begins it. It refuses a table that is not what was
// signed (ErrCut, ErrChanged), a directory that is another log's (ErrForeign)
// and one that cannot be written. What is damaged is built again, behind the
// back of everything else.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("log tree: %w", err)
	}
	l := newLog(cfg)
	at, tree, err := l.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("log tree %s: %w", cfg.Dir, err)
	}
	l.start(ctx, tree, at)
	return l, nil
}

func newLog(cfg Config) *Log {
	return &Log{
		cfg: cfg, tiles: tiles{filepath.Join(cfg.Dir, treeName)},
		stop: make(chan struct{}), done: make(chan struct{}), news: make(chan struct{}), again: make(chan struct{}, 1),
	}
}

// begin finds out what there is, and refuses what may not be gone on from.
func (l *Log) begin(ctx context.Context) (at *note.Range, tree *builder, err error) {
	if l.latest, err = l.readMark(ctx); err != nil {
		return nil, nil, err
	}
	if at, err = l.inspect(ctx); err != nil {
		return nil, nil, err
	}
	tree, err = openTessera(l.tiles.dir, l.cfg.Origin)
	return at, tree, err
}

func (l *Log) start(ctx context.Context, tree *builder, at *note.Range) {
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(ctx, tree, at)
}

// closeTime is how long Close lets the feeder take over what is durable.
const closeTime = 3 * time.Second

// Close takes over what is durable, as far as that takes no longer than a few
// seconds, and ends the feeder. It is called before the ledger's store is
// closed.
func (l *Log) Close() error {
	l.closed.Do(func() {
		close(l.stop)
		timer := time.NewTimer(closeTime)
		defer timer.Stop()
		select {
		case <-l.done:
		case <-timer.C:
		}
		l.cancel()
	})
	<-l.done
	return nil
}

// Latest returns the newest checkpoint, signed and as a value. Signed is nil
// where nothing was signed yet.
func (l *Log) Latest() (signed []byte, c note.Checkpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest.signed, l.latest.Checkpoint
}

// Wait returns when a checkpoint covers the first size entries and the tree has
// all that it covers, and until then not before ctx is done or the tree is
// refused for good.
func (l *Log) Wait(ctx context.Context, size uint64) error {
	for {
		l.mu.Lock()
		have, fault, news := l.latest.Size, l.fault, l.news
		building := l.size < have
		l.mu.Unlock()
		switch {
		case have >= size && !building:
			return nil
		case fault.final:
			return fault.err
		}
		select {
		case <-news:
		case <-l.done:
			return errors.New("log tree: it is closed")
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("log tree: no checkpoint covers %d entries yet: %w", size, ctx.Err()), fault.err)
		}
	}
}

// Err returns why the tree is not kept; nil when it is.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault.err
}

// Admit returns why nothing new may be admitted: the tree cannot be kept, and
// that for longer than the grace, or will not pass.
func (l *Log) Admit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f := l.fault; {
	case f.err == nil, !f.final && l.cfg.Now().Sub(f.since) < l.cfg.Grace:
		return nil
	case f.final:
		return fmt.Errorf("the log's tree is not kept: %w", f.err)
	default:
		return fmt.Errorf("the log's tree is not kept since %s: %w", f.since.UTC().Format(time.RFC3339), f.err)
	}
}

// Status is how the tree is.
type Status struct {
	Origin         string
	TreeSize       uint64    // entries in the tree
	CheckpointSize uint64    // entries that the newest checkpoint covers
	CheckpointAt   time.Time // when it was signed; zero: there is none
	Entries        uint64    // that are durable
	Lag            time.Duration
	Err            error
}

// Status returns how the tree is. Lag is the age of the oldest entry that no
// checkpoint covers; 0 when there is none.
func (l *Log) Status(ctx context.Context) (Status, error) {
	l.mu.Lock()
	s := Status{
		Origin: l.cfg.Origin, TreeSize: l.size, CheckpointSize: l.latest.Size, CheckpointAt: l.latest.at, Err: l.fault.err,
	}
	l.mu.Unlock()
	n, err := l.cfg.Ledger.Len(ctx)
	if err != nil {
		return s, err
	}
	s.Entries = n
	if n <= s.CheckpointSize {
		return s, nil
	}
	oldest, err := l.cfg.Ledger.Get(ctx, s.CheckpointSize)
	if err != nil {
		return s, err
	}
	s.Lag = max(0, l.cfg.Now().Sub(oldest.Entry.At))
	return s, nil
}

// tell wakes whoever waits. mu is held.
func (l *Log) tell() {
	close(l.news)
	l.news = make(chan struct{})
}
