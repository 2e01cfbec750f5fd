package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// cold creates a world with a catalog where no service has run.
func cold(t *testing.T, uid int) *world {
	w := newWorld(t, uid)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.coldInit()
	w.manifest(subagent{name: "edit", script: "echo ran; echo x > x.txt", tier: "observe"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	return w
}

// services lists the processes that serve the state of a world.
func (w *world) services() (pids []int) {
	for _, file := range procFiles("environ") {
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), "XDG_STATE_HOME="+w.path("state")+"\x00") {
			continue
		}
		dir := filepath.Dir(file)
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.HasPrefix(string(line), filepath.Join(bin, "bailiwickd")+"\x00serve\x00") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// proves R-D1, R-O1
func TestOneShotCommandsShareOneService(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := cold(t, uid)
		if _, err := os.Lstat(w.path("state/bailiwick")); err == nil {
			t.Fatal("the state directory already exists")
		}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				id := fmt.Sprintf("at-once-%d", i)
				if d := w.try("dispatch", "run", "edit", "--source", "repo", "--id", id, "-q"); d.status != 0 || !strings.Contains(d.stdout, id+" finished") {
					t.Errorf("%s: %s", id, d)
				}
			})
		}
		all.Wait()
		if pids := w.services(); len(pids) != 1 || pids[0] != w.status().PID {
			t.Errorf("services %v, but process %d answers", pids, w.status().PID)
		}
		if n := len(w.entries("--kind", "service.started")); n != 1 {
			t.Errorf("the log says %d times that a service started", n)
		}
		for i := range 10 {
			w.loggedOnce(fmt.Sprintf("at-once-%d", i), "dispatch.finished")
		}
	})
}

// proves R-D1
func TestOneShotServiceShutsDownWhenIdle(t *testing.T) {
	t.Parallel()
	w := gatedCold(t, 0)
	w.refused(1, []string{"no service answers", "bailiwick up"}, "status")
	w.refused(0, []string{"not running"}, "down")
	if _, err := os.Lstat(w.path("state/bailiwick")); err == nil {
		t.Error("a verb about the service created its state")
	}
	// A running worker keeps the service up, even without a client.
	w.must("--idle", "200ms", "dispatch", "run", "edit", "--source", "repo", "--id", "waits", "-d")
	w.awaitLog("waits", "begun")
	s := w.status()
	if s.OneShot == nil || s.OneShot.IdleSeconds != 0.2 || s.OneShot.EndsAt != nil {
		t.Errorf("while a worker runs its status is %+v", s.OneShot)
	}
	if got := w.must("status"); !strings.Contains(got, "one-shot: shuts down after 200ms without a request or a worker") {
		t.Errorf("status: %s", got)
	}
	w.openGate() // no client waits for the end: a late request of one would start the next service
	awaitGone(t, s.PID)
	if _, err := os.Lstat(s.Socket); err == nil {
		t.Error("its socket is left behind")
	}
	w.refused(1, []string{"no service answers"}, "status")
	// The next service has all state, recorded by the one that shut down.
	w.loggedOnce("waits", "dispatch.finished")
	if got := w.must("audit", "list", "--kind", "service.stopped"); !strings.Contains(got, "idle for 200ms") {
		t.Errorf("its shutdown is logged as %s", got)
	}
	if n := len(w.entries("--kind", "dispatch.recovered")); n != 0 {
		t.Errorf("%d dispatches were recovered by a later service", n)
	}
}

// An answer may take days; a one-shot service shuts down meanwhile.
//
// proves R-D1
func TestOneShotServiceDoesNotWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "asks", script: `mkdir -p .bailiwick; echo '{"question": "Which?"}' > .bailiwick/question.json`})
	pid := w.startIdle("300ms")
	w.try("dispatch", "run", "asks", "--source", "repo", "--id", "asks", "-q")
	awaitGone(t, pid)
	if d := w.show("asks"); d.State != api.EventNeedsInput {
		t.Errorf("it is %s %s: %s", d.State, d.Reason, d.Message)
	}
}

