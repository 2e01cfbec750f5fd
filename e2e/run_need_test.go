package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// signed is the signed manifest of a dispatch.
func (w *world) signed(id api.DispatchID) (m record.Manifest) {
	w.t.Helper()
	envelope, err := os.ReadFile(w.path("state/bailiwick/blobs/blobs/sha256", w.show(string(id)).Manifest.Hex()))
	must(w.t, err)
	payload, err := seal.Payload(envelope, seal.Manifest)
	must(w.t, err)
	must(w.t, canon.Decode(payload, &m))
	return m
}

// A task receives a patch, a file and a result of earlier tasks: the exact
// bytes are in its jail, and their digests in its signed manifest.
//
// proves R-O2, R-D2
func TestNeedsReceiveUpstreamProducts(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := orchestrated(t, uid)
		id := w.submit(planned("takes",
			shellTask("edits", `echo ONE > a.txt; printf '\0\1\2' > new.bin; mkdir -p outputs/deep; printf 'x\0y' > outputs/deep/file.bin`),
			shellTask("counts", `echo '{"n": 7, "words": ["a\u0000b"]}' > outputs/result.json`, as("typed")),
			shellTask("idle", "true"),
			shellTask("merge", `
for f in inputs/*; do echo "$f"; done | sort > outputs/names
stat -c %F inputs/change inputs/file inputs/value inputs/nothing | sort -u > outputs/kinds
cp inputs/change inputs/file inputs/value inputs/nothing outputs/
git apply inputs/change
grep -q ONE a.txt
echo more >> a.txt`,
				needing("change", api.Need{From: "edits", Patch: true}), needing("file", api.Need{From: "edits", Output: "deep/file.bin"}),
				needing("value", api.Need{From: "counts", Result: true}), needing("nothing", api.Need{From: "idle", Patch: true}), locking("k")),
		))
		run := w.awaitSettled(id)
		if run.State != api.RunDone {
			t.Fatalf("the run is %+v", run)
		}
		if got := w.output(run, "merge", "names"); got != "inputs/change\ninputs/file\ninputs/input.json\ninputs/nothing\ninputs/prompt.md\ninputs/value\n" {
			t.Errorf("the jail has %q", got)
		}
		if kinds := w.output(run, "merge", "kinds"); kinds != "regular empty file\nregular file\n" {
			t.Errorf("of the kinds %q", kinds)
		}
		edits := string(task(t, run, "edits").DispatchID)
		want := map[string]string{
			"change": w.must("dispatch", "patch", edits), "file": "x\x00y", "nothing": "",
			"value": w.must("dispatch", "outputs", string(task(t, run, "counts").DispatchID), "result.json"),
		}
		m := w.signed(task(t, run, "merge").DispatchID)
		if m.Run != id || m.Task != "merge" || m.Fence == 0 || len(m.Needs) != len(want) {
			t.Errorf("the manifest has run %q, task %q, fence %d, %+v", m.Run, m.Task, m.Fence, m.Needs)
		}
		for _, n := range m.Needs {
			text, ok := want[string(n.Name)]
			if got := w.output(run, "merge", string(n.Name)); !ok || got != text || n.Digest != api.DigestOf([]byte(text)) || n.Size != int64(len(text)) {
				t.Errorf("%s is %q, in the manifest %+v, want %q", n.Name, got, n, text)
			}
			if from := task(t, run, n.Task).DispatchID; n.Dispatch != from {
				t.Errorf("%s is of dispatch %s, the task's is %s", n.Name, n.Dispatch, from)
			}
		}
		// The received patch is not part of the task's own patch, unless the
		// task changes it.
		if patch := w.must("dispatch", "patch", string(task(t, run, "merge").DispatchID)); strings.Contains(patch, "inputs/") || !strings.Contains(patch, "+more") || !strings.Contains(patch, "new.bin") {
			t.Errorf("the patch is %s", patch)
		}
		// The control: the manifest of a dispatch without a task has none of
		// these.
		if m := w.signed(w.dispatch("sh", "--source", "repo", "--set", "do=true").ID); m.Run != "" || m.Fence != 0 || len(m.Needs) != 0 {
			t.Errorf("the manifest of a dispatch without a task is %+v", m)
		}
		w.replays(id)
	})
}

// A task with a missing need does not run, and names the need and its producer.
// Nothing is substituted.
//
// proves R-O2, R-O4
func TestTaskWithoutItsNeedsDoesNotRun(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("lacks",
		shellTask("up", "echo x > outputs/there"),
		shellTask("down", "true", needing("file", api.Need{From: "up", Output: "not/there.txt"}), retrying(3)),
		shellTask("below", "true", after("down")),
		shellTask("fine", "cp inputs/file outputs/", needing("file", api.Need{From: "up", Output: "there"})),
	))
	run := w.awaitSettled(id)
	down := task(t, run, "down")
	if run.State != api.RunFailed || down.State != api.TaskFailed || !strings.Contains(down.Message, "not/there.txt") || !strings.Contains(down.Message, "up") {
		t.Errorf("the run is %+v", run)
	}
	if below, fine := task(t, run, "below"), task(t, run, "fine"); below.State != api.TaskSkipped || below.Cause != "down" || fine.State != api.TaskDone {
		t.Errorf("the tasks are %+v", run.Tasks)
	}
	if n := len(w.list()); n != 2 {
		t.Errorf("%d dispatches were made", n)
	}
	w.replays(id)
}

