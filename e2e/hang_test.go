package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// hangBound is when the service has killed a worker that hangs: after the limit of
// one second, the agent's grace and a minute, and three heartbeats for the check.
const hangBound = 81 * time.Second

// awaitHung waits until a dispatch whose worker hangs has ended.
func (w *world) awaitHung(id string) api.Dispatch {
	w.t.Helper()
	for late := range polling(hangBound) {
		if d := w.show(id); d.State.Ended() || late {
			return d
		}
	}
	panic("unreachable")
}

// A worker that is stopped for longer than its dispatch may take is killed with
// everything that it started, and the dispatch is lost. All cases wait for the
// same minute.
//
// proves R-D3, R-D4, R-D10, R-O6
func TestWorkerThatHangsIsKilledAndLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		wait func(*testing.T)
	}{
		{"as root", hangWhileTheAgentRuns(t, 0, false)},
		{"as an ordinary user, after a restart", hangWhileTheAgentRuns(t, ordinaryUID, true)},
		{"at each point", hangAnywhere(t)},
		{"control: a verify command that is slow", verifySlowly(t)},
		{"control: a worker stopped for less than its time", stopForAMoment(t)},
	} {
		t.Run(c.name, c.wait)
	}
}

func hangWhileTheAgentRuns(t *testing.T, uid int, restart bool) func(*testing.T) {
	w := gated(t, uid)
	id := w.detached("edit", "--source", "repo", "--timeout", "1s")
	w.awaitLog(id, "begun")
	j := jailed{map[int]bool{}, map[string]bool{}}
	w.observe(&j)
	for pid := range j.workers {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	if restart {
		kill(t, w.status().PID)
		w.must("up")
	}
	return func(t *testing.T) {
		d := w.awaitHung(id)
		wantEnd(t, d, api.EventFailed, api.ReasonLost)
		if want := "the worker died without a result: the service killed it: it had not responded for 1m0s"; d.Message != want {
			t.Errorf("message %q, want %q", d.Message, want)
		}
		w.loggedOnce(id, "dispatch.failed")
		j.groups = nil // removed at the next start of a jail
		w.nothingLeft(id, j)
	}
}

// hangAnywhere stops a worker at each point of its life. What one has sealed
// before counts.
func hangAnywhere(t *testing.T) func(*testing.T) {
	k := newTrial(t, 0, 21)
	k.up(func() {})
	stopped := map[failpoint.Name]string{}
	for _, at := range failpoint.Names() {
		if !strings.HasPrefix(string(at), "worker.") || at == failpoint.WorkerCheck {
			continue
		}
		stopped[at] = strings.NewReplacer("_", "-", ".", "-").Replace(string(at))
		k.arm(string(at) + " 1 stop")
		_, from := k.hits(0)
		must(t, k.insist(http.MethodPost, runtimePath, api.DispatchRequest{
			Subagent: "edits", Source: &api.SourceRequest{Name: "repo"}, DispatchID: api.DispatchID(stopped[at]), TimeoutSeconds: 1,
		}, nil))
		for late := range polling(time.Minute) {
			if list, _ := k.hits(from); slices.ContainsFunc(list, func(h hit) bool { return h.action == failpoint.Stop }) {
				break
			}
			if late {
				t.Fatalf("no worker stops at %s", at)
			}
		}
	}
	k.arm()
	return func(t *testing.T) {
		for at, id := range stopped {
			d := k.awaitHung(id)
			switch at {
			case failpoint.WorkerResultPlaced, failpoint.WorkerSealed, failpoint.WorkerEnd:
				wantEnd(t, d, api.EventFinished, "")
			default:
				wantEnd(t, d, api.EventFailed, api.ReasonLost)
				if !strings.Contains(d.Message, "it had not responded") {
					t.Errorf("%s: message %q", at, d.Message)
				}
			}
		}
		if left := k.workers(); len(left) > 0 {
			t.Errorf("workers %v are left", left)
		}
	}
}

// verifySlowly verifies for longer than the agent's time limit and the time after
// which a silent worker is killed.
func verifySlowly(t *testing.T) func(*testing.T) {
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	slow := fmt.Sprintf("    limits: {timeout: 1s}\n    verify: {command: [sleep, \"%d\"], timeout: 5m}\n", int(hangBound.Seconds()))
	w.manifest(subagent{name: "slow", script: "echo two > a.txt", more: slow})
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	id := w.detached("slow", "--source", "repo")
	return func(t *testing.T) { wantEnd(t, w.awaitEnd(id), api.EventFinished, "") }
}

func stopForAMoment(t *testing.T) func(*testing.T) {
	w := gated(t, 0)
	id, j := w.begun()
	for pid := range j.workers {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	return func(t *testing.T) {
		for pid := range j.workers {
			must(t, syscall.Kill(pid, syscall.SIGCONT))
		}
		w.openGate()
		wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	}
}
