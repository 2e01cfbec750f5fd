package tlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/tessera"
	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// holdsOff checks what a fault of the tree does: it is said at once, entries
// are durable all the same, what is new is refused after the grace and not
// before; and what comes when it has passed.
func (w *world) holdsOff(t *testing.T, begin, end func()) {
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
		t.Errorf("went back to %d entries", now.Size)
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
func TestAKeyThatDoesNotSignHoldsOffWhatIsNew(t *testing.T) {
	w := newWorld(t)
	signer := &brokenSigner{Signer: w.key}
	must(t, w.open(t, func(c *Config) { c.Signer = signer }))
	w.grow(t, 300)
	w.holdsOff(t, func() { signer.set(errors.New("the key cannot be read")) }, func() { signer.set(nil) })
}

// tmpfs puts a file system of its own where the tree is to be.
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
func TestAFullDiskUnderTheTreeHoldsOffWhatIsNew(t *testing.T) {
	w := newWorld(t)
	w.tmpfs(t, "size=4m")
	must(t, w.open(t))
	w.grow(t, 300)
	ballast := w.path("log", "ballast")
	w.holdsOff(t, func() {
		f, err := os.Create(ballast)
		must(t, err)
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		_ = f.Close()
	}, func() { must(t, os.Remove(ballast)) })
}

// proves R-A2 (no degraded mode): a disk that became read-only is a fault, and
// not the end of the service, which is what the tree's builder would make of it.
func TestAReadOnlyDiskUnderTheTreeHoldsOffWhatIsNew(t *testing.T) {
	w := newWorld(t)
	w.tmpfs(t, "size=16m")
	must(t, w.open(t))
	w.grow(t, 300)
	remount := func(flags uintptr) {
		for i := range 1000 { // a file may be open for writing just now
			err := unix.Mount("", w.path("log"), "", unix.MS_REMOUNT|flags, "size=16m")
			if err == nil {
				return
			}
			if i == 999 || !errors.Is(err, unix.EBUSY) {
				t.Fatal(err)
			}
		}
	}
	w.holdsOff(t, func() { remount(unix.MS_RDONLY) }, func() { remount(0) })
}

// proves R-A2 (no degraded mode)
func TestATreeThatIsTakenAwayWhileTheServiceRunsIsBuiltAgain(t *testing.T) {
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

func TestADirectoryThatCannotBeUsedIsARefusalToStart(t *testing.T) {
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

// A disk that hangs makes no more than a fault: nobody waits for it, and Close
// ends.
func TestABuilderThatHangsIsAFaultAndNoHang(t *testing.T) {
	w := newWorld(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	cfg := w.config()
	cfg.stall = time.Millisecond
	must(t, cfg.validate())
	l := newLog(cfg)
	must(t, os.MkdirAll(filepath.Join(l.tiles.dir, ".state"), 0o700))
	stuck := &builder{
		dir: l.tiles.dir, shutdown: noShutdown, cancel: func() {},
		add: func(_ context.Context, _ *tessera.Entry) tessera.IndexFuture {
			return func() (tessera.Index, error) { <-hang; return tessera.Index{}, errors.New("hung") }
		},
	}
	l.start(t.Context(), stuck, note.NewRange())
	w.grow(t, 1)
	until(t, "the fault", l, func() bool { return l.Err() != nil })
	w.pass(time.Minute)
	if err := l.Admit(); err == nil {
		t.Error("admitted")
	}
	must(t, l.Close())
}

// Tessera may give an entry another number than it has in the table; then the
// tree is not signed, and built again.
func TestAnEntryUnderAnotherNumberIsNeverSigned(t *testing.T) {
	w := newWorld(t)
	w.grow(t, 10)
	cfg := w.config()
	must(t, cfg.validate())
	l := newLog(cfg)
	real, err := openTessera(l.tiles.dir, cfg.Origin)
	must(t, err)
	at := uint64(0)
	shuffled := &builder{dir: real.dir, shutdown: real.shutdown, cancel: real.cancel, add: func(_ context.Context, e *tessera.Entry) tessera.IndexFuture {
		if at++; at == 4 {
			return real.add(t.Context(), tessera.NewEntry([]byte("smuggled in")))
		}
		return real.add(t.Context(), e)
	}}
	list, err := w.ledger.Leaves(t.Context(), 0, audit.LeafBatch)
	must(t, err)
	must(t, <-shuffled.feed(list)) // the numbers are right, one entry is not
	if err := l.advance(note.NewRange(), list); !errors.Is(err, errDamaged) {
		t.Errorf("%v", err)
	}
	if err := <-real.feed(list); !errors.Is(err, errDamaged) {
		t.Errorf("under other numbers: %v", err)
	}
	real.close()
	w.log, err = Open(t.Context(), w.config())
	must(t, err)
	if c := w.covered(t); c.Root != w.reference(t, 10) {
		t.Error("another root")
	}
}

// proves R-A1: however often and whenever the service is killed, the next one
// goes on, and the root is that of the table.
func TestKilledAtAnyMomentTheTreeIsThatOfTheTable(t *testing.T) {
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
		t.Errorf("only %d entries came about", last)
	}
}
