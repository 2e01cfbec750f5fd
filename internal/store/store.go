// Package store is the state database: one SQLite file, one owner process,
// one writer.
//
// What a caller may rely on:
//
//   - A nil error from Update means that everything its function wrote is on
//     the disk, synced. Functions that arrive together share one transaction
//     and one fsync; each runs in its own savepoint, so what one of them does
//     wrong undoes nothing of another's.
//   - Any failure of the disk (an I/O error, a full disk, a failed commit, sync
//     or checkpoint, a page that is not what it should be) poisons the store:
//     everything is refused until the process starts again, and nothing is
//     tried twice, because after a failed fsync the kernel may have dropped
//     the pages and will say yes the second time. A full disk is no exception:
//     one rule is easier to rely on, and a start after space was made always
//     works.
//   - Readers see a consistent snapshot of what is durable and never wait for
//     the writer.
//
// The package knows no domain words: those who use it bring their own schema
// as numbered migrations. It never opens a file outside its directory.
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
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// Config says where the state is and what is in it.
type Config struct {
	Dir        string       // directory of the database; mode 0700, of nobody but the owner
	Migrations []Migration  // the schema of each package that keeps state; all of them, always
	Logger     *slog.Logger // nil discards
	// Observe is told on the writer's goroutine that a transaction of so many
	// functions begins; what it returns is called when it has ended. Nil: nobody
	// is told.
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

// Store is an open state database. All methods may be called from any
// goroutine.
type Store struct {
	path  string
	log   *slog.Logger
	lock  *lock
	read  *sql.DB
	write *writeConn // owned by the writer goroutine once it runs

	observe func(int) func()
	queue   chan *job
	stopped chan struct{} // closed when the writer goroutine has ended
	poison  atomic.Pointer[PoisonedError]

	mu     sync.RWMutex // held for reading while a job enters the queue
	closed bool         // guarded by mu

	committed notice

	// When the write-ahead log is folded into the file: see writer.go. Tests
	// fold more often; owned by the writer goroutine.
	foldPages int64
	foldJobs  int
}

// Create makes the state in an empty or absent directory and opens it. A crash
// during Create leaves no database behind.
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
		return nil, errors.Join(err, l.release())
	}
	return openLocked(ctx, cfg, l)
}

// Open opens existing state. It refuses with ErrNotExist where there is none,
// with OwnedError where another process has it, and with CorruptError where
// the file is damaged, foreign or newer than this program.
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

func openLocked(ctx context.Context, cfg Config, l *lock) (_ *Store, err error) {
	s := &Store{
		path: filepath.Join(cfg.Dir, fileName), log: cfg.Logger, lock: l, observe: cfg.Observe,
		queue: make(chan *job, maxGroup), stopped: make(chan struct{}),
		foldPages: checkpointPages, foldJobs: checkpointJobs,
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
	// SQLite syncs the name of the log that it made, and ignores a failure of
	// that. So it is done before, and nothing is acknowledged without it.
	if err := durable.Sync(cfg.Dir); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", cfg.Dir, err)
	}
	if err := s.write.migrate(ctx, s.path, cfg.Migrations); err != nil {
		return nil, damage(s.path, err)
	}
	if s.read, err = openReaders(ctx, s.path); err != nil {
		return nil, damage(s.path, err)
	}
	go s.run()
	return s, nil
}

// Close refuses new work, lets what was queued finish, and gives the state up.
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
	s.committed.tell() // there will be no next one
	return s.release()
}

// release closes what is open, in an order that lets the last connection
// fold the write-ahead log into the file while the lock is still held. After a
// failure of the disk that would be trying again what failed, on top of what
// nobody knows: the last one is then a reader, which cannot.
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
	return errors.Join(append(errs, s.lock.release())...)
}

// closeWriteFirst closes the writer beside a reader that has the log open.
func (s *Store) closeWriteFirst() error {
	ctx := context.Background()
	conn, err := s.read.Conn(ctx)
	if err != nil {
		return err // and the writer ends with the process
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

// Committed returns a channel that is closed after the next commit, and when
// there will be none. Take it, then read, then wait: nothing is missed and
// nothing is polled.
func (s *Store) Committed() <-chan struct{} { return s.committed.next() }

// Poisoned returns the error that the store refuses everything with, or nil.
func (s *Store) Poisoned() error {
	if p := s.poison.Load(); p != nil {
		return p
	}
	return nil
}

// notice tells any number of waiters that something happened.
type notice struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits; guarded by mu
}

func (n *notice) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notice) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
