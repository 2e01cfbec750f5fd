package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The main use: a worker changes real code, its verify command checks the
// patch, and the patch applies to a fresh clone.
//
// proves R-D2, R-D5, R-D10, R-S1
func TestAPatchComesBackAndApplies(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n", "dir/b.txt": "two\r\n", "gone.txt": "x\n"})
		w.catalog(subagent{name: "edit", script: `
set -e
echo "colour $COLOUR"
printf 'ONE\n' > a.txt
rm gone.txt
printf '\0\1\2' > binary
ln -s a.txt link
chmod +x dir/b.txt
mkdir -p outputs/deep
cp inputs/input.json outputs/deep/copy.json
cat > outputs/stdin.json`, more: "    verify: {command: [grep, -q, ONE, a.txt]}\n"})
		w.up()
		d := w.dispatch("edit", "--source", "repo", "--env", "colours", "--set", "who=Ann")
		wantEnd(t, d, api.EventFinished, "")
		if d.Outcome == nil || d.Outcome.Verify == nil || !d.Outcome.Verify.Passed || d.Outcome.Partial || d.Outcome.Isolation.Level != "full" {
			t.Fatalf("outcome %+v", d.Outcome)
		}
		if got := w.must("dispatch", "outputs", string(d.ID), "deep/copy.json"); got != `{"who":"Ann"}` {
			t.Errorf("the input that the agent saw is %s", got)
		}
		if got := w.must("dispatch", "outputs", string(d.ID), "stdin.json"); got != `{"who":"Ann"}` {
			t.Errorf("the input on standard input is %s", got)
		}
		if got := w.must("dispatch", "logs", string(d.ID)); got != "colour blue\n" {
			t.Errorf("log = %q", got)
		}
		w.must("dispatch", "patch", string(d.ID), "--to", w.path("p.patch"))
		w.git(".", "clone", "-q", w.path("repo"), w.path("clone"))
		w.git("clone", "apply", w.path("p.patch"))
		status := w.git("clone", "status", "--porcelain")
		for _, want := range []string{"M a.txt", "M dir/b.txt", "D gone.txt", "?? binary", "?? link"} {
			if !strings.Contains(status, want) {
				t.Errorf("git status of the clone lacks %q:\n%s", want, status)
			}
		}
		if strings.Contains(status, "inputs") || strings.Contains(status, "edit.sh") || strings.Contains(status, "outputs") {
			t.Errorf("the worker's own files are in the patch:\n%s", status)
		}
		log := w.must("audit", "list", "--dispatch", string(d.ID))
		for _, want := range []string{"requested edit", `allowed by policy "grant:`, "started", "finished"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
		if left := w.settledRemains(); left != nil {
			t.Errorf("left behind: %v", left)
		}
	})
}

// proves R-D3
func TestEveryOutcomeIsTrue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "fails", script: "echo half > half.txt; exit 7"},
		subagent{name: "killed", script: "echo half > half.txt; kill -9 $$"},
		subagent{name: "late", script: "echo half > half.txt; sleep 100", more: "    limits: {timeout: 1s}\n"},
		subagent{name: "red", script: "echo bad > a.txt", more: "    verify: {command: [grep, -q, good, a.txt]}\n"},
		subagent{name: "reported", script: "echo bad > a.txt", more: "    verify: {command: [grep, -q, good, a.txt], reportOnly: true}\n"},
		subagent{name: "unfit", script: `mkdir -p outputs; echo '{"n":"x"}' > outputs/result.json`, more: "    output: {type: object, properties: {n: {type: integer}}}\n"},
		subagent{name: "silent", script: "true", more: "    output: {type: object}\n"},
		subagent{name: "fit", script: `mkdir -p outputs; echo '{"n": 3}' > outputs/result.json`, more: "    output: {type: object, properties: {n: {type: integer}}}\n"},
		subagent{name: "looks", script: "echo changed > a.txt", tier: "observe", role: "quality"},
	)
	w.write("project/capabilities/fails/setup.sh", "#!/bin/sh\necho prepared > prepared.txt\n", 0o755)
	w.up()
	check := func(name string, state api.Event, reason api.Reason, partial, patch bool, words string) api.Dispatch {
		t.Helper()
		d := w.dispatch(name, "--source", "repo")
		wantEnd(t, d, state, reason)
		if d.Outcome == nil || d.Outcome.Partial != partial || (d.Outcome.Patch != nil) != patch || !strings.Contains(d.Message, words) {
			t.Errorf("%s: message %q, outcome %+v", name, d.Message, d.Outcome)
		}
		return d
	}
	check("fails", api.EventFailed, api.ReasonAgent, true, true, "exit status 7")
	check("killed", api.EventFailed, api.ReasonAgent, true, true, "signal 9")
	check("late", api.EventFailed, api.ReasonTimeout, true, true, "1s")
	check("red", api.EventFailed, api.ReasonVerify, false, true, "verify command")
	check("reported", api.EventFinished, "", false, true, "")
	check("unfit", api.EventFailed, api.ReasonOutput, true, false, "output schema")
	check("silent", api.EventFailed, api.ReasonOutput, true, false, "missing")
	if d := check("fit", api.EventFinished, "", false, false, ""); strings.Join(strings.Fields(string(d.Outcome.Value)), "") != `{"n":3}` {
		t.Errorf("value = %s", d.Outcome.Value)
	}
	if d := check("looks", api.EventFinished, "", false, false, ""); len(d.Outcome.LeftOut) != 1 || !strings.Contains(d.Outcome.LeftOut[0].Why, "observe") {
		t.Errorf("left out = %v", d.Outcome.LeftOut)
	}
}

// proves R-D4
func TestCancelReachesTheWholeTreeAndKeepsTheWork(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "stubborn", script: `
trap '' TERM INT HUP
echo half > half.txt
(setsid sleep 5671 & ) ; setsid sleep 5672 &
echo begun
while :; do sleep 1; done`})
		w.up()
		id := strings.TrimSpace(w.must("dispatch", "run", "stubborn", "--source", "repo", "--detach"))
		w.awaitLog(id, "begun")
		w.must("dispatch", "cancel", id, "--reason", "enough")
		d := w.show(id)
		wantEnd(t, d, api.EventCancelled, "")
		if string(d.CancelBy) != w.me() || d.Outcome == nil || !d.Outcome.Partial || d.Outcome.Patch == nil {
			t.Errorf("cancelled by %q, outcome %+v", d.CancelBy, d.Outcome)
		}
		if left := processes(t, "sleep\x00567"); len(left) > 0 {
			t.Errorf("processes of the agent are left: %q", left)
		}
	})
}

// awaitLog follows the log of a dispatch until it contains words.
func (w *world) awaitLog(id, words string) {
	w.t.Helper()
	cmd := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "logs", "-f", id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), words) {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			w.t.Errorf("the log of %s ended without %q: %q", id, words, seen.String())
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
