package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// sampler is a pure subagent whose products differ each time that it runs, so that a
// test sees whether it did.
func sampler() subagent {
	return subagent{name: "sampler", more: "    effect: pure\n", script: `
set -e
mkdir -p outputs
cat /proc/sys/kernel/random/uuid > outputs/id
cp a.txt outputs/a
for f in inputs/*; do echo "$f"; done > outputs/inputs
cat outputs/id >> a.txt`}
}

// sample is a task of it.
func sample(id api.TaskID, more ...func(*api.PlanTask)) api.PlanTask {
	t := api.PlanTask{ID: id, Subagent: "sampler"}
	for _, m := range more {
		m(&t)
	}
	return t
}

// sampled submits a run, waits for it, and fails the test unless it is done.
func (w *world) sampled(p api.Plan, change ...func(*api.RunRequest)) api.Run {
	w.t.Helper()
	req := request(w.t, p)
	for _, c := range change {
		c(&req)
	}
	_, err := w.conn().Runtime().Submit(w.t.Context(), req)
	must(w.t, err)
	run := w.awaitSettled(p.ID)
	if run.State != api.RunDone {
		w.t.Fatalf("%+v", run)
	}
	return run
}

// started is how many workers a run started.
func (w *world) started(id api.RunID) (n int) {
	w.t.Helper()
	for _, e := range w.history(id) {
		if e.Event == "dispatch.started" {
			n++
		}
	}
	return n
}

// The same run a second time takes no worker: its tasks have the results of the first,
// which dependents need and evidence shows. Whatever the result depends on makes it run.
//
// proves R-O12
func TestThePureTasksOfARunAreReused(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := prepared(t, uid, sampler())
		w.upRuns()
		w.downAtEnd()
		plan := func(id api.RunID, more ...func(*api.PlanTask)) api.Plan {
			return planned(id, sample("one", more...), sample("two", needing("of", api.Need{From: "one", Output: "id"}), needing("change", api.Need{From: "one", Patch: true})))
		}
		first := w.sampled(plan("first"))
		id := w.output(first, "one", "id")
		if n := w.started("first"); n != 2 || task(t, first, "one").Reused != nil {
			t.Fatalf("the first run started %d workers: %+v", n, first)
		}
		again := w.sampled(plan("again"))
		for _, name := range []api.TaskID{"one", "two"} {
			before, now := task(t, first, name), task(t, again, name)
			if now.Reused == nil || now.Reused.DispatchID != before.DispatchID || now.DispatchID == before.DispatchID || now.Usage != nil {
				t.Errorf("task %s: %+v, reused %+v", name, now, now.Reused)
			}
			if got, want := w.output(again, name, "id"), w.output(first, name, "id"); got != want {
				t.Errorf("task %s has %q, the first had %q", name, got, want)
			}
			if got, want := w.must("dispatch", "patch", string(now.DispatchID)), w.must("dispatch", "patch", string(before.DispatchID)); got != want || !strings.Contains(got, "+") {
				t.Errorf("task %s has the patch %s, the first had %s", name, got, want)
			}
		}
		if n := w.started("again"); n != 0 {
			t.Errorf("the second run started %d workers", n)
		}
		reused := "reused from dispatch " + string(task(t, first, "one").DispatchID)
		if out := w.must("run", "show", "again"); !strings.Contains(out, reused) {
			t.Errorf("run show prints\n%s", out)
		}
		if out := w.must("run", "show", "first"); strings.Contains(out, "reused") {
			t.Errorf("run show prints\n%s", out)
		}
		if out := w.must("audit", "list", "--run", "again"); !strings.Contains(out, "reuses the result of dispatch") {
			t.Errorf("audit list prints\n%s", out)
		}
		if out := w.must("dispatch", "show", string(task(t, again, "one").DispatchID)); !strings.Contains(out, "from dispatch "+string(task(t, first, "one").DispatchID)) {
			t.Errorf("dispatch show prints\n%s", out)
		}
		w.must("run", "outputs", "again")
		w.verifyEvidence("again")
		w.verifyEvidence(string(task(t, again, "one").DispatchID))
		w.replays("first", "again")

		w.write("repo/.git/description", "another\n", 0o644) // nothing of the tree
		w.git("repo", "commit", "-q", "--allow-empty", "-m", "the same tree")
		same := w.sampled(plan("same-tree"))
		if n := w.started("same-tree"); n != 0 || w.show(string(task(t, same, "one").DispatchID)).Source.Commit == w.show(string(task(t, first, "one").DispatchID)).Source.Commit {
			t.Errorf("a commit with the same tree started %d workers", n)
		}
		w.verifyEvidence("same-tree")
		input := func(text string) func(*api.PlanTask) {
			return func(t *api.PlanTask) { t.Input = json.RawMessage(text) }
		}
		runs := func(name api.RunID, workers int, p api.Plan, change ...func(*api.RunRequest)) api.Run {
			t.Helper()
			p.ID = name
			run := w.sampled(p, change...)
			if n := w.started(name); n != workers {
				t.Errorf("%s: %d workers, want %d", name, n, workers)
			}
			return run
		}
		runs("young", 0, plan("", func(t *api.PlanTask) { t.Reuse = &api.ReusePolicy{MaxAge: api.Duration(time.Hour)} }))
		time.Sleep(time.Until(task(t, first, "two").EndedAt.Add(1100 * time.Millisecond))) // as a rule it has passed
		old := runs("too-old", 2, plan("", func(t *api.PlanTask) { t.Reuse = &api.ReusePolicy{MaxAge: api.Duration(time.Second)} }))
		runs("other-input", 2, plan("", input(`{"n":1}`)))
		runs("other-env", 2, plan("", func(t *api.PlanTask) { t.Envs = []api.Name{"colours"} }))
		last := runs("never", 2, plan("", func(t *api.PlanTask) { t.Reuse = &api.ReusePolicy{Never: true} }))
		if got := w.output(old, "one", "id"); got == id {
			t.Error("a result that is too old was reused")
		}
		// The newest is taken.
		newest := runs("newest", 0, plan(""))
		if got, want := task(t, newest, "one").Reused.DispatchID, task(t, last, "one").DispatchID; got != want {
			t.Errorf("reused %s, want %s", got, want)
		}
		runs("no-reuse", 2, plan(""), func(r *api.RunRequest) { r.NoReuse = true })
		w.write("repo/a.txt", "changed\n", 0o644)
		w.commit("repo", "another tree")
		runs("other-tree", 2, plan(""))
		if out := w.must("run", "retry", "newest", "--from", "one", "--id", "asked"); out == "" {
			t.Error("retry prints nothing")
		}
		if w.awaitSettled("asked"); w.started("asked") != 2 {
			t.Errorf("a task that was asked to run again was reused: %d workers", w.started("asked"))
		}
		w.verifyEvidence("asked")
		// A control: another subagent that is not declared pure.
		w.sampled(planned("sh-1", shellTask("one", "true")))
		runs("sh-2", 1, planned("", shellTask("one", "true")))
		if s := w.status(); s.Evidence == nil || s.Evidence.Refused != 0 {
			t.Errorf("evidence: %+v", s.Evidence)
		}
		w.must("audit", "verify", "--log")
	})
}

