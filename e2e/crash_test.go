package e2e

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// gate is a directory that the jail can only read: an agent waits until the
// test creates a file there.
const waitAtGate = "echo half > half.txt; echo begun; until ls GATE | grep -qx open; do sleep 0.05; done; echo through; echo whole > whole.txt"

// gated creates a world with one subagent, edit, that waits at a gate, and
// starts a service.
func gated(t *testing.T, uid int) *world {
	w := newGated(t, uid, "reversible")
	w.consent(w.me(), "reversible")
	w.up()
	return w
}

// gatedCold is gated on a machine where no service has run, so edit only
// observes.
func gatedCold(t *testing.T, uid int) *world { return newGated(t, uid, "observe") }

func newGated(t *testing.T, uid int, tier string) *world {
	w := newWorld(t, uid)
	w.downAtEnd()
	must(t, os.Chmod(w.dir, 0o755)) // so that the jail's account reaches the gate
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.mkdir("gate")
	w.coldInit()
	w.manifest(subagent{name: "edit", script: strings.ReplaceAll(waitAtGate, "GATE", w.path("gate")), tier: tier}, subagent{name: "quick", script: "echo quick", tier: tier})
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, readOnly: ["+w.path("gate")+"]}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	return w
}

func (w *world) openGate() { w.write("gate/open", "", 0o644) }

// begun starts edit and returns its ID once its agent waits, with the processes
// and control groups it uses.
func (w *world) begun() (string, jailed) {
	w.t.Helper()
	id := w.detached("edit", "--source", "repo")
	w.awaitLog(id, "begun")
	j := jailed{map[int]bool{}, map[string]bool{}}
	w.observe(&j)
	return id, j
}

// kill kills a process of this test and returns when it has exited.
func kill(t testing.TB, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitGone(t, pid)
}

// awaitEnd waits until a dispatch has ended.
func (w *world) awaitEnd(id string) api.Dispatch {
	w.t.Helper()
	for late := range polling(time.Minute) {
		if d := w.show(id); d.State.Ended() {
			return d
		}
		if late {
			w.t.Fatalf("dispatch %s does not end: %+v", id, w.show(id))
		}
	}
	panic("unreachable")
}

// loggedOnce fails the test unless the log says exactly once that a dispatch
// was accepted, was started and ended.
func (w *world) loggedOnce(id string, end string) {
	w.t.Helper()
	for _, kind := range []string{"dispatch.accepted", "dispatch.started", end} {
		if n := len(w.entries("--dispatch", id, "--kind", kind)); n != 1 {
			w.t.Errorf("the log says %s of %s %d times", kind, id, n)
		}
	}
	for _, kind := range []string{"dispatch.finished", "dispatch.failed", "dispatch.cancelled"} {
		if n := len(w.entries("--dispatch", id, "--kind", kind)); kind != end && n != 0 {
			w.t.Errorf("the log also says %s of %s", kind, id)
		}
	}
	// The sequence numbers have no gap, so no earlier entry is lost.
	all := w.entries()
	for i, n := range all {
		if n != strconv.Itoa(i) {
			w.t.Fatalf("entry %d of the log has the sequence number %s", i, n)
		}
	}
}

// proves R-O6, R-D3
func TestDispatchSurvivesAServiceKill(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(w *world){
		"down":    func(w *world) { w.must("down") },
		"kill -9": func(w *world) { kill(w.t, w.status().PID) },
	} {
		for when, open := range map[string]bool{"ends without a service": true, "ends with the next service": false} {
			t.Run(name+"/"+when, func(t *testing.T) {
				t.Parallel()
				asBoth(t, func(t *testing.T, uid int) {
					w := gated(t, uid)
					id, j := w.begun()
					stop(w)
					w.refused(1, []string{"no service answers", w.starts()}, "status")
					if open {
						w.openGate()
						for pid := range j.workers {
							awaitGone(t, pid)
						}
						w.must("up")
					} else {
						w.must("up")
						if d := w.show(id); d.State != api.EventStarted {
							t.Errorf("it is %s after the restart", d.State)
						}
						w.openGate()
					}
					d := w.awaitEnd(id)
					wantEnd(t, d, api.EventFinished, "")
					if d.Outcome == nil || d.Outcome.Partial || d.Outcome.Patch == nil || len(d.Outcome.Files) != 2 {
						t.Errorf("outcome %+v", d.Outcome)
					}
					if got := w.must("dispatch", "logs", id); got != "begun\nthrough\n" {
						t.Errorf("log %q", got)
					}
					w.loggedOnce(id, "dispatch.finished")
					if n := len(w.entries("--dispatch", id, "--kind", "dispatch.recovered")); n != 1 {
						t.Errorf("the log says %d times that it was recovered", n)
					}
					w.nothingLeft(id, j)
				})
			})
		}
	}
}

