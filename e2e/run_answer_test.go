package e2e

import (
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A task's question may be answered through its run or its dispatch. Either way
// an answer applies only to its question: a late one is refused, even if the
// task asks again. The control is an answer in time.
//
// proves R-D7, R-O7
func TestLateAnswerReachesNoOtherQuestion(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	const twice = `if ! test -f inputs/resume.json; then echo '{"question": "First?"}' > .bailiwick/question.json
elif grep -q First inputs/resume.json; then echo '{"question": "Second?"}' > .bailiwick/question.json
else cp inputs/resume.json answer.json; fi`
	id := w.submit(planned("asks", shellTask("a", twice)))
	first := w.awaitEvent(id, event("task.waiting", "a"))
	dispatch := string(first.DispatchID)
	w.must("dispatch", "answer", dispatch, "one") // exits with 0: it sees no open question
	w.awaitEvent(id, func(e api.RunEvent) bool { return e.Event == "task.waiting" && e.Seq > first.Seq })
	for _, late := range [][]string{
		{"dispatch", "answer", dispatch, "--attempt", "1", "late"},
		{"run", "answer", string(id), "--task", "a", "--attempt", "1", "late"},
		{"dispatch", "answer", dispatch, "--attempt", "1", "one"},
	} {
		w.refused(1, []string{"the open question is of attempt 2, not of attempt 1"}, late...)
	}
	run := w.run(id)
	if a := task(t, run, "a"); run.State != api.RunWaiting || !a.Asks || a.Message != "Second?" {
		t.Errorf("the run is %s, its task %+v", run.State, a)
	}
	w.must("run", "answer", string(id), "--task", "a", "two")
	wantStates(t, w.awaitSettled(id), "done; a done")
	w.refused(1, []string{"is settled"}, "dispatch", "answer", dispatch, "three")
	w.replays(id)
}

// A question shows when it ends: at its own deadline or at that of its run,
// whichever is earlier.
//
// proves R-D7, R-O7
func TestQuestionShowsTheEarlierDeadline(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	tools := w.mcp(mcpNovember)
	for name, wall := range map[api.RunID]time.Duration{"run-first": time.Hour, "question-first": 1000 * time.Hour} {
		p := planned(name, shellTask("a", inquiry))
		p.Limits.Wall = api.Duration(wall)
		id := w.submit(p)
		asked := w.awaitEvent(id, event("task.waiting", "a"))
		run := w.run(id)
		want := asked.At.Add(7 * 24 * time.Hour)
		if name == "run-first" {
			want = *run.Deadline
		}
		near := func(where string, got *time.Time) {
			t.Helper()
			if got == nil || got.Sub(want).Abs() > 10*time.Second {
				t.Errorf("%s: %s ends at %v, want %s", name, where, got, want)
			}
		}
		d := w.show(string(asked.DispatchID))
		near("dispatch show", d.AnswerBy)
		var list []api.Dispatch
		decode(t, w.must("dispatch", "list", "-o", "json"), &list)
		for _, d := range list {
			if d.ID == asked.DispatchID {
				near("dispatch list", d.AnswerBy)
			}
		}
		waiting, err := w.conn().Runtime().Waiting(t.Context())
		must(t, err)
		for _, q := range waiting {
			if q.DispatchID == asked.DispatchID {
				near("waiting", q.Until)
			}
		}
		var shown struct{ Record api.Dispatch }
		decode(t, string(tools.call("bailiwick_dispatch_describe", members{"dispatchId": asked.DispatchID}, nil).Value), &shown)
		near("the tool", shown.Record.AnswerBy)
	}
}
