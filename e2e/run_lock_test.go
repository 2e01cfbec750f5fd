package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// agentTime is when the agent of a task ran, as measured by its worker.
func (w *world) agentTime(run api.Run, id api.TaskID) (from, to time.Time) {
	w.t.Helper()
	d := w.show(string(task(w.t, run, id).DispatchID))
	for _, s := range d.Outcome.Steps {
		if s.Name == "agent" {
			return s.At, s.At.Add(time.Duration(s.Seconds * float64(time.Second)))
		}
	}
	w.t.Fatalf("dispatch %s had no agent: %+v", d.ID, d.Outcome.Steps)
	return from, to
}

// startedIn lists tasks in the order in which they started.
func startedIn(events []api.RunEvent) (tasks []api.TaskID) {
	for _, e := range events {
		if e.Event == "task.started" {
			tasks = append(tasks, e.Task)
		}
	}
	return tasks
}

// Independent tasks run concurrently, and so do tasks that share a lock. An
// exclusive lock makes the others wait in order, also across runs and queues. A
// task waiting for an exclusive lock is never overtaken.
//
// proves R-O3
func TestLocksDecideWhatRunsTogether(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.write("config/bailiwick/service.yaml", "version: 1\norchestrator: {queues: {default: {slots: 8}, other: {slots: 8}}}\n", 0o600)
	w.upRuns()
	w.downAtEnd()
	// Concurrent: two that share k, one with a different lock.
	first := w.submit(planned("first", shellTask("reader", awaitGate("one"), locking("shared k")), shellTask("reader2", awaitGate("one"), locking("shared k", "own/1")), shellTask("apart", awaitGate("one"), locking("own/2"))))
	for _, id := range []api.TaskID{"reader", "reader2", "apart"} {
		w.begunTask(first, id)
	}
	// In other runs and another queue: one that wants k exclusively, then one
	// that would share it, then another exclusive one, each behind the one
	// before.
	var runs []api.RunID
	for i, lock := range []string{"k", "shared k", "k"} {
		p := planned(api.RunID(fmt.Sprintf("later%d", i)), shellTask("a", "sleep 0.2", locking(lock)), shellTask("free", "true"))
		if i == 1 {
			p.Queue = "other"
		}
		runs = append(runs, w.submit(p))
		w.awaitEvent(runs[i], event("task.done", "free")) // a task without locks is not blocked
		if a := task(t, w.run(runs[i]), "a"); a.State != api.TaskReady || a.Blocked == "" {
			t.Errorf("the waiting run %s is %+v", runs[i], a)
		}
	}
	w.open("one")
	var all []api.RunEvent
	for _, id := range append(slices.Clone(runs), first) {
		run := w.awaitSettled(id)
		if run.State != api.RunDone {
			t.Errorf("the run is %+v", run)
		}
		all = append(all, w.history(id)...)
	}
	slices.SortFunc(all, func(a, b api.RunEvent) int { return int(a.Seq) - int(b.Seq) })
	var order []string
	for _, e := range all {
		if e.Task == "a" && (e.Event == "task.started" || e.Event == "task.done") {
			order = append(order, e.Event+" "+string(e.Task))
		}
	}
	if want := []string{"task.started a", "task.done a", "task.started a", "task.done a", "task.started a", "task.done a"}; !slices.Equal(order, want) {
		t.Errorf("the log has them in the order %q", order)
	}
	// The times measured by the workers agree.
	var last time.Time
	for _, id := range runs {
		from, to := w.agentTime(w.run(id), "a")
		if from.Before(last) {
			t.Errorf("the agent of %s started at %s, the previous one ended at %s", id, from, last)
		}
		last = to
	}
	oneFrom, oneTo := w.agentTime(w.run(first), "reader")
	twoFrom, twoTo := w.agentTime(w.run(first), "reader2")
	if oneTo.Before(twoFrom) || twoTo.Before(oneFrom) {
		t.Error("tasks that share a lock did not run concurrently")
	}
	w.replays(append(runs, first)...)
}

// Two tasks that want the same two locks in opposite order never deadlock: a
// task acquires all of its locks or none. Every waiting task gets its turn.
//
// proves R-O3
func TestLocksAreTakenTogetherAndFairly(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	var tasks []api.PlanTask
	for i := range 18 {
		locks := [][]string{{"k1", "k2"}, {"k2", "k1"}, {"shared k1", "k3"}, {"k3", "shared k2"}, {"shared k1", "shared k2", "shared k3"}, {"k2"}}[i%6]
		tasks = append(tasks, shellTask(api.TaskID(fmt.Sprintf("t%d", i)), "true", locking(locks...)))
	}
	id := w.submit(planned("dense", tasks...))
	if run := w.awaitSettled(id); run.State != api.RunDone {
		t.Errorf("the run is %+v", run)
	}
	w.replays(id)
}

// A queue never runs more tasks than it has slots.
//
// proves R-O3
func TestQueueLimitsConcurrency(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.write("config/bailiwick/service.yaml", "version: 1\norchestrator: {queues: {default: {slots: 2}}}\n", 0o600)
	w.upRuns()
	w.downAtEnd()
	id := w.submit(planned("narrow", shellTask("a", awaitGate("a")), shellTask("b", awaitGate("b")), shellTask("c", awaitGate("b")), shellTask("d", awaitGate("b"))))
	w.begunTask(id, "a")
	w.begunTask(id, "b")
	if run := w.run(id); run.Counts[api.TaskRunning] != 2 || task(t, run, "c").State != api.TaskReady || task(t, run, "c").Blocked == "" {
		t.Errorf("with two slots: %+v", run)
	}
	queues, err := w.conn().Operator().Queues(t.Context())
	if must(t, err); len(queues) != 1 || queues[0].Slots != 2 || queues[0].Running != 2 || queues[0].Ready != 2 || queues[0].Runs != 1 {
		t.Errorf("the queues are %+v", queues)
	}
	w.open("a")
	w.begunTask(id, "c")
	w.open("b")
	if run := w.awaitSettled(id); run.State != api.RunDone {
		t.Errorf("the run is %+v", run)
	}
	if got, want := startedIn(w.history(id)), []api.TaskID{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("started in the order %q, want %q", got, want)
	}
	w.replays(id)
}
