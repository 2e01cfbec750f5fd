package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A retryable failure is retried until it succeeds or the attempts are used up;
// any other is not. Dependents of a task that is not done are skipped and name
// that task; other tasks continue.
//
// proves R-O4
func TestFailuresAreRetriedAndDependentsSkipped(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("mixed",
		shellTask("flaky", "[ -e $GATE/mended ] || exit 3; echo mended > a.txt", retrying(20)),
		shellTask("hopeless", "exit 4", retrying(2)),
		shellTask("after-hopeless", "true", after("hopeless", "flaky")),
		shellTask("further", "true", after("after-hopeless")),
		shellTask("red", "echo bad > a.txt", as("checked"), retrying(3)),
		shellTask("red-again", "echo bad > a.txt", as("checked"), retrying(2, api.ReasonVerify)),
		shellTask("slow", "sleep 300", retrying(2), within(time.Second)),
		shellTask("after-flaky", "true", after("flaky")),
	))
	w.awaitEvent(id, event("task.waiting", "flaky"))
	w.open("mended")
	run := w.awaitSettled(id)
	wantStates(t, run, "failed; flaky done; hopeless failed agent; after-hopeless skipped; further skipped; red failed verify; red-again failed verify; slow failed timeout; after-flaky done")
	for task_, attempts := range map[api.TaskID]int{"hopeless": 2, "red": 1, "red-again": 2, "slow": 2, "after-flaky": 1, "further": 0} {
		if got := task(t, run, task_).Attempt; got != attempts {
			t.Errorf("task %s had %d attempts, want %d", task_, got, attempts)
		}
	}
	if flaky := task(t, run, "flaky"); flaky.Attempt < 2 || flaky.Attempts != 20 {
		t.Errorf("flaky: %+v", flaky)
	}
	if cause := task(t, run, "after-hopeless").Cause; cause != "hopeless" {
		t.Errorf("after-hopeless is skipped because of %q", cause)
	}
	if cause := task(t, run, "further").Cause; cause != "hopeless" && cause != "after-hopeless" {
		t.Errorf("further is skipped because of %q", cause)
	}
	if text := task(t, run, "hopeless").Message; !strings.Contains(text, "exit status 4") {
		t.Errorf("hopeless says %q", text)
	}
	// Each attempt is a separate dispatch with its own outcome.
	seen := map[api.DispatchID]bool{}
	for _, e := range w.history(id) {
		if e.Event == "task.started" && e.Task == "hopeless" {
			seen[e.DispatchID] = true
			wantEnd(t, w.show(string(e.DispatchID)), api.EventFailed, api.ReasonAgent)
		}
	}
	if len(seen) != 2 {
		t.Errorf("the attempts of hopeless are %v", seen)
	}
	// The skips follow the failure directly, before any other entry of the run.
	events := w.history(id)
	for i, e := range events {
		if e.Event == "task.failed" && e.Task == "hopeless" {
			for _, next := range events[i+1 : i+3] {
				if next.Event != "task.skipped" || next.Seq > e.Seq+2 {
					t.Errorf("the failure is followed by %+v", next)
				}
			}
		}
	}
	w.replays(id)
}

// A failed run is submitted again and reuses its finished tasks: only the
// others run, on the earlier results.
//
// proves R-O4, R-O8
func TestRunRetryReusesFinishedTasks(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, runRetryReusesFinishedTasks)
}

