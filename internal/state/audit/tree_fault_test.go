package audit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testFault tests a fault of the tree: it is reported at once, entries stay
// durable, new work is refused after the grace and not before, and the tree
// recovers when the fault ends.
func (w *world) testFault(t *testing.T, begin, end func()) {
	t.Helper()
	c := w.covered(t)
	must(t, w.log.Err())
	begin()
	w.grow(t, 3)
	until(t, "the fault", w.log, func() bool { return w.log.Err() != nil })
	if err := w.log.Admit(); err != nil {
		t.Errorf("refused at once: %v", err)
	}
	w.pass(29 * time.Second)
	w.grow(t, 1)
	if err := w.log.Admit(); err != nil {
		t.Errorf("refused within the grace: %v", err)
	}
	w.pass(2 * time.Second)
	if err := w.log.Admit(); err == nil {
		t.Error("admitted after the grace")
	}
	if _, now := w.log.Latest(); now.Size < c.Size {
		t.Errorf("the checkpoint shrank to %d entries", now.Size)
	}
	if n, err := w.ledger.Len(t.Context()); err != nil || n != uint64(w.n) {
		t.Errorf("%d of %d entries are durable: %v", n, w.n, err)
	}
	end()
	c = w.covered(t)
	until(t, "the recovery", w.log, func() bool { return w.log.Err() == nil })
	if err := w.log.Admit(); err != nil || c.Root != w.reference(t, c.Size) {
		t.Errorf("after: %v, root %x", err, c.Root)
	}
	if _, err := w.log.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// proves R-A2 (no degraded mode)
func TestAFailingSignerRefusesNewWorkAfterTheGrace(t *testing.T) {
	w := newWorld(t)
	signer := &brokenSigner{Signer: w.key}
	must(t, w.open(t, func(c *TreeConfig) { c.Signer = signer }))
	w.grow(t, 300)
	w.testFault(t, func() { signer.set(errors.New("the key cannot be read")) }, func() { signer.set(nil) })
}

// tmpfs mounts a file system for the tree.
func (w *world) tmpfs(t *testing.T, options string) {
	t.Helper()
	must(t, os.MkdirAll(w.path("log"), 0o700))
	must(t, unix.Mount("tmpfs", w.path("log"), "tmpfs", 0, options))
	t.Cleanup(func() {
		w.close()
		_ = unix.Unmount(w.path("log"), unix.MNT_DETACH)
	})
}

// proves R-A2 (no degraded mode)
func TestAFullDiskUnderTheTreeRefusesNewWorkAfterTheGrace(t *testing.T) {
	w := newWorld(t)
	w.tmpfs(t, "size=4m")
	must(t, w.open(t))
	w.grow(t, 300)
	ballast := w.path("log", "ballast")
	w.testFault(t, func() {
		f, err := os.Create(ballast)
		must(t, err)
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		_ = f.Close()
	}, func() { must(t, os.Remove(ballast)) })
}

// proves R-A2 (no degraded mode)
func TestAReadOnlyDiskUnderTheTreeRefusesNewWorkAfterTheGrace(t *testing.T) {
	w := newWorld(t)
	w.tmpfs(t, "size=16m")
	must(t, w.open(t))
	w.grow(t, 300)
	remount := func(flags uintptr) {
		for i := range 1000 { // a file may be open for writing
			err := unix.Mount("", w.path("log"), "", unix.MS_REMOUNT|flags, "size=16m")
			if err == nil {
				return
			}
			if i == 999 || !errors.Is(err, unix.EBUSY) {
				t.Fatal(err)
			}
		}
	}
	w.testFault(t, func() { remount(unix.MS_RDONLY) }, func() { remount(0) })
}

// proves R-A2 (no degraded mode)
func TestATreeDeletedAtRunTimeIsRebuilt(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 700)
	w.covered(t)
	for i := range 5 {
		must(t, os.RemoveAll(w.path("log", "tree")))
		w.grow(t, 1+i*100)
		c := w.covered(t)
		if c.Root != w.reference(t, c.Size) {
			t.Errorf("another root")
		}
	}
	until(t, "the recovery", w.log, func() bool { return w.log.Err() == nil })
	if n, err := w.log.Check(t.Context()); err != nil || n != uint64(w.n) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestOpenTreeRefusesAnUnusableDirectory(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.path("log"), nil, 0o600))
	if err := w.open(t); err == nil || !strings.Contains(err.Error(), w.path("log")) {
		t.Errorf("a file: %v", err)
	}
	must(t, os.Remove(w.path("log")))
	w.tmpfs(t, "size=4m,ro")
	if err := w.open(t); err == nil || !strings.Contains(err.Error(), w.path("log")) {
		t.Errorf("read-only: %v", err)
	}
}

// A hanging disk is a fault: no caller waits for it, and Close returns.
func TestAHangingDiskIsAFaultAndDoesNotBlockClose(t *testing.T) {
	w := newWorld(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	opened := false
	must(t, w.open(t, func(c *TreeConfig) {
		c.stall = time.Millisecond
		c.replace = func(path string, b []byte) error {
			if opened {
				<-hang
				return errors.New("hung")
			}
			opened = true
			return replaceFile(path, b)
		}
	}))
	w.grow(t, 1)
	until(t, "the fault", w.log, func() bool { return w.log.Err() != nil })
	w.pass(time.Minute)
	if err := w.log.Admit(); err == nil {
		t.Error("admitted")
	}
	must(t, w.log.Close())
}

// An entry that is rewritten while the service runs is not signed again with later
// entries of its bundle.
func TestAnEntryRewrittenAtRunTimeIsRefused(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 300)
	c := w.covered(t)
	w.rewrite(t, 270)
	w.grow(t, 1)
	until(t, "the fault", w.log, func() bool { return errors.Is(w.log.Err(), ErrChanged) })
	if _, now := w.log.Latest(); now != c {
		t.Errorf("signed %+v after %+v", now, c)
	}
	if err := w.log.Admit(); !errors.Is(err, ErrChanged) {
		t.Errorf("admitted: %v", err)
	}
}

// proves R-A1: after any number of kills at any moment the next service extends the
// tree, and its root is that of the table.
func TestTheTreeMatchesTheTableAcrossKills(t *testing.T) {
	w := newWorld(t)
	w.close()
	last := uint64(0)
	for round := range max(8/shrink, 3) {
		kill(t, w.dir, fmt.Sprint(round), 3+round*5)
		must(t, w.open(t))
		n, err := w.ledger.Len(t.Context())
		must(t, err)
		w.n = int(n)
		c := w.covered(t)
		if n < last || c.Size != n || c.Root != w.reference(t, n) {
			t.Errorf("round %d: %d entries after %d, checkpoint of %d", round, n, last, c.Size)
		}
		last = n
		if _, err := w.log.Check(t.Context()); err != nil {
			t.Error(err)
		}
		w.close()
	}
	if last < 300/shrink {
		t.Errorf("only %d entries were written", last)
	}
}