// A principal has the results of another one only by a grant, its own ones only as long
// as policy lets it dispatch, and content that retention removed is made again.
//
// proves R-O12, R-B7
func TestOnlyAGrantSharesResults(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, sampler())
	w.retention("{content: {age: 1ns}}")
	w.upCollected("--orchestrator")
	w.sampled(planned("mine", sample("one")))
	w.admit("agent:ann")
	token, err := os.ReadFile(w.tokenFile("agent:ann"))
	must(t, err)
	ann := w.runtime(strings.TrimSpace(string(token)), nil)
	as := func(id api.RunID) (api.Run, int) {
		t.Helper()
		_, err := ann.Submit(t.Context(), request(t, planned(id, sample("one"))))
		must(t, err)
		run := w.awaitSettled(id)
		return run, w.started(id)
	}
	if _, n := as("hers"); n != 1 {
		t.Errorf("a run of another principal took %d workers", n)
	}
	if _, n := as("hers-again"); n != 0 {
		t.Errorf("her own result: %d workers", n)
	}
	// Shared, and newer than hers.
	w.sampled(planned("newer", sample("one")), func(r *api.RunRequest) { r.NoReuse = true })
	mine := task(t, w.run("newer"), "one").DispatchID
	b, err := os.ReadFile(w.path(manifest))
	must(t, err)
	w.write(manifest, strings.Replace(string(b), "principal: \"agent:ann\"", fmt.Sprintf("principal: \"agent:ann\", reuse: [%q]", w.me()), 1), 0o644)
	if out := w.must("catalog", "plan", "-f", w.path(manifest)); !strings.Contains(out, "agent:ann may reuse results of "+w.me()) {
		t.Errorf("catalog plan prints\n%s", out)
	}
	w.must("catalog", "apply", "-f", w.path(manifest))
	run, n := as("shared")
	if got := task(t, run, "one").Reused; n != 0 || got == nil || got.DispatchID != mine || string(got.Principal) != w.me() {
		t.Errorf("shared: %d workers, %+v", n, got)
	}
	w.verifyEvidence("shared")
	// Denied: no result either.
	w.must("ceiling", "set", "agent:ann", "observe")
	if _, err := ann.Submit(t.Context(), request(t, planned("denied", sample("one")))); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("a denied principal: %v", err)
	}
	// Expired content is made again.
	w.must("gc")
	again := w.sampled(planned("expired", sample("one")))
	if n := w.started("expired"); n != 1 || task(t, again, "one").Reused != nil {
		t.Errorf("expired content: %d workers", n)
	}
	w.must("audit", "verify", "--log")
}

// A kill around the commit of a reuse leaves one: the task is done once, by the same
// earlier dispatch, and no worker starts.
//
// proves R-O12, R-O6
func TestAKillDuringAReuseChangesNothing(t *testing.T) {
	t.Parallel()
	k := newTrial(t, 0, *seedFlag)
	k.manifest(sampler())
	k.must("catalog", "apply", "-f", k.path(manifest))
	k.flags = []string{"--orchestrator"}
	k.up(func() {})
	first := k.sampled(planned("first", sample("one")))
	for i, at := range []failpoint.Name{failpoint.RunRequest, failpoint.ReuseCommit, failpoint.ReuseCommitted, failpoint.RunRequested} {
		id := api.RunID(fmt.Sprintf("again-%d", i))
		s := k.current()
		k.arm(fmt.Sprintf("%s 1 %s", at, failpoint.Kill))
		_, _ = k.conn().Runtime().Submit(t.Context(), request(t, planned(id, sample("one")))) // the answer may be lost
		<-s.ended
		k.up(func() {})
		run := k.awaitSettled(id)
		got := task(t, run, "one")
		if run.State != api.RunDone || got.Reused == nil || got.Reused.DispatchID != task(t, first, "one").DispatchID || k.started(id) != 0 {
			t.Errorf("%s: %+v, reused %+v", at, got, got.Reused)
			continue
		}
		for _, kind := range []string{"task.started", "task.reused", "task.done"} {
			if n := len(k.entries("--dispatch", string(got.DispatchID), "--kind", kind)); n != 1 {
				t.Errorf("%s: the log says %s %d times", at, kind, n)
			}
		}
		k.verifyEvidence(string(id))
	}
}
