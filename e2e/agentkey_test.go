package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// The key of a model is in the memory of the broker and on the wire to the model, and
// nowhere else: not in what the agent can read while it runs, and afterwards not in what
// the service keeps. The control: the same sweeps find other keys, planted in a file, in
// arguments, in an environment, in an open file without a name, and in memory.
//
// takeover system, worker: yes read a secret
//
// proves R-C3, R-D8
func TestModelKeyIsOnlyInTheBroker(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newCodingWorld(t, uid, nil)
		w.buildSweep()
		for _, c := range coders(t) {
			t.Run(c.name, func(t *testing.T) { w.in(t).trySweep(c) })
		}
	})
}

// buildSweep puts the program e2e/sweep where jails see it.
func (w *codingWorld) buildSweep() {
	w.t.Helper()
	w.mkdir("sweep")
	must(w.t, os.Chmod(w.dir, 0o755))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", w.path("sweep/sweep"), "./sweep")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("go build: %v: %s", err, out)
	}
	w.replace(manifest, "readOnly: [", "readOnly: ["+w.path("sweep")+", ")
	w.must("catalog", "apply", "-f", w.path(manifest))
}

func (w *codingWorld) trySweep(c coder) {
	t := w.t
	t.Helper()
	plants := []string{newKey(), newKey(), newKey(), newKey(), newKey()}
	args := []string{keyMark}
	for _, k := range append([]string{w.key}, plants...) {
		args = append(args, fmt.Sprintf("%x", sha256.Sum256([]byte(k))))
	}
	// With sessions of their own: some programs end the group of a command with it.
	plant := fmt.Sprintf("echo %s > planted\n", plants[0]) +
		fmt.Sprintf("setsid bash -c 'exec -a %s sleep 300' >/dev/null 2>&1 &\n", plants[1]) +
		fmt.Sprintf("PLANTED=%s setsid sleep 300 >/dev/null 2>&1 &\n", plants[2]) +
		fmt.Sprintf("exec 9<> .gone; rm .gone; echo %s >&9\n", plants[3]) +
		fmt.Sprintf("planted=%s\n", plants[4]) + // of this shell
		"setsid " + w.path("sweep/sweep") + " " + strings.Join(args, " ") + " >outputs/found 2>&1 </dev/null &\n"
	// The sweep takes longer than a program waits for a command, and Gemini CLI stops at the
	// fifth command in a row that is the same.
	m := w.script(c.name, scriptmodel.Steps(scriptmodel.Shell(plant), func(turn *scriptmodel.Turn) scriptmodel.Reply {
		if all := turn.Results(); strings.Contains(all[len(all)-1].Text, "swept ") {
			return scriptmodel.Reply{Say: "done"}
		}
		return scriptmodel.Shell(fmt.Sprintf("sed -i s/one/two/ a.txt; sleep 1; tail -n 1 outputs/found # look %d", len(turn.Items)))(turn)
	}))
	d := w.code(c.name)
	wantEnd(t, d, api.EventFinished, "")
	w.wantUsage(d, m)
	found := w.must("dispatch", "outputs", string(d.ID), "found")
	if strings.Contains(found, "found 1 ") {
		t.Errorf("the agent can read the key of the model:\n%s", found)
	}
	for i, kind := range []string{"file /workspace/planted", "cmdline", "environ", "fd", "memory"} {
		if !strings.Contains(found, fmt.Sprintf("found %d %s", i+2, kind)) {
			t.Errorf("the sweep does not find the planted key in %s:\n%s", kind, found)
		}
	}
	totals := regexp.MustCompile(`swept (\d+) files, (\d+) argument lists, (\d+) environments, (\d+) descriptors, (\d+) memory maps, (\d+) MiB`).FindStringSubmatch(found)
	if totals == nil {
		t.Fatalf("the sweep did not end:\n%s", found)
	}
	for i, least := range []int{1000, 4, 4, 4, 100, 100} {
		if n, err := strconv.Atoi(totals[i+1]); err != nil || n < least {
			t.Errorf("the sweep read too little: %s", totals[0])
		}
	}
	w.sweepService(plants[0])
}

// sweepService looks for the model's key in every file of the installation and in the
// arguments and environments of all processes. The control is in the patch.
func (w *codingWorld) sweepService(control string) {
	t := w.t
	t.Helper()
	var seen bool
	files := 0
	look := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			return // a socket, or a process that has exited
		}
		files++
		if bytes.Contains(b, []byte(w.key)) {
			t.Errorf("the key of the model is in %s", path)
		}
		seen = seen || bytes.Contains(b, []byte(control)) && strings.HasPrefix(path, w.path("state"))
	}
	must(t, filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			look(path)
		}
		return nil
	}))
	for _, name := range []string{"cmdline", "environ"} {
		all, err := filepath.Glob("/proc/[0-9]*/" + name)
		must(t, err)
		for _, path := range all {
			look(path)
		}
	}
	if !seen || files < 100 {
		t.Errorf("of %d files, none in the service's state has the planted key of the patch", files)
	}
}
