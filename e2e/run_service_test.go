package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

const queuesConfig = "orchestrator: {queues: {default: {slots: 1}, wide: {slots: 3}}}\n"

// Status, doctor and metrics show whether the service has an orchestrator, the
// load of its queues, and the outcomes of runs; the configuration sets how many
// tasks run at once.
//
// proves R-O3
func TestStatusShowsRuns(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.up()
	if out := w.must("status"); !strings.Contains(out, "no orchestrator; start one with: "+w.startsRuns()) || w.status().Orchestrator != nil {
		t.Errorf("without one: %s", out)
	}
	if out := w.must("doctor"); !strings.Contains(out, "orchestrator       not enabled") {
		t.Errorf("doctor without one: %s", out)
	}
	w.must("down")
	w.write(serviceConfig, "version: 1\n"+w.metricsAt()+queuesConfig, 0o644)
	if out := w.try("doctor").stdout; !strings.Contains(out, "on, with the queues default (1 at once), wide (3 at once)") {
		t.Errorf("doctor: %s", out)
	}
	w.must("up") // the section alone enables it
	gated := func(queue api.Name) api.Plan {
		p := planned("", shellTask("a", awaitGate("go")), shellTask("b", awaitGate("go")), shellTask("c", "exit 1", after("a")), shellTask("d", "true", after("c")))
		p.Queue = queue
		return p
	}
	var ids []api.RunID
	for _, queue := range []api.Name{"default", "wide"} {
		ids = append(ids, w.submit(gated(queue)))
	}
	w.begunTask(ids[0], "a")
	w.begunTask(ids[1], "a")
	w.begunTask(ids[1], "b")
	s := w.status().Orchestrator
	if s == nil || s.OpenRuns != 2 || s.Tasks[api.TaskRunning] != 3 || s.Tasks[api.TaskReady] != 1 || s.Tasks[api.TaskPending] != 4 || len(s.Queues) != 2 || !w.status().Ready {
		t.Fatalf("the status is %+v", s)
	}
	if q := s.Queues[0]; q.Name != "default" || q.Slots != 1 || q.Running != 1 || q.Ready != 1 {
		t.Errorf("the queue is %+v", q)
	}
	if out := w.must("status"); !strings.Contains(out, "2 open, 4 tasks pending, 1 task ready, 3 tasks running") || !strings.Contains(out, "default: 1 of 1 running, 1 ready") {
		t.Errorf("the status is %s", out)
	}
	for series, want := range map[string]float64{
		`bailiwick_queue_slots{queue="wide"}`: 3, `bailiwick_queue_tasks_running{queue="wide"}`: 2, `bailiwick_queue_tasks_ready{queue="default"}`: 1,
		`bailiwick_queue_runs_open{queue="default"}`: 1, `bailiwick_check_ok{check="orchestrator"}`: 1, `bailiwick_run_outcomes_total{state="failed"}`: 0,
	} {
		if got, ok := w.metrics()[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}
	w.open("go")
	for _, id := range ids {
		wantStates(t, w.awaitSettled(id), "failed; a done; b done; c failed agent; d skipped")
	}
	for series, want := range map[string]float64{
		`bailiwick_run_outcomes_total{state="failed"}`: 2, `bailiwick_run_outcomes_total{state="done"}`: 0, `bailiwick_task_outcomes_total{reason="agent",state="failed"}`: 2,
		`bailiwick_task_outcomes_total{reason="none",state="done"}`: 4, `bailiwick_task_outcomes_total{reason="none",state="skipped"}`: 2, `bailiwick_run_swept_total`: 0,
		`bailiwick_queue_tasks_running{queue="wide"}`: 0, `bailiwick_queue_runs_open{queue="default"}`: 0,
	} {
		if got, ok := w.metrics()[series]; !ok || got != want {
			t.Errorf("after the run %s is %v (%v), want %v", series, got, ok, want)
		}
	}
	if n := w.metrics()["bailiwick_run_commit_transitions_count"]; n == 0 {
		t.Error("no commit of a run was measured")
	}
}

// If a command needs plans and the service has no orchestrator, a new service
// with the same settings replaces it, and its workers keep running. The
// control: a service with an orchestrator is not replaced.
//
// proves R-O1
func TestOrchestratorReplacesAPlainService(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.write("other.yaml", "version: 1\nlog: {format: json}\n", 0o600)
	socket := w.path("run/own.sock")
	w.must("up", "--socket", socket, "--config", w.path("other.yaml"))
	t.Cleanup(func() { w.try("down", "--socket", socket) })
	c := client.New(client.Config{Socket: socket, UIDs: []int{0}})
	t.Cleanup(c.Close)
	status := func() api.ServiceStatus {
		s, err := c.Operator().Status(t.Context())
		must(t, err)
		return s
	}
	before := status()
	d, err := c.Runtime().Dispatch(t.Context(), api.DispatchRequest{Subagent: "sh", Input: []byte(`{"do":"until ls $GATE | grep -qx go; do sleep 0.05; done"}`)})
	must(t, err)
	for d.State != api.EventStarted {
		d, err = c.Runtime().Describe(t.Context(), d.ID, 10*time.Millisecond)
		must(t, err)
	}
	w.refused(1, []string{fmt.Sprint("process ", before.PID)}, "up", "--orchestrator", "--socket", w.path("run/third.sock"))
	if now := status(); now.PID != before.PID {
		t.Fatal("a service with other settings was stopped")
	}
	w.must("up", "--orchestrator")
	after := status() // at the same socket
	if after.PID == before.PID || after.Orchestrator == nil || after.ConfigFile != w.path("other.yaml") || after.OneShot != nil {
		t.Errorf("it was %+v and is %+v", before, after)
	}
	w.open("go")
	if d, err = c.Runtime().Describe(t.Context(), d.ID, 50*time.Second); err != nil || d.State != api.EventFinished || d.Attempt != 1 {
		t.Errorf("the worker that ran during the replacement: %+v, %v", d, err)
	}
	w.must("up", "--orchestrator")
	if status().PID != after.PID {
		t.Error("positive control: a service with an orchestrator was replaced")
	}
	w.refused(1, []string{"--idle"}, "up", "--orchestrator", "--idle", "10s")
	for _, args := range [][]string{{"serve", "--orchestrator", "--idle", "10s"}, {"start", "--idle", "10s", "--orchestrator"}} {
		if d := w.exec(filepath.Join(bin, "bailiwickd"), args...); d.status != 1 || !strings.Contains(d.stderr, "--idle") {
			t.Errorf("%q: %s", args, d)
		}
	}
	// The same for a one-shot service, and after the configuration has enabled
	// the orchestrator.
	w.must("down", "--socket", socket)
	wantEnd(t, w.dispatch("sh", "--set", "do=true"), api.EventFinished, "")
	one := w.status()
	w.write(serviceConfig, "version: 1\norchestrator: {}\n", 0o600)
	w.must("up", "--config", w.path(serviceConfig)) // the state remembers other.yaml
	w.downAtEnd()
	if now := w.status(); one.OneShot == nil || now.PID == one.PID || now.OneShot != nil || now.Orchestrator == nil {
		t.Errorf("it was %+v and is %+v", one, now)
	}
}

// A watch continues across services, even one without an orchestrator, and sees
// every event exactly once.
//
// proves R-O1, R-O6
func TestRunWatchContinuesAcrossRestarts(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("", shellTask("a", awaitGate("go")), shellTask("b", "true", after("a")), shellTask("c", "true", after("b"))))
	w.begunTask(id, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var seen []api.RunEvent
	saw, done := make(chan struct{}, 100), make(chan error, 1)
	c := w.conn()
	go func() {
		done <- c.Runtime().WatchRun(ctx, id, "", func(e api.RunEvent) error {
			seen = append(seen, e)
			saw <- struct{}{}
			return nil
		})
	}()
	<-saw
	w.must("down")
	w.upRuns()
	w.open("go")
	must(t, <-done)
	want := w.history(id)
	if fmt.Sprint(sequence(seen)) != fmt.Sprint(sequence(want)) || seen[len(seen)-1].Event != "run.settled" {
		t.Errorf("it saw %v, want %v", sequence(seen), sequence(want))
	}
	wantStates(t, w.run(id), "done; a done; b done; c done")
}

func sequence(events []api.RunEvent) (all []uint64) {
	for _, e := range events {
		all = append(all, e.Seq)
	}
	return all
}

// A run is sealed once a signed checkpoint covers its settlement, and not
// before.
//
// proves R-A5
func TestASettledRunIsSealedByACheckpoint(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("", shellTask("a", awaitGate("go"))))
	w.begunTask(id, "a")
	_ = w.checkpoint() // the log is covered; the run continues
	if w.run(id).Sealed {
		t.Error("a run that continues is sealed")
	}
	w.open("go")
	end := w.awaitEvent(id, func(e api.RunEvent) bool { return e.Event == "run.settled" }).Seq
	for range polling(time.Minute) {
		if w.run(id).Sealed {
			break
		}
	}
	if c := w.checkpoint(); c.Size <= end {
		t.Errorf("it is sealed by entry %d, and the checkpoint covers %d", end, c.Size)
	}
	if out := w.must("run", "show", string(id)); !strings.Contains(out, "sealed") {
		t.Errorf("run show: %s", out)
	}
}

