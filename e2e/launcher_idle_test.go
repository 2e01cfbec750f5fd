package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// The launcher of a machine that has nothing to do ends after a minute, and leaves no process and
// no control group. The next request on its socket starts it again, as its unit does. The control
// is the first request: without a launcher it waits.
//
// proves R-B9
func TestALauncherEndsWhenIdleAndItsSocketStartsItAgain(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.manifest(subagent{name: "quick", script: "true"})
	w.publish("reversible")
	s.launcher.end()
	for range 2 {
		if s.asked(0) {
			t.Fatal("control: the launcher is asked without a request")
		}
		ended := make(chan done, 1)
		go func() { ended <- w.try("dispatch", "run", "quick", "-q") }()
		if !s.asked(time.Minute) {
			t.Fatal("no request came to the socket of the launcher")
		}
		launcher := s.start(machine.Root, `export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"`, []*os.File{s.socket}, filepath.Join(bin, "bailiwick-launch"))
		if d := <-ended; d.status != 0 {
			t.Fatalf("%s", d)
		}
		if err := launcher.cmd.Wait(); err != nil {
			t.Fatalf("the launcher ended with %v\n%s", err, launcher.errs.String())
		}
		if left := s.attempts(""); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}
}

// asked waits until something connects to the socket of the launcher.
func (s *team) asked(within time.Duration) bool {
	s.t.Helper()
	poll := []unix.PollFd{{Fd: int32(s.socket.Fd()), Events: unix.POLLIN}} //nolint:gosec // G115: a descriptor
	n, err := unix.Poll(poll, int(within.Milliseconds()))
	must(s.t, err)
	return n > 0
}
