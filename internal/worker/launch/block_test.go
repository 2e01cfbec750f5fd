package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// sleeper starts a program under a block, in its control group.
func sleeper(t *testing.T, b *blocks, n int) *account.Process {
	t.Helper()
	group, err := b.groups.Create(b.name(n), b.block(n), account.Limits{})
	must(t, err)
	block := b.block(n)
	p, err := account.Start(account.Program{Path: "/usr/bin/sleep", Args: []string{"1000"}, Block: &block, Group: group})
	must(t, err)
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
		_ = p.Close()
		_ = group.Remove()
	})
	return p
}

func exited(t *testing.T, p *account.Process) bool {
	t.Helper()
	gone, err := account.AwaitExit(p.Handle, 0)
	must(t, err)
	return gone
}

// awaitFlock waits until an end waits for the lock of a file.
func awaitFlock(t *testing.T, path string, ended chan error) {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	inode := fmt.Sprintf(":%d 0 EOF", st.Sys().(*syscall.Stat_t).Ino)
	for {
		f, err := os.Open("/proc/locks")
		must(t, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if strings.Contains(lines.Text(), "-> FLOCK") && strings.HasSuffix(lines.Text(), inode) {
				must(t, f.Close())
				return
			}
		}
		must(t, f.Close())
		select {
		case err := <-ended:
			t.Fatalf("the end does not wait for the lock: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// An end of an attempt that comes late, when its block is given to the next attempt, kills
// nothing. The control is what an end does without the block's lock: the next attempt dies.
//
// proves R-O6
func TestALateEndLeavesTheNextAttemptOfABlockAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	b := p.given(w.launcher()).sys.blocks
	first, next := Running{"d-first", 1}, Running{"d-next", 1}
	taken, err := b.take(first, account.Limits{})
	must(t, err)
	must(t, taken.Close())
	must(t, taken.group.Remove())

	lock, err := b.lock(0) // of the start of the next attempt
	must(t, err)
	ended := make(chan error)
	go func() { ended <- b.end(first) }()
	awaitFlock(t, b.path(0), ended)
	doc, err := canon.Marshal(next)
	must(t, err)
	must(t, os.WriteFile(b.path(0), doc, 0o600))
	process := sleeper(t, b, 0)
	must(t, lock.Close())
	must(t, <-ended)
	if exited(t, process) {
		t.Error("the late end killed the next attempt")
	}
	list, err := b.running()
	if err != nil || len(list) != 1 || list[0] != next {
		t.Errorf("%v, %v runs, want %v", list, err, next)
	}

	group, err := b.groups.Open(b.name(0))
	must(t, err)
	must(t, errors.Join(group.Kill(), b.block(0).Kill()))
	if !exited(t, process) {
		t.Error("control: what an end does kills nothing")
	}
	must(t, b.end(next))
}

// A launcher that is killed while it starts an attempt leaves a control group that no attempt
// has. The next list of what runs removes it, and so does a launcher that ends when idle. The
// control is such a group with a process: it stays.
func TestAGroupOfNoAttemptIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	b := l.sys.blocks
	must(t, os.MkdirAll(b.dir, 0o700))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	must(t, err)
	defer listener.Close() //nolint:errcheck // of a test
	for how, remove := range map[string]func() error{
		"list": func() error { _, err := b.running(); return err },
		"idle": func() error { return NewServer(l, time.Millisecond).Serve(t.Context(), listener) },
	} {
		for n := range 2 {
			f, err := b.lock(n)
			must(t, err)
			must(t, f.Close())
		}
		_, err := b.groups.Create(b.name(0), b.block(0), account.Limits{})
		must(t, err)
		process := sleeper(t, b, 1)
		must(t, remove())
		if _, err := b.groups.Open(b.name(0)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the empty group is left: %v", how, err)
		}
		if group, err := b.groups.Open(b.name(1)); err != nil || exited(t, process) {
			t.Errorf("control: %s: the group of a process is gone: %v", how, err)
		} else {
			must(t, group.Kill())
			must(t, remove())
		}
	}
}
