package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// together runs fns in one group: the writer is blocked until all are queued.
func together(t *testing.T, s *Store, fns ...func(*Tx) error) []error {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Update(t.Context(), func(*Tx) error { close(entered); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-entered
	errs := make([]error, len(fns))
	for i, fn := range fns {
		before := len(s.queue)
		wg.Go(func() { errs[i] = s.Update(t.Context(), fn) })
		for len(s.queue) == before { // in this order
			runtime.Gosched()
		}
	}
	close(release)
	wg.Wait()
	return errs
}

// proves R-A2 (one transaction): a failure undoes only its own writes
func TestAFailedFunctionUndoesOnlyItsOwnWrites(t *testing.T) {
	s, dir := create(t)
	mine := errors.New("mine")
	errs := together(
		t, s, insert("a"),
		func(tx *Tx) error { _ = insert("bad1")(tx); return mine },
		insert("b"),
		func(tx *Tx) error { _ = insert("bad2")(tx); panic("boom") },
		func(tx *Tx) error { _, err := tx.Exec("INSERT INTO pair (id, v) VALUES (1, 'bad3')"); return err },
		func(tx *Tx) error { // an error that its function survives
			_, err := tx.Exec("INSERT INTO pair (id, v) VALUES (1, 'bad4')")
			if !errors.Is(err, ErrConstraint) {
				return fmt.Errorf("duplicate key: %w, want ErrConstraint", err)
			}
			return insert("c")(tx)
		},
	)
	if p, ok := errors.AsType[*PanicError](errs[3]); !ok || p.Value != "boom" {
		t.Errorf("panic: %v", errs[3])
	}
	if errs[0] != nil || !errors.Is(errs[1], mine) || errs[2] != nil || !errors.Is(errs[4], ErrConstraint) || errs[5] != nil {
		t.Errorf("answers: %v", errs)
	}
	if got := values(t, reopen(t, s, dir)); got != "a b c" {
		t.Errorf("stored: %q, want the three that succeeded", got)
	}
}

// The control: without a savepoint the commit of the others includes the writes of
// a failed function.
func TestWithoutASavepointAFailedFunctionsWritesWouldStay(t *testing.T) {
	for _, save := range []bool{true, false} {
		s, dir := create(t)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		w, err := openWriter(t.Context(), filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		tx := &Tx{w: w, save: save}
		if err := w.exec("BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		if err := insert("bad")(tx); err != nil {
			t.Fatal(err)
		}
		if tx.saved {
			if err := w.exec("ROLLBACK TO f"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.exec("COMMIT"); err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := (&Tx{w: w}).Get("SELECT count(*) FROM pair", nil, &n); err != nil || (n == 0) != save {
			t.Errorf("savepoint %v: %d rows remain, %v", save, n, err)
		}
		_ = w.close()
	}
}

func TestASingleFunctionIsUndoneWithoutASavepoint(t *testing.T) {
	s, dir := create(t)
	mine := errors.New("mine")
	if err := s.Update(t.Context(), func(tx *Tx) error { _ = insert("bad")(tx); return mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	err := s.Update(t.Context(), func(tx *Tx) error { _ = insert("bad")(tx); panic("boom") })
	if _, ok := errors.AsType[*PanicError](err); !ok {
		t.Error(err)
	}
	if err := s.Update(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	if got := values(t, reopen(t, s, dir)); got != "a" {
		t.Errorf("stored: %q", got)
	}
}

func TestACancelledCallerIsNeverRefusedAfterACommit(t *testing.T) {
	s, _ := create(t)
	entered, release := make(chan struct{}), make(chan struct{})
	begun, cancelBegun := context.WithCancel(t.Context())
	answer := make(chan error)
	go func() {
		answer <- s.Update(begun, func(tx *Tx) error { close(entered); <-release; return insert("begun")(tx) })
	}()
	<-entered
	// Queued behind it, and withdrawn: it never runs.
	queued, cancelQueued := context.WithCancel(t.Context())
	withdrawn := make(chan error)
	go func() { withdrawn <- s.Update(queued, insert("withdrawn")) }()
	for len(s.queue) == 0 {
		runtime.Gosched()
	}
	cancelQueued()
	if err := <-withdrawn; !errors.Is(err, context.Canceled) {
		t.Errorf("withdrawn: %v", err)
	}
	// Under way, and cancelled: it is stored and says so.
	cancelBegun()
	close(release)
	if err := <-answer; err != nil {
		t.Errorf("cancelled after it began: %v, want nil", err)
	}
	if err := s.Update(begun, insert("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context: %v", err)
	}
	if err := s.Update(t.Context(), insert("last")); err != nil {
		t.Fatal(err)
	}
	if got := values(t, s); got != "begun last" {
		t.Errorf("stored: %q", got)
	}
}

func TestCloseFinishesWhatIsQueued(t *testing.T) {
	s, dir := create(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.Update(t.Context(), func(*Tx) error { close(entered); <-release; return nil })
	})
	<-entered
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { errs[i] = s.Update(t.Context(), insert("x")) })
	}
	for len(s.queue) < len(errs) {
		runtime.Gosched()
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for s.refusal() == nil {
		runtime.Gosched()
	}
	if err := s.Update(t.Context(), insert("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
	if err := s.Read(t.Context(), func(*View) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Read after Close: %v, want ErrClosed", err)
	}
	close(release)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if got := strings.Count(values(t, reopen(t, s, dir)), "x"); got != len(errs) {
		t.Errorf("%d stored of %d", got, len(errs))
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestAFunctionCannotReachBeyondItsSavepoint(t *testing.T) {
	s, _ := create(t)
	var kept *Tx
	err := s.Update(t.Context(), func(tx *Tx) error {
		kept = tx
		for _, q := range []string{
			"COMMIT", "ROLLBACK", "begin", "SAVEPOINT x", "RELEASE f", "PRAGMA synchronous = OFF", "ATTACH 'x' AS y", "DROP TABLE pair",
			"INSERT INTO pair (v) VALUES ('x'); COMMIT", "INSERT OR ROLLBACK INTO pair (v) VALUES ('x')", "",
		} {
			if _, err := tx.Exec(q); err == nil {
				t.Errorf("%q ran", q)
			}
		}
		return insert("a")(tx) // the control
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := insert("late")(kept); err == nil {
		t.Error("a transaction was used after its end")
	}
	if got := values(t, s); got != "a" {
		t.Errorf("stored: %q", got)
	}
}

func TestGoexitInAFunctionPoisonsTheStore(t *testing.T) {
	s, dir := create(t)
	if err := s.Update(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	changed := s.Committed()
	errs := together(t, s, insert("b"), func(*Tx) error { runtime.Goexit(); return nil }, insert("c"))
	for i, err := range append(errs, s.Update(t.Context(), insert("d")), s.Read(t.Context(), func(*View) error { return nil })) {
		if !errors.Is(err, ErrPoisoned) || errors.Is(err, ErrUncertain) {
			t.Errorf("%d: %v, want ErrPoisoned", i, err)
		}
	}
	<-changed
	if got := values(t, reopen(t, s, dir)); got != "a" {
		t.Errorf("stored: %q", got)
	}
}

func TestTheWriteAheadLogIsCheckpointedAndReused(t *testing.T) {
	s, dir := create(t)
	big := strings.Repeat("x", 64<<10)
	for range 4 * defaultCheckpointPages / 16 { // four times what is kept
		if err := s.Update(t.Context(), insert(big)); err != nil {
			t.Fatal(err)
		}
	}
	fi, err := os.Stat(filepath.Join(dir, fileName+"-wal"))
	if limit := int64(defaultCheckpointPages+defaultCheckpointJobs*20) * 4200; err != nil || fi.Size() > limit {
		t.Errorf("the write-ahead log has %d bytes, %v; want at most %d", fi.Size(), err, limit)
	}
}
