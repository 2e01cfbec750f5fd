package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// family is an agent that never exits, with child processes, some of them
// detached.
const family = "sleep 7654 & (setsid sleep 7655 &) ; trap '' TERM; echo half > half.txt; echo begun; while :; do sleep 1; done"

// Cancelling a run ends its running tasks with their whole process trees, and
// starts nothing else; work so far is kept, and the caller is recorded.
//
// proves R-O7, R-D4
func TestRunCancelEndsAllItsTasks(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := orchestrated(t, uid)
		id := w.submit(planned("enough",
			shellTask("one", family), shellTask("two", family, locking("k"), retrying(5)), shellTask("behind", "true", locking("k")),
			shellTask("asks", `echo '{"question": "Which?"}' > .bailiwick/question.json`),
			shellTask("later", "true", after("one")), shellTask("done", "echo x > a.txt"),
		))
		other := w.submit(planned("other", shellTask("a", awaitGate("other"))))
		var dispatches []string
		for _, task := range []api.TaskID{"one", "two"} {
			dispatches = append(dispatches, w.begunTask(id, task))
		}
		w.awaitEvent(id, event("task.waiting", "asks"))
		w.awaitEvent(id, event("task.done", "done"))
		w.begunTask(other, "a")
		j := jailed{map[int]bool{}, map[string]bool{}}
		w.must("run", "cancel", string(id), "--reason", "seen enough")
		run := w.awaitSettled(id)
		wantStates(t, run, "cancelled; one cancelled; two cancelled; behind cancelled; asks cancelled; later cancelled; done done")
		if string(run.CancelBy) != w.me() || run.CancelReason != "seen enough" {
			t.Errorf("cancelled by %q because %q", run.CancelBy, run.CancelReason)
		}
		for _, d := range dispatches {
			rec := w.show(d)
			wantEnd(t, rec, api.EventCancelled, "")
			if rec.Outcome == nil || rec.Outcome.Patch == nil || string(rec.CancelBy) != w.me() {
				t.Errorf("the outcome of %s: %+v, cancelled by %q", d, rec.Outcome, rec.CancelBy)
			}
			if left := w.leftOf(d, j); len(left) > 0 && uid == 0 {
				w.noWorkersLeft(left)
			}
		}
		if state := w.run(other).State; state != api.RunRunning {
			t.Errorf("the other run is %s", state)
		}
		w.open("other")
		wantStates(t, w.awaitSettled(other), "done; a done")
		if left := w.settledRemains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		// After the run has settled a cancel changes neither the run nor its
		// entries in the log.
		before := len(w.history(id))
		w.must("run", "cancel", string(id), "--reason", "again")
		if now := w.run(id); now.CancelReason != "seen enough" || len(w.history(id)) != before {
			t.Errorf("cancelled again: %+v", now)
		}
		w.replays(id, other)
	})
}

// noWorkersLeft fails the test for every process or worker in left.
func (w *world) noWorkersLeft(left []string) {
	w.t.Helper()
	for _, l := range left {
		if strings.HasPrefix(l, "process") || strings.HasPrefix(l, "worker") {
			w.t.Errorf("left behind: %s", l)
		}
	}
}

// One task of a run can be cancelled, while it runs or before; its dependents
// are skipped and other tasks continue.
//
// proves R-O7, R-O4
func TestTaskCancelLeavesOtherTasks(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("less",
		shellTask("running", family, retrying(3)), shellTask("after-running", "true", after("running")),
		shellTask("gate", awaitGate("go")), shellTask("unbegun", "true", after("gate")), shellTask("after-unbegun", "true", after("unbegun")), shellTask("rest", "true", after("gate")),
	))
	dispatch := w.begunTask(id, "running")
	w.begunTask(id, "gate")
	j := jailed{map[int]bool{}, map[string]bool{}}
	for task, want := range map[string]string{"unbegun": "task unbegun of run less is cancelled, 1 task skipped because of it; the run continues with ", "running": "task running of run less is cancelled, 1 task skipped because of it; the run continues with "} {
		if out := w.chosen(w.must("run", "cancel", string(id), "--task", task, "--reason", "not this")); !strings.Contains(out, want) {
			t.Errorf("run cancel --task %s: %q, want %q", task, out, want)
		}
	}
	w.awaitEvent(id, event("task.cancelled", "running"))
	w.noWorkersLeft(w.leftOf(dispatch, j))
	w.refused(1, []string{"nothing"}, "run", "cancel", string(id), "--task", "nothing")
	w.open("go")
	run := w.awaitSettled(id)
	wantStates(t, run, "cancelled; running cancelled; after-running skipped; gate done; unbegun cancelled; after-unbegun skipped; rest done")
	if by := task(t, run, "running").CancelBy; string(by) != w.me() {
		t.Errorf("cancelled by %q", by)
	}
	if cause := task(t, run, "after-unbegun").Cause; cause != "unbegun" {
		t.Errorf("skipped because of %q", cause)
	}
	w.replays(id)
	w.verifyEvidence(string(id))
	// Its only unfinished task: the run ends with it.
	w.submit(planned("last", shellTask("done", "true"), shellTask("open", family)))
	w.begunTask("last", "open")
	w.awaitEvent("last", event("task.done", "done"))
	if out := w.chosen(w.must("run", "cancel", "last", "--task", "open")); !strings.Contains(out, "task open of run last is cancelled; the run is cancelled: 1 done, 1 cancelled") {
		t.Errorf("run cancel --task: %q", out)
	}
	wantStates(t, w.run("last"), "cancelled; done done; open cancelled")
	w.replays("last")
	w.verifyEvidence("last")
}

