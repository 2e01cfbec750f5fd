package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
)

const (
	maxGroup = 512 // functions in one transaction

	// The write-ahead log is folded into the file when it has grown by this
	// many pages (4 MiB), and again after each such growth while a reader
	// holds it. It is reused from its start, never truncated: overwriting a
	// file that has its size already is what makes the sync cheap.
	checkpointPages = 1024

	// Asking how long it is costs as much as a statement, so that is done once
	// in so many functions; each dirties a handful of pages.
	checkpointJobs = 64
)

// job is one caller's function. Exactly one of the caller (by withdrawing) and
// the writer (by starting it) gets to move it on from waiting.
type job struct {
	fn      func(*Tx) error
	claimed atomic.Bool
	answer  chan error // buffered
	err     error      // of fn; owned by the writer
}

// Update runs fn in a transaction on the writer's goroutine and returns when
// the outcome is durable: nil only if it is.
//
// The error of fn undoes what fn wrote and comes back as it is; so does a
// panic, as a PanicError. fn must not wait for anything, least of all for the
// store, since every writer waits for it.
//
// Cancelling ctx withdraws fn as long as it has not begun: the error is then
// ctx's and fn never runs. Once it has begun, Update waits for the outcome
// whatever ctx says, so that a caller is never told no about something that
// was stored. The one answer that is neither is ErrUncertain.
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

// run is the writer goroutine. It ends when Close has closed the queue and
// everything in it is answered.
func (s *Store) run() {
	group := make([]*job, 0, maxGroup)
	ended := false
	defer func() {
		if ended {
			close(s.stopped)
			return
		}
		// A function called runtime.Goexit and takes this goroutine with it.
		// The next one refuses everything, so no caller waits for ever.
		s.refuse(group, errors.New("a transaction's function ended the writer"), false)
		go s.run()
	}()
	var folded int64 // pages of the write-ahead log when it was last folded
	jobs := 0        // since it was asked how many they are
	for j := range s.queue {
		group = s.gather(append(group[:0], j))
		if s.commit(group) {
			jobs += len(group)
		}
		if jobs >= s.foldJobs {
			folded, jobs = s.checkpoint(folded), 0
		}
		clear(group)
	}
	ended = true
}

// gather adds what else has arrived.
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

// commit runs the group in one transaction and answers everyone in it. It
// reports whether something was committed.
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
		s.refuse(live, err, false)
		return false
	}
	wrote, err := s.apply(live)
	if err != nil {
		_ = s.write.exec("ROLLBACK") // SQLite may have done it by itself, and nothing follows anyway
		s.refuse(live, err, false)
		return false
	}
	failpoint.Hit(failpoint.StoreCommit, s.path)
	if err := s.write.exec(ending(wrote)); err != nil {
		s.refuse(live, err, wrote)
		return false
	}
	failpoint.Hit(failpoint.StoreCommitted, s.path)
	for _, j := range live {
		j.answer <- j.err
	}
	if wrote {
		s.committed.tell()
	}
	return wrote
}

func ending(wrote bool) string {
	if wrote {
		return "COMMIT"
	}
	return "ROLLBACK"
}

// apply runs each function in its own savepoint. Its error is the disk's; the
// functions' own are in their jobs.
func (s *Store) apply(live []*job) (wrote bool, err error) {
	// A function that is alone needs no savepoint: the transaction is its own.
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

// refuse poisons the store and tells the group. Uncertain is for a commit that
// was tried: its frames may have reached the disk and count after a restart.
func (s *Store) refuse(group []*job, cause error, uncertain bool) {
	p := &PoisonedError{Path: s.path, Cause: cause}
	if s.poison.CompareAndSwap(nil, p) {
		s.log.LogAttrs(context.Background(), slog.LevelError, "state database failed; everything is refused until a restart",
			slog.String("path", s.path), slog.Any("error", cause))
	}
	var err error = s.poison.Load()
	if uncertain {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	answerAll(group, err)
	s.committed.tell() // those who wait for the next commit learn that there is none
}

// answerAll may meet a job twice where a group was cut short; its first answer
// counts.
func answerAll(group []*job, err error) {
	for _, j := range group {
		select {
		case j.answer <- err:
		default:
		}
	}
}

// checkpoint folds the write-ahead log into the file when it has grown enough
// since it was folded pages long, and returns how long it is now if it did.
// SQLite's own automatic checkpoint would do it too, but hides its errors.
func (s *Store) checkpoint(folded int64) int64 {
	size, err := s.walPages("PRAGMA wal_checkpoint(NOOP)")
	if err == nil && size < folded {
		folded = 0 // the log was reused from its start
	}
	if err == nil && size-folded >= s.foldPages {
		folded, err = s.walPages("PRAGMA wal_checkpoint(PASSIVE)")
	}
	if err != nil {
		s.refuse(nil, fmt.Errorf("checkpoint: %w", err), false)
	}
	return folded
}

func (s *Store) walPages(pragma string) (size int64, err error) {
	st, err := s.write.stmt(pragma) //nolint:sqlclosecheck // the connection keeps it
	if err != nil {
		return 0, err
	}
	var busy, done int64
	err = st.QueryRow().Scan(&busy, &size, &done) //nolint:noctx // as every statement of the writer
	return size, err
}
