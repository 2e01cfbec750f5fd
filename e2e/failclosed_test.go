package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// failSyscalls makes system calls of a running process fail until restore is
// called. calls is in the syntax of strace.
func failSyscalls(t *testing.T, pid int, calls, errno string) (restore func()) {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-o", "/dev/null", "-e", "trace="+calls, "-e", "inject="+calls+":error="+errno, "-p", strconv.Itoa(pid))
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "attached") { //nolint:revive // waits for the line that confirms the attach
	}
	if !strings.Contains(lines.Text(), "attached") {
		t.Fatal("strace could not attach")
	}
	go func() { // exits with the process
		for lines.Scan() { //nolint:revive // so that it never blocks
		}
	}()
	restore = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	t.Cleanup(restore)
	return restore
}

// A disk that fails under a running service: from the first failed write on,
// everything is refused, the error says why and what to do, and no worker
// starts. A full or read-only disk that can be written again is used again; after
// any other failure nothing changes until the service is restarted. Then
// everything works, and the log is complete.
//
// proves R-A2, R-A3
func TestFailingDiskAllowsNothing(t *testing.T) {
	for name, c := range map[string]struct{ calls, errno, advice string }{
		"failed fsync": {"fsync,fdatasync", "EIO", "check the disk"},
		"disk full":    {"pwrite64", "ENOSPC", "make room on the disk"},
		"read-only":    {"pwrite64", "EROFS", "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0)
			w.repository("repo", map[string]string{"a.txt": "one\n"})
			w.catalog(subagent{name: "edit", script: "echo x > x.txt"})
			w.up()
			wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
			w.must("audit", "prove", "0") // the control: it works
			pid := w.status().PID
			restore := failSyscalls(t, pid, c.calls, c.errno)
			// A denial writes only an entry.
			w.refused(1, []string{"nothing is allowed", c.advice}, "dispatch", "run", "nobody")
			w.refused(1, []string{"nothing is allowed"}, "dispatch", "run", "edit", "-q", "--source", "repo", "--id", "during")
			if s := w.try("status"); s.status == 0 && strings.HasPrefix(s.stdout, "service     ready") {
				t.Errorf("it claims to be ready: %s", s)
			}
			for _, verb := range [][]string{{"dispatch", "run", "edit", "-q", "--id", "during-2"}, {"dispatch", "cancel", "before"}, {"stop", "--all"}, {"audit", "list"}} {
				if d := w.try(verb...); d.status != 1 || !strings.Contains(d.stderr, "nothing is allowed") {
					t.Errorf("%v: %s", verb, d)
				}
			}
			restore()
			if c.errno == "ENOSPC" {
				w.awaitReady(true)
				w.recovered()
				return
			}
			w.refused(1, []string{"nothing is allowed"}, "dispatch", "run", "edit", "-q", "--source", "repo", "--id", "healed")
			if entries, err := os.ReadDir(w.path("state/bailiwick/dispatches")); err == nil {
				for _, e := range entries {
					if strings.HasPrefix(e.Name(), "during") || strings.HasPrefix(e.Name(), "healed") {
						t.Errorf("an attempt directory was created: %s", e.Name())
					}
				}
			}
			kill(t, pid)
			w.must("up")
			w.recovered()
		})
	}
}

// recovered fails the test unless new work succeeds, no refused dispatch has
// happened, and the log has no gap and verifies.
func (w *world) recovered() {
	t := w.t
	t.Helper()
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "after"), api.EventFinished, "")
	all := w.audited()
	for i, s := range all {
		if s.Seq != uint64(i) {
			t.Fatalf("entry %d is #%d", i, s.Seq)
		}
	}
	w.must("audit", "prove", strconv.Itoa(len(all)-1))
	for _, id := range []string{"during", "during-2", "healed"} {
		for _, s := range w.audited("--dispatch", id) {
			t.Errorf("%s was refused, but the log says %s", id, s.Entry)
		}
		if list := w.must("dispatch", "list", "-o", "name"); strings.Contains(list+"\n", id+"\n") {
			t.Errorf("%s was refused, but is listed", id)
		}
	}
}

