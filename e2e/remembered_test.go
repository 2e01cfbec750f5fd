package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// anchoredElsewhere is a world whose anchor only the file of --config names. unaware is
// a copy of its state from before that file was used, old one from after.
func anchoredElsewhere(t *testing.T) (w *world, config string) {
	t.Helper()
	w = newWorld(t, 0)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.mkdir("disk")
	w.write("named.yaml", "version: 1\nanchors:\n  - {name: disk, kind: file, path: "+w.path("disk/high-water")+", every: 1s}\n", 0o644)
	config = w.path("named.yaml")
	w.must("up")
	w.must("down")
	w.copyState("unaware")
	w.must("up", "--config", config)
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	w.copyState("old")
	w.must("up", "--config", config)
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	w.must("down")
	return w, config
}

// useCopy makes a copy of the state the state.
func (w *world) useCopy(from string) {
	w.t.Helper()
	must(w.t, os.RemoveAll(w.path("state/bailiwick")))
	if out, err := exec.Command("cp", "-a", w.path(from), w.path("state/bailiwick")).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// verbs lists every verb of bailiwick as its completion does, but those of other
// programs that never start a service, or that serve until they are stopped.
func (w *world) verbs() (list [][]string) {
	w.t.Helper()
	other := []string{"help", "completion", "man", "init", "agent", "key", "web", "mcp", "doctor", "version", "down"}
	names := func(args ...string) (out []string) {
		for line := range strings.Lines(w.must(slices.Concat([]string{"__complete"}, args, []string{""})...)) {
			if name, _, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(name, "-") {
				out = append(out, name)
			}
		}
		return out
	}
	for _, noun := range names() {
		if slices.Contains(other, noun) {
			continue
		}
		found := false
		for _, verb := range names(noun) {
			if d := w.try(noun, verb, "--help"); d.status == 0 && strings.Contains(d.stdout, "bailiwick "+noun+" "+verb) {
				list, found = append(list, []string{noun, verb}), true
			}
		}
		if !found {
			list = append(list, []string{noun})
		}
	}
	return list
}

// A state that its anchor refuses starts by no verb: not by a command that starts a
// one-shot service for itself, and not by up without the configuration that names the
// anchor. Control: the same state from before it was started with that configuration
// knows of no anchor, and admits work.
//
// proves R-A6, R-A1
func TestARefusedStateStartsByNoVerb(t *testing.T) {
	t.Parallel()
	w, config := anchoredElsewhere(t)
	w.useCopy("old")
	w.refused(1, []string{"disk", "restored from an older copy"}, "up", "--config", config)
	w.write("other.yaml", "version: 1\nanchors: []\n", 0o644)
	tried := 0
	refuses := func(args ...string) {
		t.Helper()
		d := w.try(args...)
		if strings.Contains(d.stderr, "restored from an older copy") {
			tried++
		}
		if pids := w.services(); pids != nil {
			t.Fatalf("%q started process %v: %s", args, pids, d)
		}
	}
	refuses("up")
	refuses("up", "--orchestrator")
	refuses("up", "--config", w.path("other.yaml"))
	refuses("dispatch", "run", "edit", "--source", "repo")
	if tried != 4 {
		t.Errorf("%d of 4 were refused for the anchor", tried)
	}
	list := w.verbs()
	for _, verb := range list {
		refuses(append(verb, "x")...)
		refuses(verb...)
	}
	if len(list) < 40 || tried < 30 {
		t.Errorf("control: %d verbs, and %d attempts to start a service", len(list), tried)
	}
	for _, args := range [][]string{{"serve"}, {"serve", "--orchestrator"}, {"serve", "--idle", "1h"}, {"start"}, {"start", "--idle", "1h"}} {
		if d := w.exec(filepath.Join(bin, "bailiwickd"), args...); d.status == 0 || !strings.Contains(d.stdout+d.stderr, "restored from an older copy") {
			t.Errorf("bailiwickd %q: %s", args, d)
		}
	}
	// A copy of the state in another place is refused as well.
	must(t, os.Rename(w.path("state/bailiwick"), w.path("elsewhere")))
	w.mkdir("copy")
	must(t, os.Rename(w.path("elsewhere"), w.path("copy/bailiwick")))
	cmd := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "run", "edit", "--source", "repo")
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+w.path("copy"))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "restored from an older copy") {
		t.Errorf("a copy of the state elsewhere: %v: %s", err, out)
	}
	w.useCopy("unaware")
	w.must("dispatch", "run", "edit", "--source", "repo", "-q")
}

// Without its configuration a state starts by no verb, whatever became of the file.
//
// proves R-A6
func TestAStateWithoutItsConfigurationDoesNotStart(t *testing.T) {
	t.Parallel()
	w, config := anchoredElsewhere(t)
	run := []string{"--idle", "1ms", "dispatch", "run", "edit", "--source", "repo", "-q"}
	w.must(run...) // ordinary: a one-shot service uses the remembered file
	if got := w.must("audit", "list", "--kind", "service.started", "--last", "1"); !strings.Contains(got, config) {
		t.Errorf("a one-shot service was started with %s", got)
	}
	w.must("down")
	must(t, os.Rename(config, config+".moved"))
	w.refused(1, []string{"was last started with " + config, "restore " + config, "bailiwick up --config FILE"}, run...)
	w.refused(1, []string{"was last started with " + config}, "waiting")
	w.refused(1, []string{"was last started with " + config}, "up")
	must(t, os.Remove(w.path("state/bailiwick/configuration.json")))
	w.refused(1, []string{"configuration.json is missing", "by the log", config}, run...)
	// What the message says to do works, and holds from then on.
	w.must("up", "--config", config+".moved")
	w.must("down")
	w.must(run...)
}

// A read verb after a crash starts a one-shot service. The service that was there starts
// all the same, by up and as a supervisor starts it, with its orchestrator; no request is
// lost. Control: it does not take the place of a service that runs until it is stopped.
//
// proves R-D1, R-O1
func TestAOneShotServiceYieldsToALastingOne(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.downAtEnd()
	w.write(serviceConfig, "version: 1\norchestrator: {}\n", 0o600)
	w.must("up")
	for range 3 {
		kill(t, w.status().PID)
		w.must("--idle", "1h", "audit", "list")
		if w.status().OneShot == nil {
			t.Fatal("control: the read verb started no one-shot service")
		}
		if up := w.upJSON(); up.Outcome != "replaced" || !up.Orchestrator {
			t.Errorf("up: %+v", up)
		}
	}
	kill(t, w.status().PID)
	id := w.detached("sh", "--source", "repo", "--set", "do="+awaitGate("go"))
	serve := w.command(filepath.Join(bin, "bailiwickd"), "serve")
	out, err := serve.StdoutPipe()
	must(t, err)
	must(t, serve.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		t.Fatalf("serve: %q, %v", line, err)
	}
	if s := w.status(); s.PID != serve.Process.Pid || s.Orchestrator == nil || s.OneShot != nil {
		t.Errorf("process %d runs: %+v", s.PID, s.OneShot)
	}
	d := w.exec(filepath.Join(bin, "bailiwickd"), "serve")
	if d.status == 0 || w.status().PID != serve.Process.Pid {
		t.Errorf("control: beside a service that runs until it is stopped: %s", d)
	}
	w.open("go")
	w.awaitEnd(id)
	w.loggedOnce(id, "dispatch.finished")
	w.must("down")
	must(t, serve.Wait())
}
