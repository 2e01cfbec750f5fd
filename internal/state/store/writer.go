package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

const (
	maxGroup = 512 // functions in one transaction

	// The write-ahead log is checkpointed when it has this many pages (4 MiB) that
	// the database lacks. It is reused from its start; see maxLogBytes.
	defaultCheckpointPages = 1024

	// Reading its length costs as much as a statement, so it is read once per this
	// many functions. Each dirties a few pages.
	defaultCheckpointJobs = 64
)

// job is the function of one caller. It is claimed either by the caller, to withdraw
// it, or by the writer, to run it.
type job struct {
	fn      func(*Tx) error
	claimed atomic.Bool
	answer  chan error // buffered
	err     error      // of fn; owned by the writer
}

// Update runs fn in a transaction on the writer's goroutine and returns when the
// outcome is durable.
//
// An error of fn undoes its writes and is returned as is; so does a panic, as a
// PanicError. fn must not block, least of all on the store, since every writer
// waits for it.
//
// Cancelling ctx before fn starts withdraws fn, and Update returns the error of
// ctx. Once fn has started, Update waits for the outcome regardless of ctx, so an
// error means that nothing was stored, except for ErrUncertain.
func (s *Store) Update(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{fn: fn, answer: make(chan error, 1)}
	if err := s.enqueue(ctx, j); err != nil {
		return err
	}
	select {
	case err := <-j.answer:
		return err
	case <-ctx.Done():
		if j.claimed.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		return <-j.answer
	}
}

func (s *Store) enqueue(ctx context.Context, j *job) error {
	if err := s.Poisoned(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	select {
	case s.queue <- j:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the writer goroutine. It returns when Close has closed the queue and every
// job is answered.
func (s *Store) run() {
	group := make([]*job, 0, maxGroup)
	ended := false
	defer func() {
		if ended {
			close(s.stopped)
			return
		}
		// A function called runtime.Goexit. The next goroutine refuses everything, so
		// no caller waits for ever.
		s.fail(group, errors.New("a transaction's function called runtime.Goexit"), false)
		go s.run()
	}()
	jobs := 0 // since the last look at the write-ahead log
	for j := range s.queue {
		group = s.gather(append(group[:0], j))
		if s.commit(group) {
			jobs += len(group)
		}
		if jobs >= s.checkpointJobs {
			s.checkpoint()
			jobs = 0
		}
		clear(group)
	}
	ended = true
}

// gather adds the jobs that are queued.
func (s *Store) gather(group []*job) []*job {
	for len(group) < maxGroup {
		select {
		case j, ok := <-s.queue:
			if !ok {
				return group
			}
			group = append(group, j)
		default:
			return group
		}
	}
	return group
}

// commit runs the group in one transaction and answers its jobs. It reports whether
// anything was committed.
func (s *Store) commit(group []*job) bool {
	live := group[:0]
	for _, j := range group {
		if j.claimed.CompareAndSwap(false, true) {
			live = append(live, j)
		}
	}
	if p := s.poison.Load(); p != nil {
		answerAll(live, p)
		return false
	}
	if len(live) == 0 {
		return false
	}
	defer s.observe(len(live))()
	if err := s.write.exec("BEGIN IMMEDIATE"); err != nil {
		s.fail(live, err, false)
		return false
	}
	wrote, err := s.apply(live)
	if err != nil {
		_ = s.write.exec("ROLLBACK") // SQLite may have rolled back already
		s.fail(live, err, false)
		return false
	}
	failpoint.Hit(failpoint.StoreCommit, s.path)
	if err := s.write.exec(endStatement(wrote)); err != nil {
		s.fail(live, err, wrote)
		return false
	}
	failpoint.Hit(failpoint.StoreCommitted, s.path)
	for _, j := range live {
		j.answer <- j.err
	}
	if wrote {
		s.committed.broadcast()
	}
	return wrote
}

func endStatement(wrote bool) string {
	if wrote {
		return "COMMIT"
	}
	return "ROLLBACK"
}

// apply runs each function in its own savepoint. It returns a disk failure; errors of
// the functions are in their jobs.
func (s *Store) apply(live []*job) (wrote bool, err error) {
	// A single function needs no savepoint.
	alone := len(live) == 1
	for _, j := range live {
		tx := &Tx{w: s.write, save: !alone}
		j.err = call(tx, j.fn)
		tx.over = true
		switch {
		case tx.broken != nil:
			return false, tx.broken
		case !tx.wrote:
		case j.err == nil:
			wrote = true
			if tx.saved {
				err = s.write.exec("RELEASE f")
			}
		case tx.saved:
			err = errors.Join(s.write.exec("ROLLBACK TO f"), s.write.exec("RELEASE f"))
		}
		if err != nil {
			return false, err
		}
	}
	return wrote, nil
}

func call(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(tx)
}

// fail poisons the store and answers the group. uncertain means that a commit was
// tried: its frames may have reached the disk and count after a restart.
func (s *Store) fail(group []*job, cause error, uncertain bool) {
	p := &PoisonedError{Path: s.path, Cause: cause}
	if s.poison.CompareAndSwap(nil, p) {
		s.log.LogAttrs(context.Background(), slog.LevelError, "state database failed; refusing everything until it is opened again",
			slog.String("path", s.path), slog.Any("error", cause))
	}
	var err error = s.poison.Load()
	if uncertain {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	answerAll(group, err)
	s.committed.broadcast() // no further commit will come
}

// answerAll answers the jobs that have no answer yet.
func answerAll(group []*job, err error) {
	for _, j := range group {
		select {
		case j.answer <- err:
		default:
		}
	}
}

// checkpoint checkpoints the write-ahead log when it has enough pages that the
// database lacks. A reader may block some of them: then the next call tries again.
// SQLite's automatic checkpoints hide their errors.
func (s *Store) checkpoint() {
	pending, err := s.walPages("PRAGMA wal_checkpoint(NOOP)")
	if err == nil && pending >= s.checkpointPages {
		_, err = s.walPages("PRAGMA wal_checkpoint(PASSIVE)")
	}
	if err != nil {
		s.fail(nil, fmt.Errorf("checkpoint: %w", err), false)
	}
}

// walPages returns how many pages of the log the database lacks.
func (s *Store) walPages(pragma string) (pending int64, err error) {
	st, err := s.write.stmt(pragma) //nolint:sqlclosecheck // the connection keeps it
	if err != nil {
		return 0, err
	}
	var busy, size, done int64
	err = st.QueryRow().Scan(&busy, &size, &done) //nolint:noctx // as every statement of the writer
	return size - done, err
}