// A service refuses to start if its state cannot be written or a key cannot be
// read, so nothing runs without a record. Once the fault is repaired it starts.
//
// proves R-A2
func TestServiceWithoutALogDoesNotStart(t *testing.T) {
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "edit", script: "echo x > x.txt"})
		w.up()
		wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
		w.must("down")
		state := "state/bailiwick/"
		key, err := os.ReadFile(w.path(state + "service.key"))
		must(t, err)
		type fault struct {
			words        []string
			damage, mend func()
		}
		faults := map[string]fault{
			"an invalid key":             {[]string{"service.key"}, func() { w.write(state+"service.key", "nothing\n", 0o600) }, func() { w.write(state+"service.key", string(key), 0o600) }},
			"a key that others can read": {[]string{"service.key"}, func() { must(t, os.Chmod(w.path(state+"service.key"), 0o644)) }, func() { must(t, os.Chmod(w.path(state+"service.key"), 0o600)) }},
		}
		if uid == 0 {
			store := w.path(state + "store")
			faults["a read-only database"] = fault{[]string{"read-only"}, func() {
				must(t, syscall.Mount(store, store, "", syscall.MS_BIND, ""))
				must(t, syscall.Mount("", store, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			}, func() { must(t, syscall.Unmount(store, syscall.MNT_DETACH)) }}
		} else {
			chmod := func(name string, mode os.FileMode) func() {
				return func() { must(t, os.Chmod(w.path(state+name), mode)) }
			}
			faults["a key that cannot be read"] = fault{[]string{"service.key"}, chmod("service.key", 0), chmod("service.key", 0o600)}
			faults["a database that cannot be written"] = fault{[]string{"state.db cannot be written"}, chmod("store/state.db", 0o400), chmod("store/state.db", 0o600)}
		}
		for name, f := range faults {
			f.damage()
			d := w.try("up")
			if d.status == 0 {
				t.Errorf("%s: the service started", name)
				w.must("down")
			}
			for _, word := range f.words {
				if !strings.Contains(d.stderr, word) {
					t.Errorf("%s: the error lacks %q: %s", name, word, d)
				}
			}
			if d := w.try("dispatch", "run", "edit", "-q", "--source", "repo", "--id", "during"); d.status == 0 {
				t.Errorf("%s: %s", name, d)
			}
			f.mend()
		}
		w.must("up")
		w.recovered()
	})
}

// A state directory that fills up under a long-running service: what fits is
// recorded, the rest is refused, and once there is room the same service
// continues from there.
//
// proves R-A2
func TestServiceRecoversFromAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=24m,mode=755"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo x > x.txt"})
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
	pid := w.status().PID
	f, err := os.Create(w.path("state/filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	var d done
	refused := 0
	for n := 0; d.status != 1 && n < 500; n++ { // denials, one entry each
		d = w.try("dispatch", "run", fmt.Sprintf("nobody-%d", n))
		if d.status == 3 {
			refused++
		}
	}
	if d.status != 1 || !strings.Contains(d.stderr, "state is on a full disk") {
		t.Fatalf("on a full disk: %s", d)
	}
	w.refused(1, []string{"state is on a full disk", "bailiwick gc"}, "dispatch", "run", "edit", "-q", "--source", "repo", "--id", "during")
	must(t, os.Remove(w.path("state/filler")))
	w.awaitReady(true)
	w.recovered()
	if now := w.status().PID; now != pid {
		t.Errorf("process %d serves, %d did", now, pid)
	}
	if list := w.audited("--kind", "dispatch.denied"); len(list) != refused {
		t.Errorf("%d requests were denied, %d denials are in the log", refused, len(list))
	}
}