// startIdle starts a one-shot service and returns its process.
func (w *world) startIdle(idle string) int {
	w.t.Helper()
	if d := w.exec(filepath.Join(bin, "bailiwickd"), "start", "--idle", idle); d.status != 0 {
		w.t.Fatalf("bailiwickd start --idle %s: %s", idle, d)
	}
	pids := w.services()
	if len(pids) != 1 {
		w.t.Fatalf("services %v", pids)
	}
	return pids[0]
}

// Frequent idle shutdowns make no command fail, and no work is repeated or
// skipped.
//
// proves R-D1, R-D3
func TestOneShotRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	var ids []string
	services := func() int {
		return strings.Count(w.must("--idle", "1ms", "audit", "list", "-o", "name", "--kind", "service.started"), "\n")
	}
	// How often a service shuts down between two commands depends on the
	// machine: repeat until it has happened often enough.
	for round := 0; round < 3 || services() < 4 && round < 30; round++ {
		var all sync.WaitGroup
		for lane := range 2 {
			var mine []string
			for i := range 4 {
				mine = append(mine, fmt.Sprintf("lane-%d-%d-%d", lane, round, i))
			}
			ids = append(ids, mine...)
			all.Go(func() {
				for _, id := range mine {
					w.dispatchBriefly(id)
				}
			})
		}
		all.Wait()
	}
	w.must("up")
	if n := services(); n < 4 {
		t.Errorf("only %d services ran: the test proves nothing", n)
	}
	for _, id := range ids {
		w.loggedOnce(id, "dispatch.finished")
	}
}

// dispatchBriefly dispatches edit and reads the result, each time with a service
// that shuts down at once.
func (w *world) dispatchBriefly(id string) {
	w.t.Helper()
	if d := w.try("--idle", "10ms", "dispatch", "run", "edit", "--source", "repo", "--id", id, "-d"); d.status != 0 {
		w.t.Errorf("run %s: %s", id, d)
	}
	if d := w.try("--idle", "10ms", "dispatch", "list", "-o", "name"); d.status != 0 || !strings.Contains(d.stdout, id) {
		w.t.Errorf("list after %s: %s", id, d)
	}
	if d := w.try("--idle", "10ms", "dispatch", "logs", "-f", id); d.status != 0 || d.stdout != "ran\n" || d.stderr != "" {
		w.t.Errorf("logs %s: %s", id, d)
	}
}

// proves R-D1, R-O6
func TestOneShotServiceAdoptsWorkersOfAKilledOne(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string][]string{
		"show": {"dispatch", "show", "goes-on"}, "list": {"dispatch", "list"}, "another run": {"dispatch", "run", "quick", "-q"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatedCold(t, 0)
			w.must("dispatch", "run", "edit", "--source", "repo", "--id", "goes-on", "-d")
			w.awaitLog("goes-on", "begun")
			j := jailed{map[int]bool{}, map[string]bool{}}
			w.observe(&j)
			was := w.status().PID
			kill(t, was)
			w.must(verb...)
			if s := w.status(); s.PID == was || s.OneShot == nil {
				t.Errorf("after process %d: %+v", was, s)
			}
			w.openGate()
			wantEnd(t, w.awaitEnd("goes-on"), api.EventFinished, "")
			w.loggedOnce("goes-on", "dispatch.finished")
			if got := w.must("dispatch", "logs", "goes-on"); got != "begun\nthrough\n" {
				t.Errorf("log %q", got)
			}
			w.nothingLeft("goes-on", j)
		})
	}
}

// A terminal signals the whole process group of its command, and after it is
// closed writes to it fail.
//
// proves R-D1
func TestOneShotServiceOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	// If the tests run in the background they may ignore the signal, which a
	// command would inherit.
	hangups := make(chan os.Signal, 1)
	ossignal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { ossignal.Stop(hangups) })
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			w := gatedCold(t, 0)
			cmd := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "run", "edit", "--source", "repo", "--id", "outlives")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stderr, err := cmd.StderrPipe()
			must(t, err)
			must(t, cmd.Start())
			for lines := bufio.NewScanner(stderr); lines.Scan() && lines.Text() != "| begun"; {
			}
			pid := w.status().PID
			must(t, syscall.Kill(-cmd.Process.Pid, signal))
			_ = cmd.Wait()
			if cmd.ProcessState.Success() {
				t.Errorf("the command exited with %s", cmd.ProcessState)
			}
			if now := w.status().PID; now != pid {
				t.Errorf("process %d answers, not %d", now, pid)
			}
			w.openGate()
			wantEnd(t, w.awaitEnd("outlives"), api.EventFinished, "")
			w.loggedOnce("outlives", "dispatch.finished")
			if n := len(w.entries("--kind", "service.started")); n != 1 {
				t.Errorf("%d services started", n)
			}
		})
	}
}