func runRetryReusesFinishedTasks(t *testing.T, uid int) {
	w := orchestrated(t, uid)
	id := w.submit(planned("once",
		shellTask("good", "echo good > a.txt; echo out > outputs/o.txt"),
		shellTask("bad", "[ -e $GATE/mended ] || exit 3; cp inputs/change outputs/change", needing("change", api.Need{From: "good", Patch: true})),
		shellTask("last", "cp inputs/o inputs/change outputs/", needing("o", api.Need{From: "good", Output: "o.txt"}), needing("change", api.Need{From: "bad", Output: "change"})),
	))
	_, err := w.conn().Operator().RetryRun(t.Context(), id, api.RunRetry{RunID: "early"})
	wantCode(t, "a retry of an open run", err, api.CodeConflict, "once")
	first := w.awaitSettled(id)
	wantStates(t, first, "failed; good done; bad failed agent; last skipped")
	w.write("repo/later.txt", "after the first run\n", 0o644)
	w.commit("repo", "moved on") // rerun tasks match the reused ones
	w.open("mended")
	again, err := w.conn().Operator().RetryRun(t.Context(), id, api.RunRetry{RunID: "twice"})
	if must(t, err); !w.names(string(again.RunID), "twice") || again.RetryOf != id {
		t.Errorf("the new run is %+v", again)
	}
	run := w.awaitSettled(again.RunID)
	wantStates(t, run, "done; good done; bad done; last done")
	good := task(t, run, "good")
	if !good.TakenOver || good.DispatchID != task(t, first, "good").DispatchID || task(t, run, "bad").TakenOver {
		t.Errorf("the tasks are %+v", run.Tasks)
	}
	if n := len(startedIn(w.history(again.RunID))); n != 2 {
		t.Errorf("%d tasks were started", n)
	}
	if got := w.output(run, "last", "o"); got != "out\n" {
		t.Errorf("the output received from the earlier run is %q", got)
	}
	if got := w.output(run, "last", "change"); !strings.Contains(got, "+good") {
		t.Errorf("the patch received from the earlier run is %q", got)
	}
	base := func(task api.RunTask) string {
		d, err := w.conn().Runtime().Describe(t.Context(), task.DispatchID, 0)
		must(t, err)
		return d.Source.Commit
	}
	if was, is := base(task(t, first, "good")), base(task(t, run, "last")); is != was || is == w.git("repo", "rev-parse", "HEAD") {
		t.Errorf("rerun tasks start from %s, finished ones from %s", is, was)
	}
	if now := w.run(id); now.State != api.RunFailed {
		t.Errorf("the first run changed to %+v", now)
	}
	w.replays(id, again.RunID)
	w.must("run", "patch", string(again.RunID), "--merge", "merged", "--repo", w.path("repo"))
	if got := w.git("repo", "show", "merged:a.txt"); got != "good" {
		t.Errorf("the merged branch has %q", got)
	}
}

// A retry may start from another commit, change inputs, or run a task and all
// that depend on it again. The log says so, and the evidence about it verifies.
//
// proves R-O4, R-A7
func TestRunRetryWithChanges(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	onRepo := func(t *api.PlanTask) { t.Source = &api.SourceRequest{Name: "repo"} }
	w.submit(api.Plan{ID: "p5", Tasks: []api.PlanTask{
		shellTask("base", "cp a.txt outputs/a", onRepo),
		shellTask("mid", "cp inputs/a outputs/a; echo mid >> outputs/a", needing("a", api.Need{From: "base", Output: "a"})),
		shellTask("top", "true", after("mid")),
		shellTask("free", "true"),
	}})
	first := w.awaitSettled("p5")
	wantStates(t, first, "done; base done; mid done; top done; free done")
	w.refused(1, []string{"every task of run p5 is done", "--from TASK"}, "run", "retry", "p5")

	retry := func(id string, wantStarted string, entry []string, args ...string) api.Run {
		t.Helper()
		w.must(append([]string{"run", "retry", "p5", "--id", id}, args...)...)
		run := w.awaitSettled(api.RunID(id))
		ran := startedIn(w.history(run.RunID))
		slices.Sort(ran)
		if got := strings.Trim(fmt.Sprint(ran), "[]"); run.State != api.RunDone || got != wantStarted {
			t.Errorf("%s: %s, started %q, want %q", id, run.State, got, wantStarted)
		}
		text := w.chosen(w.history(run.RunID)[0].Text)
		for _, want := range append(entry, "retrying run p5 with") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in the entry %q", id, want, text)
			}
		}
		return run
	}
	retry("from", "mid top", []string{"2 tasks taken over", "again from task mid"}, "--from", "mid")
	changed := retry("input", "mid top", []string{"2 tasks taken over", `"input of task mid"`}, "--set", "mid.do=cp inputs/a outputs/a; echo other >> outputs/a")
	if got := w.output(changed, "mid", "a"); got != "one\nother\n" {
		t.Errorf("with the changed input the output is %q", got)
	}
	w.write("input.json", `{"do": "echo file > outputs/a"}`, 0o644)
	retry("file", "base mid top", []string{"1 task taken over", `"input of task base"`}, "--input", "base="+w.path("input.json"))
	w.write("repo/a.txt", "two\n", 0o644)
	w.commit("repo", "moved on")
	head := strings.TrimSpace(w.git("repo", "rev-parse", "HEAD"))
	moved := retry("moved", "base mid top", []string{"1 task taken over", "source repo at " + head}, "--source", "repo@HEAD")
	if got := w.output(moved, "mid", "a"); got != "two\nmid\n" {
		t.Errorf("from the new commit the output is %q", got)
	}
	w.write("repo/a.txt", "three\n", 0o644)
	w.commit("repo", "moved on again")
	w.must("run", "retry", "moved", "--id", "again", "--from", "base")
	if got := w.output(w.awaitSettled("again"), "mid", "a"); got != "two\nmid\n" {
		t.Errorf("a retry of the retry starts from another commit: %q", got)
	}
	if out := w.must("run", "show", "moved"); !strings.Contains(out, "source repo at "+head) {
		t.Errorf("run show: %s", out)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"no task \"gone\"", []string{"--from", "gone"}},
		{"no task of run p5 starts from it", []string{"--source", "other@HEAD"}},
		{"source \"repo\"", []string{"--source", "repo@nowhere"}},
		{"want TASK.KEY=VALUE", []string{"--set", "gone.do=x"}},
		{"want TASK=FILE", []string{"--input", "base"}},
		{"want a JSON object", []string{"--input", "base=" + w.path("repo/a.txt")}},
	} {
		w.refused(1, []string{c.says}, append([]string{"run", "retry", "p5"}, c.args...)...)
	}
	for _, id := range []string{"from", "input", "file", "moved", "again"} {
		w.verifyEvidence(id)
	}
	w.replays("p5", "from", "input", "file", "moved", "again")
}

