package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

// faultPlan is what runs when the disk fails: two after one, and one beside.
func faultPlan() api.Plan {
	return api.Plan{ID: "faulty", Tasks: []api.PlanTask{
		{ID: "first", Subagent: work},
		{ID: "second", Subagent: work, DependsOn: []api.TaskID{"first"}},
		{ID: "third", Subagent: work, DependsOn: []api.TaskID{"first"}},
		{ID: "beside", Subagent: work},
	}}
}

// legacy is what a process that ended leaves of its desk, as the records of
// dispatches are left.
type legacy struct {
	Dispatches []api.Dispatch
	Fences     []uint64
	Wrong      []string
}

// A commit of the engine's that fails is the end of what it does: nothing that
// it decided with it has any effect, and everybody is told. After a restart all
// is as if it had never been, or as if it had been durable, whichever it is on
// the disk.
//
// proves R-O6, R-A2
func TestFailedCommitHasNoEffects(t *testing.T) {
	t.Parallel()
	for _, flavour := range []string{"fsync", "write"} {
		for _, moment := range []string{"end", "fail", "submit", "cancel"} {
			t.Run(flavour+" "+moment, func(t *testing.T) {
				root := scratch(t)
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
				cmd.Env = append(os.Environ(), "ORCHESTRATOR_TEST_HELPER="+strings.Join([]string{root, flavour, moment}, "\n"))
				var said, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &said, &errs
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, said.String(), errs.String())
				}
				var left legacy
				if err := json.Unmarshal(said.Bytes(), &left); err != nil {
					t.Fatalf("%v: %s", err, said.String())
				}
				goOn(t, root, flavour, moment, left)
			})
		}
	}
}

// goOn begins the next service on what a failure left, and has everything end.
func goOn(t *testing.T, root, flavour, moment string, left legacy) {
	w := &world{t: t, root: root, config: orchestrator.Config{Now: time.Now}, desk: newDesk(time.Now), log: newReplay(map[api.Name]int{api.DefaultQueue: orchestrator.DefaultSlots})}
	w.log.crowd = true
	w.remember(faultPlan())
	later := faultPlan()
	later.ID = "later"
	w.remember(later)
	for i, d := range left.Dispatches {
		j := &job{d: d, by: d.Principal, fence: left.Fences[i], answers: map[int]api.AnswerRequest{}}
		j.order.Run, j.order.Task, j.order.Fence, j.order.Request.Subagent = d.Run, d.Task, left.Fences[i], d.Subagent
		w.desk.jobs[d.ID] = j
	}
	var err error
	if w.store, err = store.Open(t.Context(), w.storeConfig()); err != nil {
		t.Fatal(err)
	}
	before := stored(t, w.store)
	w.must(w.store.Close())
	// What is on the disk has the flavour of the fault, or this test shows less
	// than it says.
	uncertain := map[string]string{"end": "first done", "fail": "first failed", "submit": "later", "cancel": "second cancelled"}[moment]
	if persisted := strings.Contains(before, uncertain); persisted != (flavour == "fsync") {
		t.Errorf("stored after a failed %s: %v in %q", flavour, persisted, before)
	}
	w.start()
	defer func() { _ = w.stop() }()
	if _, err := w.offer(as(ann), faultPlan()); err != nil { // again: it is the same run
		t.Fatal(err)
	}
	for _, id := range []api.RunID{"faulty", "later"} {
		w.finish(id)
	}
	w.read()
	if wrong := slices.Concat(w.log.wrong, w.desk.complaints(), left.Wrong); len(wrong) > 0 {
		t.Errorf("%s", strings.Join(wrong, "\n"))
	}
	if n, err := w.ledger.Check(t.Context()); err != nil || n != w.log.next {
		t.Errorf("the log has %d entries, %d were read: %v", n, w.log.next, err)
	}
	want := map[string]api.RunState{"end": api.RunDone, "fail": api.RunFailed, "submit": api.RunDone, "cancel": api.RunCancelled}[moment]
	if moment == "cancel" && flavour == "write" {
		want = api.RunDone
	}
	if got := api.RunState(w.log.runs["faulty"].settled.State); got != want {
		t.Errorf("the run is %s, want %s", got, want)
	}
	for _, j := range w.desk.jobs {
		if j.active() {
			t.Errorf("%s is left", j.GoString())
		}
	}
}