// Commands killed at any moment while they start a service leave a working
// service, or no service.
func TestOneShotCommandKilledDuringStartHarmsNothing(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	for range 15 {
		cmd := w.command(filepath.Join(bin, "bailiwick"), "--idle", "1ms", "dispatch", "list")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		for len(w.services()) == 0 && cmd.ProcessState == nil {
			if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil || strings.Contains(string(state), ") Z ") {
				break // the command has exited already
			}
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
}

// proves R-D1
func TestOneShotStartFailureIsOneError(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	key := w.read("state/bailiwick/service.key")
	w.write("state/bailiwick/service.key", "nonsense", 0o600)
	for _, line := range []string{"dispatch list", "dispatch run edit", "dispatch logs -f some-id", "audit list", "can local:root dispatch edit"} {
		d := w.refused(1, []string{"no service answers", "none can be started", "the service did not start", w.path("state/bailiwick/service.key")}, strings.Fields(line)...)
		if n := strings.Count(d.stderr, "did not start"); n != 1 || d.stdout != "" {
			t.Errorf("bailiwick %s: %s", line, d)
		}
	}
	w.write("state/bailiwick/service.key", key, 0o600)
	w.must("dispatch", "list")
	w.must("down")
	// No jail: an account that cannot create namespaces.
	bailiwick := filepath.Join(bin, "bailiwick")
	d := w.exec("unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec "+bailiwick+" dispatch list")
	if d.status != 1 || !strings.Contains(d.stderr, "cannot isolate") || !strings.Contains(d.stderr, "bailiwick doctor") {
		t.Errorf("without a jail: %s", d)
	}
	// An incomplete installation.
	alone := w.path("alone")
	must(t, os.Mkdir(alone, 0o755))
	must(t, exec.Command("cp", bailiwick, alone).Run())
	if d := w.exec(filepath.Join(alone, "bailiwick"), "dispatch", "list"); d.status != 1 || !strings.Contains(d.stderr, filepath.Join(alone, "bailiwickd")) {
		t.Errorf("without bailiwickd in its directory: %s", d)
	}
}

// The socket is in the runtime directory, so the path of the state directory
// may exceed the length limit of sockets.
//
// proves R-D1
func TestLongStatePathWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	long := w.path("state", strings.Repeat("long", 30))
	w.env = append(w.env, "XDG_STATE_HOME="+long)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo x > x.txt"})
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	d := w.refused(1, []string{"no service answers", long}, "status")
	if strings.Contains(d.stderr, "none can be started") {
		t.Errorf("control: status starts no service: %s", d)
	}
	w.env = append(w.env, "XDG_RUNTIME_DIR="+long)
	w.refused(1, []string{"none can be started", long, "shorter"}, "dispatch", "list")
}

// A start replaces only a stale socket, never another file. The control
// replaces a stale socket.
func TestSocketReplacesNoOtherFile(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	w.write("precious", "content", 0o600)
	w.refused(1, []string{"not a socket", w.path("precious"), "--socket"}, "up", "--socket", w.path("precious"))
	if got := w.read("precious"); got != "content" {
		t.Errorf("the file is %q", got)
	}
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "unix", w.path("taken.sock"))
	must(t, err)
	w.refused(1, []string{"another program listens on it", "--socket"}, "up", "--socket", w.path("taken.sock"))
	if conn, err := net.Dial("unix", w.path("taken.sock")); err != nil {
		t.Errorf("it was removed: %v", err)
	} else {
		must(t, conn.Close())
	}
	taken.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, taken.Close())
	w.must("up", "--socket", w.path("taken.sock"))
	w.must("--socket", w.path("taken.sock"), "down")
}

