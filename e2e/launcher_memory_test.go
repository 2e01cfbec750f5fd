package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// The launcher of a machine that has started a hundred attempts holds at most 12 MB at rest.
//
// proves R-B9
func TestTheLauncherStaysSmall(t *testing.T) {
	t.Parallel()
	const starts, most = 100, 12_000_000
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.manifest(subagent{name: "quick", script: "true"})
	w.publish("reversible")
	w.must("dispatch", "run", "quick", "-q")
	pid := s.launcherPID()
	for range starts - 1 {
		w.must("dispatch", "run", "quick", "-q")
	}
	busy, rests := resident(t, pid), int64(0)
	for range polling(5 * time.Second) {
		if rests = resident(t, pid); rests <= most {
			break
		}
	}
	if now := s.launcherPID(); now != pid {
		t.Fatalf("the launcher was started again: %d, then %d", pid, now)
	}
	t.Logf("the launcher after %d starts: %.1f MB, at rest: %.1f MB", starts, float64(busy)/1e6, float64(rests)/1e6)
	if rests > most {
		t.Errorf("the launcher holds %d bytes, more than %d", rests, most)
	}
}

// launcherPID returns the process of the launcher of the machine.
func (s *team) launcherPID() int {
	s.t.Helper()
	of := "/" + filepath.Base(s.Path("/")) + "/run "
	for range polling(time.Minute) {
		list, err := filepath.Glob("/proc/[0-9]*")
		must(s.t, err)
		for _, dir := range list {
			exe, _ := os.Readlink(filepath.Join(dir, "exe"))
			text, _ := os.ReadFile(filepath.Join(dir, "mountinfo")) //nolint:gosec // G304: of the kernel
			if exe == filepath.Join(bin, "bailiwick-launch") && strings.Contains(string(text), of) {
				pid, err := strconv.Atoi(filepath.Base(dir))
				must(s.t, err)
				return pid
			}
		}
	}
	s.t.Fatal("no launcher runs")
	return 0
}
