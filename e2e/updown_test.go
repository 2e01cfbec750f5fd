package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// upAnswer is the answer of bailiwick up -o json.
type upAnswer struct {
	Outcome, Socket, Version, Next string
	PID                            int
	Orchestrator                   bool
	Differs                        []string
}

func (w *world) upJSON(args ...string) (up upAnswer) {
	w.t.Helper()
	decode(w.t, w.must(append([]string{"up", "-o", "json"}, args...)...), &up)
	return up
}

// doctorAnswer is the answer of bailiwick doctor -o json.
type doctorAnswer struct {
	OK      bool
	Checks  []struct{ Name, State, Found, Fix string }
	Service *struct {
		PID     int
		Version string
	}
}

func (w *world) doctor(program string) (d doctorAnswer, check map[string]string) {
	w.t.Helper()
	decode(w.t, w.exec(program, "doctor", "-o", "json").stdout, &d)
	check = map[string]string{}
	for _, c := range d.Checks {
		check[c.Name] = c.State + ": " + c.Found
	}
	return d, check
}

// up and down succeed however often they run, and say what runs and where it
// differs from what was asked for; text and JSON say the same.
func TestUpAndDownSayWhatRuns(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.downAtEnd()
		w.refused(0, []string{"not running", w.path("state/bailiwick/api.sock")}, "down")
		if d := w.must("down", "-o", "json"); !strings.Contains(d, `"stopped": false`) {
			t.Errorf("down: %s", d)
		}
		first := w.upJSON()
		if first.Outcome != "started" || first.PID != w.status().PID || first.Orchestrator || first.Differs != nil {
			t.Errorf("up: %+v", first)
		}
		if again := w.upJSON(); again.Outcome != "running" || again.PID != first.PID || again.Differs != nil {
			t.Errorf("up again: %+v", again)
		}
		pid := fmt.Sprint("process ", first.PID)
		w.refused(0, []string{"already running", pid, " since 20", first.Socket, "no orchestrator", "next "}, "up")
		w.write("other.yaml", "version: 1\n", 0o600)
		w.refused(0, []string{"DIFFERS", "not with " + w.path("other.yaml"), "not restarted", "bailiwick down"}, "up", "--config", w.path("other.yaml"))
		w.write(serviceConfig, "version: 1\n", 0o600)
		w.refused(0, []string{"DIFFERS", "started with no configuration file", serviceConfig, "not restarted"}, "up")
		w.refused(0, []string{"stopped", pid, "since 20"}, "down")
		w.must("up")
		if same := w.upJSON(); same.Differs != nil {
			t.Errorf("positive control: nothing differs: %v", same.Differs)
		}
		w.write(serviceConfig, "version: 1\nlog: {level: debug}\n", 0o600)
		if up := w.upJSON(); len(up.Differs) != 1 || !strings.Contains(up.Differs[0], "has changed since the service started") {
			t.Errorf("after a change of its configuration: %v", up.Differs)
		}
		if d := w.try("up", "-o", "plan.json"); d.status != 1 || !strings.Contains(d.stderr, "want text, json, jsonl or name") {
			t.Errorf("up -o FILE: %s", d)
		}
	})
}

// A one-shot service with other settings is replaced, and its worker continues.
func TestUpReplacesAOneShotServiceWithOtherSettings(t *testing.T) {
	t.Parallel()
	w := gatedCold(t, 0)
	w.must("--idle", "1h", "dispatch", "run", "edit", "--source", "repo", "--id", "continues", "-d")
	w.awaitLog("continues", "begun")
	was := w.status().PID
	w.write(serviceConfig, "version: 1\nlog: {format: json}\n", 0o600)
	if up := w.upJSON(); up.Outcome != "replaced" || up.PID == was || up.Differs != nil {
		t.Errorf("up: %+v", up)
	}
	w.openGate()
	w.awaitEnd("continues")
	w.loggedOnce("continues", "dispatch.finished")
}