// A plan of almost 4 MiB is accepted and carried out; a larger one is refused,
// whether or not the service reads it whole.
//
// proves R-O2
func TestLargePlansAreAccepted(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	sized := func(n int) error {
		p := planned("long")
		for len(p.Tasks) < 16 {
			p.Tasks = append(p.Tasks, shellTask(api.TaskID(fmt.Sprint("t", len(p.Tasks))), ": "+strings.Repeat("x", n/15), after("t0")))
		}
		p.Tasks[0] = shellTask("t0", "exit 1")
		_, err := w.conn().Runtime().Submit(t.Context(), request(t, p))
		return err
	}
	wantCode(t, "a plan of 5 MiB", sized(5<<20), api.CodeTooLarge)
	wantCode(t, "a plan of 4 MiB and a little", sized(api.MaxPlan), api.CodeTooLarge)
	must(t, sized(api.MaxPlan-64<<10))
	if run := w.awaitSettled("long"); run.State != api.RunFailed || run.Counts[api.TaskSkipped] != 15 {
		t.Errorf("the run is %s: %v", run.State, run.Counts)
	}
}

// If the orchestrator cannot make a step durable it stops. Once the disk has room it
// continues by itself, and does what became due meanwhile.
//
// proves R-O6
func TestRunsContinueOnceAFullDiskHasRoom(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.must("down")
	w.smallState("20m")
	w.upRuns()
	w.downAtEnd()
	p := planned("late", shellTask("a", awaitGate("never")), shellTask("b", "true", after("a")))
	p.Limits.Wall = api.Duration(20 * time.Second)
	id := w.submit(p)
	w.begunTask(id, "a")
	before := w.status()
	if !before.Ready || before.Orchestrator.Error != "" {
		t.Fatalf("positive control: it is %+v", before)
	}
	for deadline := time.Now().Add(22 * time.Second); time.Now().Before(deadline); { // beyond the wall time
		w.fillState() // also what the service gives up
		if d := w.try("status"); d.status != 1 || !strings.Contains(d.stdout+d.stderr, "state is on a full disk") && !strings.Contains(d.stdout, "its disk was full") {
			t.Fatalf("on a full disk: %s", d)
		}
	}
	w.freeState()
	w.awaitReady(true)
	wantStates(t, w.awaitSettled(id), "cancelled; a cancelled; b cancelled")
	if now := w.status(); now.PID != before.PID || now.Orchestrator.Error != "" {
		t.Errorf("it is %+v, and was process %d", now, before.PID)
	}
}