func awaitGone(t testing.TB, pid int) {
	t.Helper()
	for late := range polling(30 * time.Second) {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, rest, _ := strings.Cut(string(state), ") "); err != nil || strings.HasPrefix(rest, "Z") {
			return
		}
		if late {
			t.Fatalf("process %d does not exit", pid)
		}
	}
}

// proves R-D3, R-O6
func TestKilledWorkerIsLost(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		name := map[bool]string{false: "the worker", true: "service and worker"}[both]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asBoth(t, func(t *testing.T, uid int) {
				w := gated(t, uid)
				id, j := w.begun()
				if len(j.workers) != 1 {
					t.Fatalf("workers: %v", j.workers)
				}
				if both {
					kill(t, w.status().PID)
				}
				for pid := range j.workers {
					kill(t, pid)
				}
				if both {
					w.must("up")
				}
				d := w.awaitEnd(id)
				wantEnd(t, d, api.EventFailed, api.ReasonLost)
				if got := w.must("dispatch", "logs", id); got != "begun\n" {
					t.Errorf("the log of the lost worker is %q", got)
				}
				if d.Outcome == nil || !d.Outcome.Partial {
					t.Errorf("outcome %+v", d.Outcome)
				}
				w.loggedOnce(id, "dispatch.failed")
				// The control groups of a killed owner are removed at the next
				// start of a jail.
				j.groups = nil
				w.nothingLeft(id, j)
				wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
			})
		})
	}
}

// A cancel recorded before the service is killed still applies after it.
//
// proves R-D4, R-O6
func TestCancelSurvivesAServiceKill(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	id, j := w.begun()
	w.must("dispatch", "cancel", id, "--wait", "0", "--reason", "enough")
	kill(t, w.status().PID)
	w.must("up")
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventCancelled, "")
	if string(d.CancelBy) != w.me() {
		t.Errorf("cancelled by %q", d.CancelBy)
	}
	w.loggedOnce(id, "dispatch.cancelled")
	w.nothingLeft(id, j)
}

