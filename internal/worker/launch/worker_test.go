package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// The worker that is shipped runs an attempt to its end under a uid block, jail and all.
//
// proves R-S2
func TestTheShippedWorkerRunsInABlock(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	w.shippedWorker()
	r, _ := p.result(w.manifest("edit"), nil)
	if r.Outcome != api.EventFinished {
		t.Errorf("%s %s %s", r.Outcome, r.Reason, r.Message)
	}
}

// shippedWorker builds the worker, and makes it that of the launcher.
func (w *world) shippedWorker() {
	t := w.t
	t.Helper()
	bin := t.TempDir()
	must(t, os.Chmod(bin, 0o755)) //nolint:gosec // G302: as on every machine
	for _, name := range []string{"bailiwick-worker", "bailiwick-tool"} {
		must(t, prebuilt.Program(filepath.Join(bin, name), "../../../cmd/"+name))
	}
	w.cfg.Worker = filepath.Join(bin, "bailiwick-worker")
	w.cfg.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "XDG_DATA_HOME=" + filepath.Dir(w.dirs.Data), "XDG_STATE_HOME=" + filepath.Dir(w.dirs.State)}
	must(t, seal.NewHistory(seal.KeyOf(w.key, "")).Save(w.dirs.State))
}

// result runs an attempt to its end in the place of the service, and returns its result and
// the content of the log. While the worker runs, meanwhile is called with the attempt's directory.
func (p *people) result(m record.Manifest, meanwhile func(dir string) (stop func())) (r record.Result, log string) {
	w, t := p.w, p.w.t
	t.Helper()
	a := w.attempt(m)
	dir := a.Dir.Name()
	for name, content := range map[string][]byte{record.WorkManifest: a.Manifest, record.WorkInput: []byte("{}")} {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		must(t, os.Chown(filepath.Join(dir, name), serviceUID, serviceUID))
	}
	if meanwhile != nil {
		defer meanwhile(dir)()
	}
	proc, err := p.given(w.launcher()).Worker(t.Context(), a)
	must(t, err)
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", w.control)
	must(t, err)
	defer conn.Close() //nolint:errcheck // of a test
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var m record.WorkerMessage
		must(t, json.Unmarshal(in.Bytes(), &m))
		if m.Event == "ready" {
			_, err := conn.Write([]byte("{\"proceed\":true}\n"))
			must(t, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- proc.Wait() }()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	said, _ := os.ReadFile(a.Log.Name())
	sealed, err := os.ReadFile(filepath.Join(dir, record.WorkResult))
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	payload, err := seal.Payload(sealed, seal.Result)
	must(t, err)
	must(t, canon.Decode(payload, &r))
	logs, err := filepath.Glob(filepath.Join(dir, record.WorkLog, "*"))
	must(t, err)
	for _, name := range logs {
		b, err := os.ReadFile(name)
		must(t, err)
		log += string(b)
	}
	return r, log + string(said)
}

// Whatever a worker runs in its jail is what people signed. The attacker has the service's
// account, and exchanges each file that it can write while the worker runs. The control is a
// worker whose layers are in the directory of its attempt, which is the service's.
//
// takeover system, service account: no define, read a secret
//
// proves R-B5, R-S2
func TestAServiceExchangesNothingOfARunningAttempt(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	w.files = map[string]string{"capabilities/act/act.sh": "echo signed\n"}
	w.apply(strings.Replace(testManifest, `command: ["true"], role`, `capabilities: [act], command: ["sh", "-c", "i=0; until grep -q TAKEN act.sh || [ $i = 40 ]; do sleep 0.05; i=$((i+1)); done; sh act.sh"], role`, 1) + "capabilities:\n  - {name: act, from: capabilities/act}\n")
	w.shippedWorker()
	top := filepath.Dir(filepath.Dir(w.dirs.State))
	must(t, errors.Join(os.Chmod(top, 0o755), os.Chmod(filepath.Dir(top), 0o755), os.Chmod(filepath.Dir(w.dirs.State), 0o755))) //nolint:gosec // G302: the service passes
	attack := func(dir string) func() {
		must(t, filepath.WalkDir(w.dirs.State, func(path string, _ os.DirEntry, err error) error {
			must(t, err)
			return os.Lchown(path, serviceUID, serviceUID)
		}))
		must(t, os.Chown(w.dirs.LauncherState(), 0, 0))
		cmd := exec.Command("sh", "-c", `while :; do find "$@" \( -name act.sh -o -name bailiwick-tool \) 2>/dev/null | while read f; do grep -q TAKEN "$f" || (echo echo TAKEN > "$f") 2>/dev/null; done; done`, "sh", dir, w.dirs.LauncherState(), w.dirs.State)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: serviceUID, Gid: serviceUID}, Setpgid: true}
		must(t, cmd.Start())
		return func() {
			must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
			_ = cmd.Wait()
		}
	}
	if r, log := p.result(w.manifest("edit"), attack); r.Outcome != api.EventFinished || !strings.Contains(log, "signed") || strings.Contains(log, "TAKEN") {
		t.Errorf("%s %s: %s", r.Outcome, r.Message, log)
	}
	w.apply(strings.Replace(w.applied, "= 40", "= 1000", 1)) // the attacker comes to it
	real := w.cfg.Worker
	w.cfg.Worker = real + ".sh"
	must(t, os.WriteFile(w.cfg.Worker, []byte("#!/bin/sh\nexec "+real+" --attempt \"$2\" --manifest \"$4\" --scratch \"$2/.\"\n"), 0o755)) //nolint:gosec // G306: a program
	if r, log := p.result(w.manifest("edit"), attack); !strings.Contains(log, "TAKEN") {
		t.Errorf("control: %s %s: %s", r.Outcome, r.Message, log)
	}
}
