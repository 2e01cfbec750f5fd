package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// world is a world whose commands run under an account of the machine. Its manifest is
// published by alice.
func (s *team) world(uid int) *world {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "bailiwick-world-") //nolint:usetesting // its parents are open to other accounts
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, os.RemoveAll(dir)) })
	must(s.t, os.Chmod(dir, 0o755)) // the service reads sources there
	w := &world{t: s.t, uid: uid, dir: dir, on: s, env: []string{"TMPDIR=" + dir + "/tmp", "NO_COLOR=1"}}
	for _, d := range []string{"tmp", "home", "gate"} {
		w.mkdir(d)
	}
	w.own(".")
	return w
}

// publish applies the manifest of the world, and consents to a tier for its principal.
func (w *world) publish(tier string) {
	w.t.Helper()
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("ceiling", "set", w.me(), tier)
}

// blockProcess is a process that the launcher gave a uid block.
type blockProcess struct {
	pid, block int
	args       []string
}

// blockProcesses lists the processes of the machine's uid blocks.
func (s *team) blockProcesses() (list []blockProcess) {
	for _, f := range procFiles("status") {
		p := blockProcess{}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(f)))
		status, err := os.ReadFile(f)
		if err != nil {
			continue // it exited
		}
		uid := 0
		_, rest, ok := strings.Cut(string(status), "\nUid:")
		if !ok || strings.Contains(string(status), "\nState:\tZ") {
			continue
		}
		if _, err := fmt.Sscan(rest, &uid); err != nil || uid < s.uidsFrom || uid >= s.uidsFrom+uidBlocks*account.Size {
			continue
		}
		args, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err != nil {
			continue
		}
		p.block, p.args = (uid-s.uidsFrom)/account.Size, strings.Split(string(args), "\x00")
		list = append(list, p)
	}
	return list
}

// attempts lists those of dispatch id whose arguments name it, or all without one.
func (s *team) attempts(id string) (pids []int) {
	for _, p := range s.blockProcesses() {
		if id == "" || strings.Contains(strings.Join(p.args, " "), "/"+id+"/") {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// awaitNoAttempts fails the test unless every process of the workers has exited.
func (s *team) awaitNoAttempts() {
	s.t.Helper()
	for late := range polling(time.Minute) {
		left := s.attempts("")
		if len(left) == 0 {
			return
		}
		if late {
			s.t.Fatalf("processes of workers are left: %v", left)
		}
	}
}

// restart ends the service, by a kill or as its unit does, and starts the next one.
func (s *team) restart(kill bool) {
	s.t.Helper()
	if kill {
		s.service.kill()
	} else {
		s.service.end()
	}
	s.startService()
}

// restartLauncher kills the launcher and starts the next one, on the same socket.
func (s *team) restartLauncher() {
	s.t.Helper()
	s.launcher.kill()
	s.startLauncher()
}

// blockOf returns the uid block of a process.
func (s *team) blockOf(pid int) int {
	s.t.Helper()
	for _, p := range s.blockProcesses() {
		if p.pid == pid {
			return p.block
		}
	}
	s.t.Fatalf("process %d has no uid block", pid)
	return 0
}