// Neither an open run nor one that an emergency stop covers can be retried, and
// the answer says why.
//
// proves R-T10
func TestRunRetryUnderAStopSaysSo(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.submit(planned("held", shellTask("a", awaitGate("go"))))
	w.begunTask("held", "a")
	w.refused(1, []string{"run held is running: only a run that has ended can be retried", "bailiwick run cancel held"}, "run", "retry", "held")
	w.must("stop", "--run", "held", "--reason", "wrong branch")
	w.awaitSettled("held")
	w.refused(3, []string{"emergency stop s-1 is engaged", "bailiwick stop lift s-1"}, "run", "retry", "held", "--id", "next")
}

// A retry continues what had grown in the run that failed: its tasks run again and end
// it, though nothing grows a second time. The log of it is one that the service follows
// after a restart.
//
// proves R-O4, R-O9
func TestARetryContinuesWhatHadGrown(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "checks", script: "mkdir -p outputs; echo '{\"verdict\": \"green\"}' > outputs/result.json\n", more: "    output: {type: object, properties: {verdict: {type: string}}}\n"})
	const mended = "ls $GATE | grep -qx mended"
	part := func(t *api.PlanTask) {
		t.ForEach = &api.ForEach{Values: []json.RawMessage{json.RawMessage(`"x"`), json.RawMessage(`"y"`)}}
	}
	gated := func(t *api.PlanTask) {
		t.Gate = &api.Gate{Verify: api.GateStep{Subagent: "checks"}, Fix: api.GateStep{Subagent: "checks"}}
	}
	p := planned("fan", shellTask("part", mended, part), shellTask("work", mended, gated), shellTask("all", mended, part, gated))
	if run := w.awaitSettled(w.submit(p)); run.State != api.RunFailed {
		t.Fatalf("%+v", run)
	}
	w.open("mended")
	w.must("run", "retry", "fan", "--id", "again")
	if run := w.awaitSettled("again"); run.State != api.RunDone {
		t.Errorf("%+v", run)
	}
	w.verifyEvidence("again")
	w.must("audit", "verify", "--log")
	w.must("down")
	w.upRuns()
	w.must("audit", "verify", "--log")
}
