package e2e

import (
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
	w := orchestrated(t, 0)
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
	if must(t, err); again.RunID != "twice" || again.RetryOf != id {
		t.Errorf("the new run is %+v", again)
	}
	run := w.awaitSettled("twice")
	wantStates(t, run, "done; good done; bad done; last done")
	good := task(t, run, "good")
	if !good.TakenOver || good.DispatchID != task(t, first, "good").DispatchID || task(t, run, "bad").TakenOver {
		t.Errorf("the tasks are %+v", run.Tasks)
	}
	if n := len(startedIn(w.history("twice"))); n != 2 {
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
	w.replays(id, "twice")
}
