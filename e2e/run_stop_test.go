package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Whatever a stop of one run has ended stays ended, also after a kill: no task
// of it starts, resumes or accepts an answer. The control: another run of the
// same tasks, outside the stop's scope, finishes meanwhile.
//
// proves R-T10, R-O6, R-O7
func TestRunStopSurvivesAKill(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	tasks := []api.PlanTask{
		shellTask("gate", awaitGate("go")), shellTask("after", "true", after("gate")),
		shellTask("asks", `test -f inputs/resume.json || echo '{"question": "Which?"}' > .bailiwick/question.json`),
	}
	held, free := w.submit(planned("held", tasks...)), w.submit(planned("free", tasks...))
	for _, id := range []api.RunID{held, free} {
		w.begunTask(id, "gate")
		w.awaitEvent(id, event("task.waiting", "asks"))
	}
	w.must("stop", "--run", string(held), "--reason", "odd")
	run := w.awaitSettled(held)
	if run.State == api.RunDone || run.Counts[api.TaskDone] > 0 {
		t.Errorf("the run is %+v", run)
	}
	begun := len(startedIn(w.history(held)))

	kill(t, w.status().PID)
	w.upRuns()
	if out := w.must("stop", "list"); !strings.Contains(out, "s-1") || !strings.Contains(out, "run") || !strings.Contains(out, string(held)) {
		t.Errorf("the list says %q", out)
	}
	w.refused(1, []string{"settled"}, "run", "answer", string(held), "--task", "asks", "red")
	w.submit(planned("held", tasks...)) // the same plan and ID is the same run
	w.open("go")
	w.must("run", "answer", string(free), "--task", "asks", "red")
	wantStates(t, w.awaitSettled(free), "done; gate done; after done; asks done")
	if now := w.run(held); now.State != run.State || len(startedIn(w.history(held))) != begun {
		t.Errorf("the run was %s and is %s, with %d starts", run.State, now.State, len(startedIn(w.history(held)))-begun)
	}

	// A retry of the run would escape the stop; the same plan as a run of its own is
	// for the operator to stop.
	w.refused(3, []string{"emergency stop s-1 is engaged"}, "run", "retry", string(held), "--id", "again")
	w.submit(planned("again", tasks...))
	w.must("run", "answer", "again", "--task", string(w.awaitEvent("again", event("task.waiting", "asks")).Task), "red")
	w.awaitSettled("again")
	w.must("stop", "lift", "s-1", "--reason", "looked at")
	w.replays(held, free, "again")
}

// A stop also blocks a run without any dispatch yet: it settles without ever
// having a worker. The control: another run.
//
// proves R-T10
func TestStopBlocksAnUnstartedRun(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.must("queue", "pause", "default")
	held, free := w.submit(planned("held", shellTask("a", "true"), shellTask("b", "true", after("a")))), w.submit(planned("free", shellTask("a", "true")))
	w.must("stop", "--run", string(held))
	w.must("queue", "resume", "default")
	wantStates(t, w.awaitSettled(free), "done; a done")
	wantStates(t, w.awaitSettled(held), "failed; a denied denied; b skipped")
	history := w.history(held)
	if slices.ContainsFunc(history, func(e api.RunEvent) bool { return e.Event == "dispatch.accepted" }) {
		t.Errorf("a dispatch of it was accepted: %v", history)
	}
	if !slices.ContainsFunc(history, func(e api.RunEvent) bool {
		return e.Event == "dispatch.denied" && strings.Contains(e.Text, "s-1")
	}) {
		t.Errorf("no entry says that the stop blocked it: %v", history)
	}
	w.replays(held, free)
}