// A run uses the catalog, the sources and the needs as of its submission; the
// caller's authority is checked again for each task.
//
// proves R-C4, R-O2
func TestApplyDoesNotChangeAnOpenRun(t *testing.T) {
	t.Parallel()
	const does = "%s; mkdir -p outputs; cp a.txt outputs/; echo $COLOUR > outputs/colour"
	w := orchestrated(t, 0, subagent{name: "does", script: strings.Replace(does, "%s", "echo old > outputs-of", 1)})
	p := planned("pinned", shellTask("gate", awaitGate("go")), api.PlanTask{ID: "does", Subagent: "does", Envs: []api.Name{"colours"}, DependsOn: []api.TaskID{"gate"}})
	id := w.submit(p)
	w.begunTask(id, "gate")
	w.write("repo/a.txt", "changed\n", 0o644)
	w.commit("repo", "second")
	w.runManifest(subagent{name: "does", script: strings.Replace(does, "%s", "echo new > outputs-of", 1)})
	w.replace(manifest, "COLOUR: blue", "COLOUR: red")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.open("go")
	run := w.awaitSettled(id)
	wantStates(t, run, "done; gate done; does done")
	old := task(t, run, "does")
	if a, colour, patch := w.output(run, "does", "a.txt"), w.output(run, "does", "colour"), w.must("dispatch", "patch", string(old.DispatchID)); a != "one\n" || colour != "blue\n" || !strings.Contains(patch, "+old") {
		t.Errorf("it ran on %q with %q and made %s", a, colour, patch)
	}
	if first, second := w.show(string(task(t, run, "gate").DispatchID)), w.show(string(old.DispatchID)); first.Source.Commit != second.Source.Commit || first.Revision != second.Revision || run.Revision != first.Revision {
		t.Errorf("they ran on %+v and %+v, revisions %d and %d", first.Source, second.Source, first.Revision, second.Revision)
	}
	// The control: a run submitted now uses the current versions.
	p.ID = "fresh"
	fresh := w.awaitSettled(w.submit(p))
	if a, colour, patch := w.output(fresh, "does", "a.txt"), w.output(fresh, "does", "colour"), w.must("dispatch", "patch", string(task(t, fresh, "does").DispatchID)); a != "changed\n" || colour != "red\n" || !strings.Contains(patch, "+new") {
		t.Errorf("the next ran on %q with %q and made %s", a, colour, patch)
	}
	w.replays(id, "fresh")

	// Revoking a grant applies at once.
	id = w.submit(planned("revoked", shellTask("gate", awaitGate("revoked")), api.PlanTask{ID: "does", Subagent: "does", DependsOn: []api.TaskID{"gate"}, Retry: api.Retry{Attempts: 3}}, shellTask("below", "true", after("does"))))
	w.begunTask(id, "gate")
	w.replace(manifest, "subagents: [sh,typed,brief,checked,does]", "subagents: [sh,typed,brief,checked]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.open("revoked")
	run = w.awaitSettled(id)
	if does, below := task(t, run, "does"), task(t, run, "below"); run.State != api.RunFailed || does.State != api.TaskDenied || !strings.Contains(does.Message, "does") || below.State != api.TaskSkipped || below.Cause != "does" {
		t.Errorf("the run is %+v", run)
	}
	w.replays(id)
}

// Content that an open run may still need is retained whatever the rules; they
// apply once the run has settled.
//
// proves R-O2, R-D5
func TestRetentionSparesNeedsOfOpenRuns(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, maker())
	w.write("config/bailiwick/service.yaml", "version: 1\nretention: {content: {count: 1}}\norchestrator: {}\n", 0o600)
	w.upRuns()
	w.downAtEnd()
	id := w.submit(planned("keeps",
		shellTask("up", "echo ONE > a.txt; echo kept > outputs/o.txt"), shellTask("gate", awaitGate("go"), after("up")),
		shellTask("down", "cp inputs/file inputs/change outputs/", after("gate"), needing("file", api.Need{From: "up", Output: "o.txt"}), needing("change", api.Need{From: "up", Patch: true})),
	))
	w.begunTask(id, "gate")
	up := w.show(string(task(t, w.run(id), "up").DispatchID))
	apart := w.dispatch("makes", "--set", "n=0") // not part of a run: the control
	for _, n := range []string{"1", "2", "3"} {
		w.dispatch("makes", "--set", "n="+n)
	}
	w.must("gc")
	if len(w.show(string(apart.ID)).Removed) == 0 {
		t.Error("content that no run needs is retained")
	}
	if !w.hasBlob(up.Outcome.Patch.Digest) || len(w.show(string(up.ID)).Removed) > 0 {
		t.Error("content that the run needs was removed")
	}
	kill(t, w.status().PID)
	w.upRuns()
	w.must("gc")
	w.open("go")
	run := w.awaitSettled(id)
	wantStates(t, run, "done; up done; gate done; down done")
	if got := w.output(run, "down", "file"); got != "kept\n" {
		t.Errorf("it received %q", got)
	}
	w.replays(id)
	for _, n := range []string{"4", "5"} {
		w.dispatch("makes", "--set", "n="+n)
	}
	w.must("gc")
	if len(w.show(string(up.ID)).Removed) == 0 {
		t.Error("after the run its content is retained against the rules")
	}
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