// A cancel may arrive before the worker exists, while it prepares, while the
// agent runs and after the end: the record states once what happened.
//
// proves R-D4, R-D3
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	for i := range 24 {
		id := w.detached("edit", "--source", "repo", "--id", "moment-"+strconv.Itoa(i))
		time.Sleep(time.Duration(i*8) * time.Millisecond) // varies the moment of the cancel
		w.must("dispatch", "cancel", id)
		d := w.show(id)
		wantEnd(t, d, api.EventCancelled, "")
		if string(d.CancelBy) != w.me() {
			t.Errorf("%s is cancelled by %q", id, d.CancelBy)
		}
		if n := len(w.entries("--dispatch", id, "--kind", "dispatch.cancelled")); n != 1 {
			t.Errorf("the log says %d times that %s was cancelled", n, id)
		}
	}
	w.openGate()
	d := w.dispatch("edit", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	w.must("dispatch", "cancel", string(d.ID))
	if after := w.show(string(d.ID)); after.State != api.EventFinished || after.CancelBy != "" {
		t.Errorf("a cancel changed the end: %+v", after)
	}
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// Many kills at arbitrary moments: no dispatch is lost, and none ends twice.
//
// proves R-O6, R-A2
func TestKillsAtAnyMomentLoseNothing(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	w.openGate()
	accepted := map[string]bool{}
	for round := range 6 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		pid := w.status().PID
		for i := range 4 {
			wg.Go(func() {
				id := "round-" + strconv.Itoa(round) + "-" + strconv.Itoa(i)
				cmd := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "run", "quick", "--source", "repo", "--detach", "--id", id)
				var out bytes.Buffer
				cmd.Stdout = &out
				if cmd.Run() == nil && strings.TrimSpace(out.String()) == id {
					mu.Lock()
					accepted[id] = true
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(20+17*round) * time.Millisecond) // varies the moment of the kill
		kill(t, pid)
		wg.Wait()
		w.must("up")
	}
	for id := range accepted {
		w.awaitEnd(id)
	}
	for _, d := range w.list() {
		d := w.awaitEnd(string(d.ID))
		if d.State == api.EventFinished {
			w.loggedOnce(string(d.ID), "dispatch.finished")
			continue
		}
		if d.State != api.EventFailed || d.Reason != api.ReasonLost {
			t.Errorf("%s is %s %s %s", d.ID, d.State, d.Reason, d.Message)
		}
		if n := len(w.entries("--dispatch", string(d.ID), "--kind", "dispatch.failed")); n != 1 {
			t.Errorf("%s failed %d times", d.ID, n)
		}
	}
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
	wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
}

// proves R-O1
func TestSecondServiceOnTheSameStateIsRefused(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	id, _ := w.begun()
	pid := w.status().PID
	w.refused(0, []string{"already running: process " + strconv.Itoa(pid)}, "up")
	w.refused(0, []string{"process " + strconv.Itoa(pid), "DIFFERS", "not on " + w.path("run/other.sock"), "bailiwick down"}, "up", "--socket", w.path("run/other.sock"))
	if d := w.exec(filepath.Join(bin, "bailiwickd"), "serve"); d.status != 1 || !strings.Contains(d.stderr, "process "+strconv.Itoa(pid)) {
		t.Errorf("bailiwickd serve: %s", d)
	}
	// The first service keeps running, and so does its socket.
	if s := w.status(); s.PID != pid || !s.Ready {
		t.Errorf("status %+v", s)
	}
	w.openGate()
	wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	// Of many concurrent starts one wins.
	w.must("down")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]int{}
	for range 4 {
		wg.Go(func() {
			d := w.try("up", "-o", "json")
			if d.status != 0 {
				t.Errorf("up: %s", d)
				return
			}
			var up struct{ Outcome string }
			mu.Lock()
			defer mu.Unlock()
			decode(t, d.stdout, &up)
			won[up.Outcome]++
		})
	}
	wg.Wait()
	if won["started"] != 1 || won["running"] != 3 || !w.status().Ready {
		t.Errorf("the outcomes are %v", won)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	socket := w.path("run/bailiwick/api.sock")
	kill(t, w.status().PID)
	if info, err := os.Lstat(socket); err != nil || info.Mode()&os.ModeSocket == 0 {
		t.Fatalf("no socket is left: %v", err)
	}
	w.refused(1, []string{"no service answers", socket, "bailiwick up"}, "status")
	w.must("up")
	wantEnd(t, w.dispatch("quick"), api.EventFinished, "")
	w.must("down")
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after down: %v", err)
	}
	// The client does not accept another program that listens there.
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	must(t, os.Chmod(socket, 0o777))
	other := *w
	other.uid = ordinaryUID
	must(t, os.Chmod(w.path("run/bailiwick"), 0o755))
	other.refused(4, []string{"another account"}, "status", "--socket", socket)
}

// proves R-A2
func TestDamagedStateIsRefusedByFile(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	wantEnd(t, w.dispatch("quick"), api.EventFinished, "")
	entries := w.must("audit", "list", "-o", "jsonl")
	w.must("down")
	kept := t.TempDir()
	copyTree(t, w.path("state/bailiwick"), kept)
	files, err := filepath.Glob(w.path("state/bailiwick/store/*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("databases: %v %v", files, err)
	}
	db := files[0]
	named := w.named(db)
	spoil := func(change func(b []byte) []byte) func() {
		return func() {
			b, err := os.ReadFile(db)
			must(t, err)
			must(t, os.WriteFile(db, change(b), 0o600))
		}
	}
	flipAt := func(of func(b []byte) int) func() {
		return spoil(func(b []byte) []byte { b[of(b)] ^= 0x10; return b })
	}
	for _, c := range []struct {
		name  string
		spoil func()
		words []string
	}{
		{"the header", flipAt(func([]byte) int { return 3 }), []string{named}},
		{"the schema", flipAt(func(b []byte) int { return bytes.LastIndex(b, []byte("CREATE TABLE audit_entry")) + 9 }), []string{named}},
		{"an entry of the log", flipAt(func(b []byte) int { return bytes.LastIndex(b, []byte(`"kind":"dispatch.accepted"`)) + 3 }), []string{"audit log", "entry"}},
		{"a truncated database", spoil(func(b []byte) []byte { return b[:len(b)/2/4096*4096] }), []string{named}},
		{"an empty database", spoil(func([]byte) []byte { return nil }), []string{named}},
		{"the service's key", func() { w.write("state/bailiwick/service.key", "nonsense", 0o600) }, []string{"service.key"}},
		{"a world-readable key", func() { must(t, os.Chmod(w.path("state/bailiwick/service.key"), 0o644)) }, []string{"service.key", "chmod"}},
		{"a world-writable store", func() { must(t, os.Chmod(w.path("state/bailiwick/store"), 0o777)) }, []string{filepath.Dir(named), "chmod"}},
	} {
		c.spoil()
		before := snapshot(t, w.path("state/bailiwick/store"))
		d := w.try("up")
		if d.status != 1 || !strings.Contains(d.stderr, "did not start") {
			t.Errorf("%s: up: %s", c.name, d)
			if d.status == 0 {
				w.must("down")
			}
		}
		for _, word := range c.words {
			if !strings.Contains(d.stderr, word) {
				t.Errorf("%s: up lacks %q: %s", c.name, word, d)
			}
		}
		after := snapshot(t, w.path("state/bailiwick/store"))
		if before[db] != after[db] {
			t.Errorf("%s: the refused service changed %s", c.name, db)
		}
		must(t, os.Chmod(w.path("state/bailiwick/store"), 0o700))
		copyTree(t, kept, w.path("state/bailiwick"))
		must(t, os.Chmod(w.path("state/bailiwick"), 0o700))
		for path := range snapshot(t, w.path("state/bailiwick")) {
			must(t, os.Chmod(path, 0o600))
		}
		must(t, os.Chmod(w.path("state/bailiwick/store"), 0o700))
	}
	// The restored files work, with every earlier entry.
	w.must("up")
	if now := w.must("audit", "list", "-o", "jsonl"); !strings.HasPrefix(now, entries) {
		t.Errorf("entries are lost: had %d bytes, have %d", len(entries), len(now))
	}
	wantEnd(t, w.dispatch("quick"), api.EventFinished, "")
}

// restart stops a service as an operator does, even if it can no longer record
// the request, and starts the next one.
func restart(w *world) {
	w.t.Helper()
	pid := w.status().PID
	if d := w.try("down"); d.status != 0 {
		if !strings.Contains(d.stderr, "kill "+strconv.Itoa(pid)) {
			w.t.Errorf("down does not say how to stop it: %s", d)
		}
		must(w.t, syscall.Kill(pid, syscall.SIGTERM))
		awaitGone(w.t, pid)
	}
	w.must("up")
}

// A full disk stops everything that needs a decision, and loses nothing.
//
// proves R-A2
func TestFullDiskAdmitsNothingAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	first := w.dispatch("edit", "--source", "repo")
	wantEnd(t, first, api.EventFinished, "")
	entries := w.must("audit", "list", "-o", "jsonl")
	filler, err := os.Create(w.path("state/filler"))
	must(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = filler.Write(block)
	}
	must(t, filler.Close())
	// The existing files have some reserved room left, so the first dispatch
	// may still be accepted; then it ends.
	refused := false
	for range 50 {
		d := w.try("dispatch", "run", "edit", "--source", "repo", "-q", "-o", "json")
		if d.status == 0 {
			t.Fatalf("a dispatch succeeds on a full disk: %s", d)
		}
		if refused = strings.Contains(d.stderr, "no space") || strings.Contains(d.stderr, "full"); refused {
			break
		}
	}
	if !refused {
		t.Fatal("a full disk does not refuse dispatches")
	}
	// A decision that needs only an entry is refused as well.
	var unavailable api.Error
	for range 5000 {
		status, e := w.refusal(submit, "application/json", strings.NewReader(`{"subagent":"nobody"}`))
		if status != http.StatusForbidden {
			unavailable = e
			break
		}
	}
	// The error of the write that fails says that the disk was full; later errors say that it is.
	if text := unavailable.Error(); unavailable.Code != api.CodeAuditUnavailable || !strings.Contains(text, "state is on a full disk") && !strings.Contains(text, "its disk was full") {
		t.Errorf("without room for an entry: %+v", unavailable)
	}
	w.refused(1, nil, "dispatch", "run", "edit", "--source", "repo")
	if s := w.status(); s.Ready || !strings.Contains(s.NotReady, "disk") {
		t.Errorf("the status is %+v", s)
	}
	if pids := w.workers(); len(pids) != 0 {
		t.Errorf("workers run: %v", pids)
	}
	must(t, os.Remove(w.path("state/filler")))
	restart(w)
	if now := w.must("audit", "list", "-o", "jsonl"); !strings.HasPrefix(now, entries) {
		t.Error("entries are lost")
	}
	if d := w.show(string(first.ID)); d.Manifest != first.Manifest || d.Result != first.Result {
		t.Errorf("the record is %+v", d)
	}
	d := w.dispatch("edit", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	w.loggedOnce(string(d.ID), "dispatch.finished")
}
