package launch

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// A launcher that has nothing to do ends, so that no process is left when idle; its workers stay,
// and the next launcher finds them.
func TestALauncherEndsWhenIdle(t *testing.T) {
	w := newWorld(t)
	l := w.launcher()
	m := w.manifest("edit")
	a, who := w.attempt(m), Running{m.ID, 1}
	end := touch(t, a, "stay")
	p, err := l.Worker(t.Context(), a)
	must(t, err)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	must(t, err)
	defer listener.Close() //nolint:errcheck // of a test
	must(t, NewServer(l, time.Millisecond).Serve(t.Context(), listener))
	alive(t, w, who, true)
	end()
	must(t, p.Wait())
	alive(t, w, who, false)
}

// A control group that an earlier launcher left is used again if no process is in it. The
// control is one with a process: its block is not given.
func TestAStaleGroupIsUsedAgainOnceItIsEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	b := p.given(w.launcher()).sys.blocks
	group, err := b.groups.Create(b.name(0), b.block(0), account.Limits{})
	must(t, err)
	left, err := account.Start(account.Program{Path: "/usr/bin/sleep", Args: []string{"1000"}, Group: group})
	must(t, err)
	other, err := p.given(w.launcher()).sys.blocks.take(Running{"d-other", 1}, account.Limits{})
	must(t, err)
	if other.Block == b.block(0) {
		t.Error("control: the block of a running process is given")
	}
	must(t, left.Kill())
	_, err = left.Wait()
	must(t, err)
	must(t, left.Close())
	again, err := p.given(w.launcher()).sys.blocks.take(Running{"d-again", 1}, account.Limits{})
	must(t, err)
	if again.Block != b.block(0) {
		t.Errorf("block %d is given, want %d", again.First, b.first)
	}
	for _, f := range []*os.File{other.lock, again.lock} {
		must(t, f.Close())
	}
}