// The control: with a home directory every file has a place.
func TestWithoutAHomeNothingIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.must("dispatch", "list")
	w.must("down")
	w.mkdir("here")
	w.env = []string{"PATH=" + os.Getenv("PATH")}
	for _, line := range []string{"bailiwick dispatch list", "bailiwick up", "bailiwick init --insecure-unencrypted project", "bailiwickd serve", "bailiwick-deploy key create --insecure-unencrypted"} {
		args := strings.Fields(line)
		cmd := w.command(filepath.Join(bin, args[0]), args[1:]...)
		cmd.Dir = w.path("here")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set HOME") {
			t.Errorf("%s: %v %s", line, err, out)
		}
	}
	if list, err := os.ReadDir(w.path("here")); err != nil || len(list) > 0 {
		t.Errorf("after it: %v, %v", list, err)
	}
	if _, err := os.Lstat("/.local/state/bailiwick"); err == nil {
		t.Error("the root directory contains a state")
	}
}

// proves R-D1
func TestOneShotStartsNoServiceForANamedSocket(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	for _, line := range []string{"dispatch list", "dispatch run edit", "dispatch logs -f some-id", "audit list", "audit watch"} {
		w.refused(1, []string{"no service answers", "named.sock", "bailiwick up"}, append([]string{"--socket", w.path("named.sock")}, strings.Fields(line)...)...)
	}
	if pids := w.services(); len(pids) != 0 {
		t.Errorf("services %v", pids)
	}
	// A service that listens elsewhere is found by a command without the flag.
	w.must("up", "--socket", w.path("elsewhere.sock"))
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	if pids := w.services(); len(pids) != 1 {
		t.Errorf("services %v", pids)
	}
	w.must("--socket", w.path("elsewhere.sock"), "down")
}

// proves R-D1
func TestOneShotServiceLastsAfterUp(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	pid := w.startIdle("1h")
	d := w.refused(0, []string{"process " + strconv.Itoa(pid), "now runs until it is stopped"}, "up")
	if s := w.status(); s.PID != pid || s.OneShot != nil {
		t.Errorf("after %s: %+v", d, s)
	}
	w.refused(0, []string{"already running: process " + strconv.Itoa(pid)}, "up")
	if got := w.must("audit", "list"); !strings.Contains(got, "service.stay") {
		t.Errorf("the log does not say that it became permanent: %s", got)
	}
	w.must("down")
	// up leaves a permanent service even while one-shot services start and
	// stop.
	for range 5 {
		var both sync.WaitGroup
		both.Go(func() { w.must("--idle", "1ms", "dispatch", "list") })
		both.Go(func() { w.must("up") })
		both.Wait()
		if s := w.status(); s.OneShot != nil {
			t.Errorf("it is %+v", s.OneShot)
		}
		w.must("down")
	}
}

// proves R-D1
func TestOneShotServiceRunsBesideTheCommandWithAMinimalEnvironment(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	fake := w.path("fake")
	must(t, os.Mkdir(fake, 0o755))
	for _, name := range []string{"bailiwickd", "bailiwick-worker", "bailiwick-fetch", "bailiwick-toolhost"} {
		must(t, writeFile(filepath.Join(fake, name), []byte("#!/bin/sh\ntouch "+w.path("caught")+"\n"), 0o755))
	}
	secret := "planted-in-the-caller"
	w.env = append(w.env, "PATH="+fake+":"+os.Getenv("PATH"), "SOME_TOKEN="+secret)
	has := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.status().PID))
		must(t, err)
		return strings.Contains(string(b), secret)
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	if _, err := os.Lstat(w.path("caught")); err == nil {
		t.Error("a program was run from PATH")
	}
	if has() {
		t.Error("the service inherited a variable of the command that started it")
	}
	// The control: the same search finds the variable in a process that
	// inherited it.
	w.must("down")
	w.must("up")
	if !has() {
		t.Error("control: the search does not find the variable")
	}
	if out, _ := w.command("sh", "-c", "bailiwickd").CombinedOutput(); len(out) > 0 {
		t.Errorf("the other program printed %s", out)
	}
	if _, err := os.Lstat(w.path("caught")); err != nil {
		t.Error("control: PATH does not find the other program")
	}
}
