package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// withSecrets adds secrets to the manifest: "token", which set stores, exposed as
// TOKEN, and "helped", which a helper prints, exposed as HELPED.
func (w *world) withSecrets() {
	w.t.Helper()
	w.replace(manifest, "\nenvs:\n", `
secrets:
  - {name: token, ref: "file:token"}
  - {name: helped, ref: "exec:helped"}
envs:
  - {name: tokens, secrets: {TOKEN: {secret: token, exposed: true}}}
  - {name: helpers, secrets: {HELPED: {secret: helped, exposed: true}}}
`)
	w.replace(manifest, "envs: [colours]", "envs: [colours, tokens, helpers]")
}

// setSecret sets a secret from standard input.
func (w *world) setSecret(name, value string) done {
	w.t.Helper()
	cmd := w.command(filepath.Join(bin, "bailiwick"), "secret", "set", name)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(value+"\n"), &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// filesWith returns the files below the world's directory that have one of values in
// any form.
func (w *world) filesWith(values ...string) (found []string) {
	w.t.Helper()
	set := redact.New(values)
	must(w.t, eachFile(w.dir, func(path string, f *os.File) error {
		has, err := set.In(f)
		if has && !slices.Contains(found, path) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// eachFile calls look with every regular file below dir, where a service may be
// writing. A file that is renamed during the walk may have escaped it under both
// names: the walk is then repeated, so look may get a file several times.
func eachFile(dir string, look func(path string, f *os.File) error) error {
	walk := func() error {
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(look(path, f), f.Close())
		})
	}
	err := walk()
	for n := 1; n < 100 && errors.Is(err, fs.ErrNotExist); n++ {
		err = walk()
	}
	return err
}

// A secret is set without an argument or an echo, encrypted in the state, named in
// the log without its value, and gone once it is removed. What needs it fails with a
// reason that says what to do.
//
// proves R-C3, R-B9
func TestSecretIsSetCheckedAndRemoved(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.init()
		w.manifest(subagent{name: "use", script: `printf '%s' "${#TOKEN}" > outputs/length`, tier: "observe"})
		w.withSecrets()
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.write("helper", "#!/bin/sh\necho helper-value-1\n", 0o755)
		w.write("config/bailiwick/service.yaml", "version: 1\nsecrets: {exec: {helped: {command: ["+w.path("helper")+"]}}}\n", 0o600)
		w.up()

		const first, second = "first-value-of-the-token", "second-value-of-it"
		w.refused(1, []string{"file:token", "not set: bailiwick secret set token"}, "secret", "check")
		d := w.dispatch("use", "--source", "repo", "--env", "tokens")
		wantEnd(t, d, api.EventFailed, api.ReasonFetch)
		if d.Message != `secret "token": file:token: not set: bailiwick secret set token` {
			t.Errorf("the message is %q", d.Message)
		}

		if d := w.setSecret("helped", first); d.status == 0 || !strings.Contains(d.stderr, "exec:helped") {
			t.Errorf("set of what a helper prints: %s", d)
		}
		if d := w.setSecret("../x", first); d.status == 0 {
			t.Errorf("a path as a name: %s", d)
		}
		for _, bad := range []string{"", "7 bytes", strings.Repeat("x", 64<<10+1), "a\x00bcdefghi"} {
			if d := w.setSecret("token", bad); d.status != 1 || len(bad) > 0 && strings.Contains(d.stderr, bad) {
				t.Errorf("the value %.20q: %s", bad, d)
			}
		}
		if d := w.setSecret("token", first); d.status != 0 || strings.Contains(d.stdout+d.stderr, first) {
			t.Fatalf("set: %s", d)
		}
		w.must("secret", "check")
		if list := w.must("secret", "list"); !strings.Contains(list, "env tokens TOKEN (exposed)") || strings.Contains(list, "  no  ") {
			t.Errorf("list:\n%s", list)
		}
		d = w.dispatch("use", "--source", "repo", "--env", "tokens", "--env", "helpers")
		wantEnd(t, d, api.EventFinished, "")
		if got := w.must("dispatch", "outputs", string(d.ID), "--raw", "length"); got != "24" {
			t.Errorf("the agent had %q bytes", got)
		}

		// On a terminal it is not shown, and counts from the next dispatch.
		if status, seen := w.typedSecret("token", second); status != 0 || strings.Contains(seen, second) || !strings.Contains(seen, "not shown") {
			t.Fatalf("set on a terminal: %d\n%s", status, seen)
		}
		d = w.dispatch("use", "--source", "repo", "--env", "tokens")
		if got := w.must("dispatch", "outputs", string(d.ID), "--raw", "length"); got != "18" {
			t.Errorf("after the rotation the agent had %q bytes", got)
		}
		if stored, err := filepath.Glob(w.path("state/bailiwick/secrets/*.age")); err != nil || len(stored) != 1 {
			t.Errorf("stored: %v, %v", stored, err)
		}
		w.must("down")
		w.must("up")
		w.must("secret", "check")
		if log := w.must("audit", "list", "--kind", "operator.recorded"); !strings.Contains(log, "secret token set") {
			t.Errorf("the log:\n%s", log)
		}

		w.must("secret", "remove", "token")
		wantEnd(t, w.dispatch("use", "--source", "repo", "--env", "tokens"), api.EventFailed, api.ReasonFetch)
		w.refused(1, []string{"is not set"}, "secret", "remove", "token")
		if stored, err := filepath.Glob(w.path("state/bailiwick/secrets/*.age")); err != nil || len(stored) != 0 {
			t.Errorf("stored: %v, %v", stored, err)
		}

		if found := w.filesWith(first, second); len(found) > 0 {
			t.Errorf("a value is in %v", found)
		}
		w.write("state/bailiwick/planted", "planted Zmlyc3QtdmFsdWUtb2YtdGhlLXRva2Vu", 0o600)
		if found := w.filesWith(first, second); len(found) != 1 {
			t.Errorf("the control: the sweep finds %v", found)
		}
	})
}

// typedSecret sets a secret on a terminal.
func (w *world) typedSecret(name, value string) (status int, seen string) {
	w.t.Helper()
	term := w.onTerminal(80, "secret", "set", name)
	term.await("not shown): ")
	for echoes(w.t, term.master) { // the prompt is printed before echo is switched off
	}
	term.enter(value + "\n")
	return term.end(), term.text()
}

// A service that is killed while a secret store is slow starts the dispatch again
// when it is back, and no file has the value.
//
// proves R-O6, R-C3
func TestAServiceKilledWhileASecretIsReadStartsTheWorkerLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.manifest(subagent{name: "use", script: `[ "${#HELPED}" = 19 ]`, tier: "observe"})
	w.withSecrets()
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.mkdir("gate")
	w.write("helper", "#!/bin/sh\necho > "+w.path("gate/asked")+"\nwhile [ ! -e "+w.path("gate/open")+" ]; do sleep 0.02; done\necho value-of-the-\"$(echo helper)\"\n", 0o755)
	w.write("config/bailiwick/service.yaml", "version: 1\nsecrets: {exec: {helped: {command: ["+w.path("helper")+"], timeout: 1m}}}\n", 0o600)
	w.up()
	id := w.detached("use", "--source", "repo", "--env", "helpers")
	w.awaitFile("gate/asked")
	kill(t, w.status().PID)
	w.openGate()
	w.must("up")
	wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	w.loggedOnce(id, "dispatch.finished")

	// A cancel does not wait for the store.
	must(t, errors.Join(os.Remove(w.path("gate/asked")), os.Remove(w.path("gate/open"))))
	id = w.detached("use", "--source", "repo", "--env", "helpers")
	w.awaitFile("gate/asked")
	w.must("dispatch", "cancel", id)
	wantEnd(t, w.show(id), api.EventCancelled, "")
	w.openGate()
	const value = "value-of-the-helper"
	if found := w.filesWith(value); len(found) > 0 {
		t.Errorf("a value is in %v", found)
	}
	w.write("state/bailiwick/planted", strings.ToUpper(fmt.Sprintf("%x", value)), 0o600)
	if found := w.filesWith(value); len(found) != 1 {
		t.Errorf("the control: the sweep finds %v", found)
	}
}

// awaitFile waits until a file of the world exists.
func (w *world) awaitFile(name string) {
	w.t.Helper()
	for late := range polling(30 * time.Second) {
		if _, err := os.Stat(w.path(name)); err == nil {
			return
		}
		if late {
			w.t.Fatalf("%s does not appear", name)
		}
	}
}
