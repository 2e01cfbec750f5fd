//go:build linux

package jail

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/uidblock"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// TestAllTestsPassInABlock runs all tests of this package again, as a worker of mode system runs: root of a user namespace of
// three ids, in a root directory of its own.
//
// proves R-S1, R-S2
func TestAllTestsPassInABlock(t *testing.T) {
	if !realRoot() {
		return // this is that run, or it takes root
	}
	agents, err := pinnedAgents()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(runInBlock(t, agents, "-test.v", "-test.count=1", "-test.timeout=9m"))) {
		if strings.HasPrefix(line, "--- ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// TestAttacksFailInABlock is the part of TestAllTestsPassInABlock that takes no agent programs, and fails if limits are not held by
// control groups although this machine has the controllers.
//
// proves R-S1, R-S2
func TestAttacksFailInABlock(t *testing.T) {
	if !realRoot() {
		return // likewise
	}
	const some = "TestAttacksFailInsideAndSucceedOutside|TestTheProcessLimit|TestTheMemoryLimit|TestTheDiskLimit|TestAJailInABlock|TestCloseRemovesGroups"
	for line := range strings.Lines(string(runInBlock(t, "", "-test.v", "-test.count=1", "-test.timeout=25m", "-test.run="+some))) {
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, "limits: ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// runInBlock runs the tests under a block with arguments and, unless "", the directory of agent programs, and returns the output.
func runInBlock(t *testing.T, agents string, args ...string) []byte {
	t.Helper()
	home, err := os.MkdirTemp("", "b") //nolint:usetesting // a short path: those of unix sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	const owner = 54321                                                                      // the service's
	if err := errors.Join(os.Chown(home, owner, owner), os.Chmod(home, 0o755)); err != nil { // pid 1 of a jail reaches files below, as it does elsewhere
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	block := account.Block{First: 0x50000000 + os.Getpid()*3}
	groups, err := account.OpenGroups("bailiwick-jail-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	group, err := groups.Create("all", block, account.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(group.Kill(), block.Kill(), group.Remove(), groups.Remove()); err != nil {
			t.Error(err)
		}
	})
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	mounts := []account.Mount{
		{At: home, From: open(home), As: account.Self, Write: true, Own: true},
		{At: mounttree.AgentView + home, From: open(home), As: account.Agent},
	}
	if agents != "" {
		mounts = append(mounts, account.Mount{At: agents, From: open(agents), As: account.Nobody})
	}
	p, err := account.Start(account.Program{
		Path: self, Args: args, File: []*os.File{nil, w, w}, Block: &block, Group: group,
		Env:    []string{agentsEnv + "=" + agents, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home},
		Mounts: mounts,
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	state, waitErr := p.Wait()
	if err := errors.Join(err, waitErr, r.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	if !state.Success() || !bytes.Contains(out, []byte("\nPASS\n")) && !bytes.HasPrefix(out, []byte("PASS")) {
		t.Fatalf("%v\n%s", state, out)
	}
	return out
}

// realRoot reports whether these tests run as root of the machine.
func realRoot() bool { return os.Geteuid() == 0 && !uidblock.Inside() }