// A paused run starts nothing new, but running tasks continue; likewise a
// paused queue, for all its runs. A pause survives a kill.
//
// proves R-O7, R-O6
func TestPauseLastsUntilResume(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	for what, verbs := range map[string][2][]string{"run": {{"run", "pause", "run"}, {"run", "resume", "run"}}, "queue": {{"queue", "pause", "default"}, {"queue", "resume", "default"}}} {
		gate := "go-" + what
		p := planned(api.RunID(what), shellTask("runs", awaitGate(gate)), shellTask("next", "true", after("runs")), shellTask("free", "true", after("runs")))
		id := w.submit(p)
		w.begunTask(id, "runs")
		w.must(verbs[0]...)
		w.must(verbs[0]...) // it is paused
		w.open(gate)
		w.awaitEvent(id, event("task.done", "runs"))
		var behind api.RunID
		if what == "queue" {
			behind = w.submit(planned("behind", shellTask("a", "true")))
		} else { // the other runs of its queue continue
			wantStates(t, w.awaitSettled(w.submit(planned("beside", shellTask("a", "true")))), "done; a done")
		}
		kill(t, w.status().PID)
		w.upRuns()
		if run := w.run(id); run.State != api.RunPaused || task(t, run, "next").State != api.TaskReady || task(t, run, "next").Blocked == "" {
			t.Errorf("%s: %+v", what, run)
		}
		if behind != "" {
			if run := w.run(behind); run.State != api.RunPaused || run.Counts[api.TaskReady] != 1 {
				t.Errorf("%s: a run submitted meanwhile is %+v", what, run)
			}
		}
		w.must(verbs[1]...)
		wantStates(t, w.awaitSettled(id), "done; runs done; next done; free done")
		if behind != "" {
			wantStates(t, w.awaitSettled(behind), "done; a done")
		}
		w.replays(id)
	}
	if queues, err := w.conn().Operator().Queues(t.Context()); err != nil || len(queues) != 1 || queues[0].PausedBy != "" || queues[0].Runs != 0 {
		t.Errorf("after the resume the queues are %+v %v", queues, err)
	}
}

// An emergency stop ends the running tasks of a run and starts no others. The
// run settles with a true outcome.
//
// proves R-T10, R-O7
func TestStopCancelsRuns(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("held",
		shellTask("done", "true"), shellTask("running", family, retrying(5)), shellTask("after", "true", after("running")),
		shellTask("asks", `echo '{"question": "Which?"}' > .bailiwick/question.json`), shellTask("behind", "true", after("gate")), shellTask("gate", awaitGate("gate")),
	))
	w.begunTask(id, "running")
	w.begunTask(id, "gate")
	w.awaitEvent(id, event("task.waiting", "asks"))
	w.awaitEvent(id, event("task.done", "done"))
	w.must("stop", "--all", "--reason", "strange")
	run := w.awaitSettled(id)
	if run.State.Settled() && run.State == api.RunDone {
		t.Errorf("the run is %+v", run)
	}
	for _, o := range run.Tasks {
		if done := o.State == api.TaskDone; done != (o.Task == "done") || !slices.Contains([]api.TaskState{api.TaskDone, api.TaskCancelled, api.TaskSkipped, api.TaskDenied}, o.State) {
			t.Errorf("task %s is %s %s", o.Task, o.State, o.Reason)
		}
	}
	if left := w.settledRemains(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	_, err := w.conn().Runtime().Submit(t.Context(), request(t, planned("new", shellTask("a", "true"))))
	wantCode(t, "a run submitted meanwhile", err, api.CodeDenied, "s-1")
	w.must("stop", "lift", "s-1", "--reason", "looked at")
	wantStates(t, w.awaitSettled(w.submit(planned("new", shellTask("a", "true")))), "done; a done")
	w.replays(id)
}

// A stop of one run ends that run and no other, and blocks it until the stop is
// lifted.
//
// proves R-T10, R-O7
func TestStopOfOneRunLeavesOthers(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("odd", shellTask("running", family, retrying(5)), shellTask("after", "true", after("running"))))
	other := w.submit(planned("fine", shellTask("a", awaitGate("go")), shellTask("b", "true", after("a"))))
	w.begunTask(id, "running")
	w.begunTask(other, "a")
	w.must("stop", "--run", string(id), "--reason", "odd")
	run := w.awaitSettled(id)
	if run.State == api.RunDone || run.Counts[api.TaskDone] != 0 {
		t.Errorf("the run is %+v", run)
	}
	if n := len(startedIn(w.history(id))); n != 1 {
		t.Errorf("%d tasks were started", n)
	}
	w.open("go")
	wantStates(t, w.awaitSettled(other), "done; a done; b done")
	wantStates(t, w.awaitSettled(w.submit(planned("next", shellTask("a", "true")))), "done; a done")
	w.refused(1, nil, "stop", "--run", "nothing-of-that-name")
	if left := w.settledRemains(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	w.replays(id, other)
}