// up ends with the command that a user needs next.
func TestUpSaysWhatIsNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	next := func(want string) {
		t.Helper()
		up := w.upJSON()
		if up.Next != want {
			t.Errorf("next is %q, want %q", up.Next, want)
		}
		if text := w.must("up"); !strings.HasSuffix(strings.TrimSpace(text), "next        "+want) {
			t.Errorf("the text lacks %q: %s", want, text)
		}
	}
	next("bailiwick init")
	w.coldInit()
	next("bailiwick catalog apply")
	w.manifest(subagent{name: "edit", script: "true"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	next("bailiwick ceiling set local:root reversible")
	w.consent(w.me(), "reversible")
	next("bailiwick dispatch run edit --source repo")
	w.must("dispatch", "run", "edit", "--source", "repo", "-q") // the suggestion works
}

// doctor reports the running service, why none answers, and a service of another
// version than the program. The controls are the same checks of a healthy one.
func TestDoctorReportsTheService(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	bailiwick := filepath.Join(bin, "bailiwick")
	d, check := w.doctor(bailiwick)
	if d.Service != nil || check["service"] != "ok: not running; commands start one when they need it, and bailiwick up one that keeps running" {
		t.Errorf("without a service: %+v", check["service"])
	}
	w.up()
	d, check = w.doctor(bailiwick)
	if s := w.status(); d.Service == nil || d.Service.PID != s.PID || !strings.HasPrefix(check["service"], fmt.Sprintf("ok: ready, process %d, version %s, up ", s.PID, s.Version)) {
		t.Errorf("with a service: %+v %q", d.Service, check["service"])
	}
	for name, want := range map[string]string{"service catalog": "ok: revision 1 ", "service disk": "ok: ", "service layers": "ok: ", "service runs": "ok: no orchestrator and no open run"} {
		if !strings.HasPrefix(check[name], want) {
			t.Errorf("%s: %q", name, check[name])
		}
	}
	if _, ok := check["service differs"]; ok {
		t.Errorf("positive control: %q", check["service differs"])
	}
	// Programs of another version.
	other := w.path("other")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-X github.com/bailiwick-dev/bailiwick/api.commit=other", "-o", other+"/", "../cmd/bailiwick", "../cmd/bailiwickd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"bailiwick-worker", "bailiwick-fetch", "bailiwick-toolhost"} {
		must(t, os.Symlink(filepath.Join(bin, name), filepath.Join(other, name)))
	}
	newer := filepath.Join(other, "bailiwick")
	differs := "the service is " + w.status().Version + ", this program 0.1.0+other"
	if _, check := w.doctor(newer); !strings.Contains(check["service differs"], "note: version: "+differs) {
		t.Errorf("doctor of another version: %q", check["service differs"])
	}
	if up := w.exec(newer, "up"); up.status != 0 || !strings.Contains(up.stdout, differs) || !strings.Contains(up.stdout, "bailiwick down") {
		t.Errorf("up of another version: %s", up)
	}
	if s := w.exec(newer, "status"); s.status != 0 || !strings.Contains(s.stdout, "this program 0.1.0+other") {
		t.Errorf("status of another version: %s", s)
	}
	// A service that is stuck, and the socket of one that was killed.
	pid := w.status().PID
	must(t, os.Rename(w.status().Socket, w.path("hidden.sock")))
	if d, check := w.doctor(bailiwick); d.OK || !strings.Contains(check["service"], fmt.Sprintf("process %d serves the state directory and does not answer", pid)) {
		t.Errorf("without its socket: %q", check["service"])
	}
	must(t, os.Rename(w.path("hidden.sock"), w.path("run/bailiwick/api.sock")))
	kill(t, pid)
	if d, check := w.doctor(bailiwick); !d.OK || !strings.Contains(check["service"], "is left from a service that was killed") {
		t.Errorf("after a kill: %q", check["service"])
	}
	if up := w.upJSON(); up.Outcome != "started" {
		t.Errorf("up after a kill: %+v", up)
	}
}

// What is in the way of a service is named, with what to do.
func TestUpNamesWhatIsInItsWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.downAtEnd()
	bailiwick := filepath.Join(bin, "bailiwick")
	w.write("run/bailiwick/api.sock", "no socket", 0o600)
	w.refused(1, []string{"is not a socket", "--socket"}, "up")
	if d, check := w.doctor(bailiwick); d.OK || !strings.HasPrefix(check["service"], "missing: ") || !strings.Contains(check["service"], "is no socket") {
		t.Errorf("doctor: %q", check["service"])
	}
	must(t, os.Remove(w.path("run/bailiwick/api.sock")))
	w.write("state/bailiwick/service.log", "", 0o400)
	w.refused(1, []string{"log of the service", "service.log: permission denied", "that this account can write"}, "up")
	must(t, os.Chmod(w.path("state/bailiwick/service.log"), 0o600))
	must(t, os.Chmod(w.path("state"), 0o500))
	must(t, os.Rename(w.path("state/bailiwick"), w.path("home/kept")))
	w.refused(1, []string{"state directory", "permission denied", "XDG_STATE_HOME", "bailiwick doctor"}, "up")
	must(t, os.Chmod(w.path("state"), 0o700))
	// A socket is relative to the caller's directory, not to the service's.
	if up := w.upJSON("--socket", "mine.sock"); up.Socket != w.path("mine.sock") {
		t.Errorf("it listens on %s", up.Socket)
	}
	w.must("down", "--socket", "mine.sock")
	// A reader that stops reading is no error to report.
	d := w.exec("bash", "-c", "set -o pipefail; "+bailiwick+" doctor | head -1; exit ${PIPESTATUS[1]}")
	if d.status != 0 || d.stderr != "" {
		t.Errorf("doctor | head: %s", d)
	}
}

// Nothing but ASCII is needed to read what up, down, status and doctor say.
func TestTheServiceSpeaksASCII(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.env = append(w.env, "LC_ALL=C", "LANG=C")
	for _, verb := range []string{"up", "up", "status", "doctor", "run list", "down", "down"} {
		d := w.try(strings.Fields(verb)...)
		for _, r := range d.stdout + d.stderr {
			if r > 0x7e {
				t.Errorf("%s says %q: %s", verb, r, d)
				break
			}
		}
	}
}

// The service keeps no descriptor of the shell that started it: a pipe there would
// never end. The control is the shell's own child.
func TestTheServiceInheritsNoDescriptor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	d := w.exec("bash", "-c", "exec 7>"+w.path("held")+"; "+filepath.Join(bin, "bailiwick")+" up -o json >/dev/null; sleep 0 & readlink /proc/self/fd/7")
	if d.status != 0 || strings.TrimSpace(d.stdout) != w.path("held") {
		t.Fatalf("positive control: %s", d)
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.status().PID))
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == w.path("held") {
			t.Errorf("%s is %s", fd, to)
		}
	}
	if len(fds) < 3 {
		t.Errorf("positive control: the service has %d descriptors", len(fds))
	}
}
