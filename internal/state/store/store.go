// Package store is the state database: one SQLite file, one owner process,
// one writer.
//
// What a caller may rely on:
//
//   - A nil error from Update means that the writes of its function are durable.
//     Concurrent functions share one transaction and one fsync; each runs in its
//     own savepoint, so the failure of one undoes nothing of another's.
//   - Any failure of the disk (an I/O error, a full disk, a failed commit, sync
//     or checkpoint, a corrupt page) poisons the store: it refuses everything
//     until it is closed and opened again, and retries nothing, because after a
//     failed fsync the kernel may have dropped the pages and report success the
//     second time. Open copies the write-ahead log into the database and syncs it
//     before anything else, so what a reader saw is on the disk.
//     PoisonedError.Full says that opening it works once there is room; the
//     Reserve keeps some.
//   - Readers see a consistent snapshot of durable state and never wait for the
//     writer.
//
// The package knows nothing of the domain: its users bring their schemas as
// numbered migrations. It never opens a file outside its directory.
//
// Carries R-A2 (one transaction, no degraded mode) and the lock of R-O1 (a
// second owner is refused).
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Config configures a store.
type Config struct {
	Dir        string       // directory of the database, mode 0700
	Migrations []Migration  // the schemas of all packages that keep state
	Logger     *slog.Logger // nil discards
	// Observe, if not nil, is called on the writer's goroutine before a transaction
	// of that many functions, and its result after it.
	Observe func(functions int) (ended func())
}

func (c *Config) validate() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("state directory %q: want an absolute path", c.Dir)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(int) func() { return func() {} }
	}
	return validateMigrations(c.Migrations)
}

// Store is an open state database, safe for concurrent use.
type Store struct {
	path  string
	log   *slog.Logger
	lock  *os.File
	read  *sql.DB
	write *writeConn // owned by the writer goroutine once it runs

	observe func(int) func()
	queue   chan *job
	stopped chan struct{} // closed when the writer goroutine returns
	poison  atomic.Pointer[PoisonedError]

	mu     sync.RWMutex // held for reading while a job enters the queue
	closed bool         // guarded by mu

	committed event

	// See defaultCheckpointPages and -Jobs; tests lower them. Owned by the
	// writer goroutine.
	checkpointPages int64
	checkpointJobs  int
}

// Create creates the state in an empty or missing directory and opens it. A crash
// during Create leaves no database.
func Create(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, err
	}
	l, err := acquire(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := createFile(ctx, cfg.Dir); err != nil {
		return nil, errors.Join(err, durable.Release(l))
	}
	return openLocked(ctx, cfg, l)
}

// Open opens existing state. The error is ErrNotExist when there is no state, an
// OwnedError when another process has it, and a CorruptError when the file is
// damaged, foreign or newer than this program.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := checkDir(cfg.Dir); err != nil {
		return nil, err
	}
	l, err := acquire(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	return openLocked(ctx, cfg, l)
}

func openLocked(ctx context.Context, cfg Config, l *os.File) (_ *Store, err error) {
	s := &Store{
		path: filepath.Join(cfg.Dir, fileName), log: cfg.Logger, lock: l, observe: cfg.Observe,
		queue: make(chan *job, maxGroup), stopped: make(chan struct{}),
		checkpointPages: defaultCheckpointPages, checkpointJobs: defaultCheckpointJobs,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if err := checkFiles(cfg.Dir); err != nil {
		return nil, err
	}
	if s.write, err = openWriter(ctx, s.path); err != nil {
		return nil, damage(s.path, err)
	}
	if err := s.write.check(ctx, s.path, cfg.Logger); err != nil {
		return nil, err
	}
	// SQLite ignores a failure to sync the name of its write-ahead log, so it is
	// synced here, before anything is acknowledged.
	if err := durable.Sync(cfg.Dir); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", cfg.Dir, err)
	}
	if err := s.write.migrate(ctx, s.path, cfg.Migrations); err != nil {
		return nil, damage(s.path, err)
	}
	if err := s.write.emptyLog(ctx); err != nil {
		return nil, damage(s.path, err)
	}
	if s.read, err = openReaders(ctx, s.path); err != nil {
		return nil, damage(s.path, err)
	}
	go s.run()
	return s, nil
}

// Close refuses new work, finishes what is queued, and releases the state.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.stopped
		return nil
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	<-s.stopped
	s.committed.broadcast() // no further commit will come
	return s.release()
}

// release closes everything in an order that lets the last connection checkpoint
// the write-ahead log under the lock. After a disk failure that would retry what
// failed, on unknown state: then the last connection is a reader, which cannot.
func (s *Store) release() error {
	var errs []error
	if s.read != nil && s.write != nil && s.Poisoned() != nil {
		errs = append(errs, s.closeWriteFirst())
		s.write = nil
	}
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.close())
	}
	return errors.Join(append(errs, durable.Release(s.lock))...)
}

// closeWriteFirst closes the writer beside a reader that has the log open.
func (s *Store) closeWriteFirst() error {
	ctx := context.Background()
	conn, err := s.read.Conn(ctx)
	if err != nil {
		return err // the writer stays open until the process exits
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	var n int
	err = tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n)
	if err != nil {
		return errors.Join(err, tx.Rollback(), conn.Close())
	}
	return errors.Join(s.write.close(), tx.Rollback(), conn.Close())
}

// Committed returns a channel that is closed after the next commit, or when no
// further commit can come. Callers get it before they read, and then wait on it,
// so they miss no commit.
func (s *Store) Committed() <-chan struct{} { return s.committed.next() }

// Poisoned returns the error with which a poisoned store refuses everything, or nil.
func (s *Store) Poisoned() error {
	if p := s.poison.Load(); p != nil {
		return p
	}
	return nil
}

// event wakes any number of waiters.
type event struct {
	mu sync.Mutex
	ch chan struct{} // nil without waiters; guarded by mu
}

func (n *event) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *event) broadcast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