// stored is what is in the tables, in words.
func stored(t *testing.T, s *store.Store) (words string) {
	t.Helper()
	err := s.Read(t.Context(), func(v *store.View) error {
		return v.Each(`SELECT 'run ' || id FROM run UNION ALL
SELECT json_extract(plan, '$.tasks[' || task || '].id') || ' ' || t.state FROM run_task t JOIN run r ON t.run = r.seq`, nil, func(scan store.Scan) error {
			var word string
			err := scan(&word)
			words += word + "; "
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// finish ends every attempt of a run, well or as cancelled, until the run is
// settled. It never waits for a count of attempts: the counts that the engine shows
// may still have an attempt that has ended.
func (w *world) finish(id api.RunID) {
	w.t.Helper()
	for range 60_000 {
		r, err := w.o.Describe(context.Background(), root, id, "", 0)
		if api.CodeOf(err) == api.CodeNotFound {
			return
		}
		w.must(err)
		if r.State.Settled() {
			return
		}
		for _, j := range w.desk.sorted(func(j *job) bool { return j.active() && j.order.Run == id }) {
			state := api.EventFinished
			if j.d.CancelBy != "" {
				state = api.EventCancelled
			}
			w.desk.end(j, state, "", true)
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("run %s does not settle", id)
}

// TestHelper is the other process of the tests above.
func TestHelper(t *testing.T) {
	args := strings.Split(os.Getenv("ORCHESTRATOR_TEST_HELPER"), "\n")
	switch args[0] {
	case "":
	case "memory":
		helpMemory(t, args[1], args[2])
	default:
		helpFault(t, args)
	}
}

// helpFault has the disk fail at a moment, and prints what is left.
func helpFault(t *testing.T, args []string) {
	w := newWorld(t, args[0], orchestrator.Config{})
	if _, err := w.offer(as(ann), faultPlan()); err != nil {
		t.Fatal(err)
	}
	w.desk.await(func() bool { return w.desk.countActive("faulty") == 2 })
	if _, err := w.o.Queues(t.Context()); err != nil { // it has heard of both
		t.Fatal(err)
	}
	if err := faultdisk.Refuse(args[1]); err != nil {
		t.Fatal(err)
	}
	j := w.desk.sorted(func(j *job) bool { return j.order.Task == "first" })[0]
	var err error
	switch args[2] {
	case "end":
		w.desk.end(j, api.EventFinished, "", true)
	case "fail":
		w.desk.end(j, api.EventFailed, api.ReasonOutput, true)
	case "submit":
		later := faultPlan()
		later.ID = "later"
		if _, err = w.offer(as(ann), later); err == nil {
			t.Error("submitted on a disk that failed")
		}
		w.desk.end(j, api.EventFinished, "", true)
	case "cancel":
		if _, err = w.o.Cancel(t.Context(), as(ann), "faulty", api.RunCancel{}); err == nil {
			t.Error("cancelled on a disk that failed")
		}
		w.desk.end(j, api.EventFinished, "", true)
	}
	if args[2] == "submit" || args[2] == "cancel" {
		if err == nil || !strings.Contains(err.Error(), store.ErrUncertain.Error()) || api.CodeOf(err) != api.CodeAuditUnavailable {
			t.Errorf("the request whose commit failed: %v", err)
		}
	}
	w.standsStill(t)
	if n := w.desk.count("fire"); n != 2 {
		t.Errorf("%d dispatches were submitted, want the 2 from before", n)
	}
	if n := w.desk.count("cancel"); n != 0 {
		t.Errorf("%d dispatches were cancelled", n)
	}
	left := legacy{Wrong: w.desk.complaints()}
	for _, j := range w.desk.jobs {
		left.Dispatches, left.Fences = append(left.Dispatches, j.d), append(left.Fences, j.fence)
	}
	b, jerr := json.Marshal(left)
	if jerr != nil {
		t.Error(jerr)
	}
	if !t.Failed() {
		_, _ = fmt.Fprintf(os.Stdout, "%s\n", b)
	}
	os.Exit(map[bool]int{true: 1}[t.Failed()]) // without a clean close
}

// standsStill looks at every call of an engine whose commit has failed.
func (w *world) standsStill(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for w.o.Err() == nil { // it answers until it has failed
		if _, err := w.o.Queues(ctx); err != nil {
			break
		}
	}
	if w.o.Err() == nil || !errors.Is(w.o.Err(), store.ErrPoisoned) {
		t.Errorf("Err: %v", w.o.Err())
	}
	p := faultPlan()
	p.ID = "late"
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"submit":  func() error { _, err := w.o.Submit(ctx, as(ann), api.RunRequest{Plan: raw}); return err },
		"cancel":  func() error { _, err := w.o.Cancel(ctx, as(ann), "faulty", api.RunCancel{}); return err },
		"pause":   func() error { _, err := w.o.Pause(ctx, as(ann), "faulty"); return err },
		"queue":   func() error { _, err := w.o.PauseQueue(ctx, as(root), api.DefaultQueue); return err },
		"queues":  func() error { _, err := w.o.Queues(ctx); return err },
		"show":    func() error { _, err := w.o.Describe(ctx, ann, "faulty", "", 0); return err },
		"list":    func() error { _, err := w.o.List(ctx, ann, api.RunFilter{Limit: 10}); return err },
		"events":  func() error { _, err := w.o.Events(ctx, ann, "faulty", "", time.Hour); return err },
		"retry":   func() error { _, err := w.o.Retry(ctx, as(ann), "faulty", api.RunRetry{}); return err },
		"plan":    func() error { _, err := w.o.Plan(ctx, ann, "faulty"); return err },
		"answer":  func() error { _, err := w.o.Answer(ctx, as(ann), "faulty", api.RunAnswer{Task: "first"}); return err },
		"resumeq": func() error { _, err := w.o.ResumeQueue(ctx, as(root), api.DefaultQueue); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s is answered by an engine that stands still", name)
		}
	}
}
