package orchestrator_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// entries returns the log from a number on.
func (w *world) entries(from uint64) (list []audit.Committed) {
	w.t.Helper()
	for {
		page, err := w.ledger.List(context.Background(), audit.Query{From: from, Limit: 1000})
		w.must(err)
		list = append(list, page...)
		if len(page) < 1000 {
			return list
		}
		from = page[len(page)-1].Seq + 1
	}
}

// What somebody did is heeded from the entry on that says so: no task starts
// behind it, however many are on their way at that moment.
//
// proves R-O7
func TestNothingStartsAfterAPauseInTheLog(t *testing.T) {
	for name, act := range map[string]struct {
		kind record.Kind
		do   func(w *world, id api.RunID) error
		undo func(w *world, id api.RunID) error
	}{
		"a run that is paused": {record.KindRunPaused, func(w *world, id api.RunID) error {
			_, err := w.o.Pause(context.Background(), as(ann), id)
			return err
		}, func(w *world, id api.RunID) error {
			_, err := w.o.Resume(context.Background(), as(ann), id)
			return err
		}},
		"a queue that is paused": {record.KindQueuePaused, func(w *world, _ api.RunID) error {
			_, err := w.o.PauseQueue(context.Background(), as(root), api.DefaultQueue)
			return err
		}, func(w *world, _ api.RunID) error {
			_, err := w.o.ResumeQueue(context.Background(), as(root), api.DefaultQueue)
			return err
		}},
		"a run that is cancelled": {record.KindRunCancelled, func(w *world, id api.RunID) error {
			_, err := w.o.Cancel(context.Background(), as(ann), id, api.RunCancel{})
			return err
		}, func(*world, api.RunID) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, t.TempDir(), orchestrator.Config{}) // on a disk that takes its time
			defer func() { w.must(w.stop()) }()
			for round := range 6 {
				from, err := w.ledger.Len(t.Context())
				w.must(err)
				p := fan(api.RunID(fmt.Sprintf("r%d", round)), 100)
				for i := range p.Tasks {
					p.Tasks[i].Subagent = quick
				}
				_, err = w.offer(as(ann), p)
				w.must(err)
				w.must(act.do(w, p.ID))
				w.must(act.undo(w, p.ID))
				w.settled(p.ID)
				held, started, seen := false, 0, false
				for _, c := range w.entries(from) {
					switch c.Entry.Kind {
					case act.kind:
						held, seen = true, true
					case record.KindRunResumed, record.KindQueueResumed:
						held = false
					case record.KindTaskStarted:
						if started++; held {
							t.Fatalf("round %d: entry %d: %s, behind the entry that holds it", round, c.Seq, c.Entry.Line(c.Seq))
						}
					default:
					}
				}
				if !seen || started == 0 && act.kind != record.KindRunCancelled { // the control
					t.Fatalf("round %d: held %t, %d started", round, seen, started)
				}
			}
		})
	}
}

// broken cannot be reached for one task, whatever it is asked: a fault that
// lasts, and may or may not be transient.
type broken struct {
	orchestrator.Dispatcher
	task api.TaskID

	mu    sync.Mutex
	tries int // guarded by mu
}

func (b *broken) SubmitTask(ctx context.Context, by dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error) {
	if o.Task != b.task {
		return b.Dispatcher.SubmitTask(ctx, by, o)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries++
	return api.Dispatch{}, fmt.Errorf("what is wrong has no name")
}

// behind puts something between the engine and the desk.
func (w *world) behind(wrap func(orchestrator.Dispatcher) orchestrator.Dispatcher) {
	w.t.Helper()
	w.must(w.o.Close())
	s := w.desk.sit()
	config := w.config
	config.Store, config.Ledger, config.Dispatch = w.store, w.ledger, wrap(s)
	var err error
	w.o, err = orchestrator.Open(context.Background(), config)
	w.must(err)
	s.listen(w.o.Ended)
}

// A task whose dispatch cannot be had is tried again for ever, and is cancelled
// like any other, without a restart of the service.
//
// proves R-O7
func TestCancelEndsUnreachableTasks(t *testing.T) {
	for name, do := range map[string]func(w *world) error{
		"the run": func(w *world) error {
			_, err := w.o.Cancel(context.Background(), as(ann), "r", api.RunCancel{})
			return err
		},
		"the task": func(w *world) error {
			_, err := w.o.Cancel(context.Background(), as(ann), "r", api.RunCancel{Task: "t0"})
			return err
		},
		"its time": func(*world) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, orchestrator.Config{}, func(w *world) {
				b := &broken{task: "t0"}
				w.behind(func(d orchestrator.Dispatcher) orchestrator.Dispatcher { b.Dispatcher = d; return b })
				p := fan("r", 1)
				p.Limits.Wall = api.Duration(time.Hour)
				p.Tasks[0].Locks = []api.Lock{{Key: "k"}}
				_, err := w.offer(as(ann), p)
				w.must(err)
				time.Sleep(5 * time.Minute)
				b.mu.Lock()
				tries := b.tries
				b.mu.Unlock()
				if tries < 5 || !w.o.Busy() { // the control
					t.Fatalf("%d tries", tries)
				}
				w.must(do(w))
				time.Sleep(time.Minute)
				synctest.Wait()
				r, err := w.o.Describe(context.Background(), ann, "r", "", 0)
				if err != nil || r.State != api.RunCancelled || r.Counts[api.TaskCancelled] != 1 {
					t.Errorf("the run is %s: %v", r.State, err)
				}
			})
		})
	}
}

// A question may be given up in the very moment of its answer. Who cancels the
// task then, while it waits for its locks, ends it all the same.
func TestCancelEndsTaskWhoseQuestionExpired(t *testing.T) {
	for name, before := range map[string]bool{"cancelled, then heard of": true, "heard of, then cancelled": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, orchestrator.Config{}, func(w *world) {
				ctx := context.Background()
				_, err := w.offer(as(ann), fan("r", 1))
				w.must(err)
				synctest.Wait()
				j := w.desk.sorted((*job).active)[0]
				w.desk.end(j, api.EventNeedsInput, "", true)
				synctest.Wait()
				_, err = w.o.Pause(ctx, as(ann), "r") // it gets no slot
				w.must(err)
				_, err = w.o.Answer(ctx, as(ann), "r", api.RunAnswer{Task: "t0", Text: "yes"})
				w.must(err)
				if before {
					w.desk.end(j, api.EventFailed, api.ReasonTimeout, false)
				} else {
					w.desk.end(j, api.EventFailed, api.ReasonTimeout, true)
				}
				synctest.Wait()
				_, err = w.o.Cancel(ctx, as(ann), "r", api.RunCancel{Task: "t0"})
				w.must(err)
				synctest.Wait()
				if before {
					w.desk.say(j.history[len(j.history)-1])
				}
				synctest.Wait()
				r, err := w.o.Describe(ctx, ann, "r", "", 0)
				if err != nil || !r.State.Settled() {
					t.Errorf("the run is %s, its task %+v: %v", r.State, r.Tasks, err)
				}
			})
		})
	}
}

// As large as a plan may be, and a little more with the id that is made for it:
// that is refused, and does not become a run that no service can begin with.
//
// proves R-O6
func TestPlanTooLargeWithItsIDIsRefused(t *testing.T) {
	w := newWorld(t, scratch(t), orchestrator.Config{})
	defer func() { w.must(w.stop()) }()
	p := fan("", 1)
	head := len(w.remember(p)) + len(`"input":{"x":""},"queue":"default",`)
	text := make([]byte, api.MaxPlan-head)
	for i := range text {
		text[i] = 'x'
	}
	p.Tasks[0].Input = fmt.Appendf(nil, `{"x":%q}`, text)
	_, err := w.offer(as(ann), p)
	if api.CodeOf(err) != api.CodeTooLarge {
		t.Errorf("%v", err)
	}
	w.restart()
}

// The engine is idle once a task that waited for its next attempt has ended.
func TestCancelledTasksDoNotKeepTheEngineBusy(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		p := fan("r", 1)
		p.Tasks[0].Retry = api.Retry{Attempts: 9, Backoff: api.Backoff{Min: api.Duration(time.Hour), Max: api.Duration(24 * time.Hour)}}
		_, err := w.offer(as(ann), p)
		w.must(err)
		for _, restart := range []bool{false, true} {
			synctest.Wait()
			if restart {
				w.restart()
			} else {
				w.desk.end(w.desk.sorted((*job).active)[0], api.EventFailed, api.ReasonAgent, true)
			}
			synctest.Wait()
			if !w.o.Busy() { // the control
				t.Error("idle, and an attempt will follow")
			}
		}
		_, err = w.o.Cancel(context.Background(), as(ann), "r", api.RunCancel{})
		w.must(err)
		synctest.Wait()
		if w.o.Busy() {
			t.Error("busy, and the run is settled")
		}
	})
}

// What holds a lock is named to who may see it: another's run is not.
func TestBlockedNamesNoOtherPrincipalsRun(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		offer := func(by api.Principal, id api.RunID, shared bool) {
			p := fan(id, 1)
			p.Tasks[0].Locks = []api.Lock{{Key: "k", Shared: shared}}
			_, err := w.offer(as(by), p)
			w.must(err)
			synctest.Wait()
		}
		blocked := func(by api.Principal, id api.RunID) string {
			r, err := w.o.Describe(context.Background(), by, id, "", 0)
			w.must(err)
			return r.Tasks[0].Blocked
		}
		offer(ben, "secret-one", false)
		offer(ann, "second", false)
		offer(ben, "secret-two", false)
		for id, by := range map[api.RunID]api.Principal{"second": ann, "secret-two": ben} {
			if s := blocked(by, id); !strings.Contains(s, `lock "k"`) || by == ann && strings.Contains(s, "secret") || by == ben && strings.Contains(s, "second") && !strings.Contains(s, "secret-one") {
				t.Errorf("%s is told: %s", by, s)
			}
		}
		if s := blocked(ben, "secret-two"); !strings.Contains(s, "run secret-one") { // the control
			t.Errorf("ben is told of his own: %s", s)
		}
		w.desk.end(w.desk.sorted((*job).active)[0], api.EventFinished, "", true)
		synctest.Wait()
		if s := blocked(ben, "secret-two"); strings.Contains(s, "second") || !strings.Contains(s, "another principal") {
			t.Errorf("ben is told: %s", s)
		}
		w.finishAll()
	})
}

// stubborn refuses every cancel for a reason that will not pass.
type stubborn struct {
	orchestrator.Dispatcher

	mu    sync.Mutex
	calls int // guarded by mu
	whys  []string
}

func (s *stubborn) Cancel(ctx context.Context, by api.Principal, id api.DispatchID, why string) (api.Dispatch, error) {
	s.mu.Lock()
	s.calls++
	s.whys = append(s.whys, why)
	n := s.calls
	s.mu.Unlock()
	if n > 500 { // or the test would never end
		return s.Dispatcher.Cancel(ctx, by, id, why)
	}
	return api.Dispatch{}, api.Errorf(api.CodeInvalid, "cancel: reason of %d bytes", len(why))
}

// A cancel that is refused is tried again ever more slowly: each refusal may be
// an entry of the log.
func TestRefusedCancelIsRetriedWithBackoff(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		s := &stubborn{}
		w.behind(func(d orchestrator.Dispatcher) orchestrator.Dispatcher { s.Dispatcher = d; return s })
		_, err := w.offer(as(ann), fan("r", 1))
		w.must(err)
		synctest.Wait()
		_, err = w.o.Cancel(context.Background(), as(ann), "r", api.RunCancel{Reason: "enough"})
		w.must(err)
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		n := s.calls
		s.calls = 1000 // it gives in
		s.mu.Unlock()
		if n < 5 || n > 100 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.finishAll()
	})
}

// The reason of a cancelled run is stored once, and not again with each of its tasks,
// which may be ten thousand.
func TestLongCancelReasonIsNotRepeatedPerTask(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		_, err := w.offer(as(ann), fan("r", 100))
		w.must(err)
		synctest.Wait()
		from, err := w.ledger.Len(context.Background())
		w.must(err)
		why := strings.Repeat("y", 4096)
		_, err = w.o.Cancel(context.Background(), as(ann), "r", api.RunCancel{Reason: why})
		w.must(err)
		synctest.Wait()
		cancelled, long := 0, 0
		for _, c := range w.entries(from) {
			if s, ok := c.Entry.Detail.(record.TaskStep); ok && c.Entry.Kind == record.KindTaskCancelled {
				cancelled++
				if s.By != string(ann) {
					t.Errorf("%s", c.Entry.Line(c.Seq))
				}
				if len(s.Message) > 100 {
					long++
				}
			}
		}
		if cancelled < 90 || long > 0 {
			t.Errorf("%d of %d entries say why at length", long, cancelled)
		}
		r, err := w.o.Describe(context.Background(), ann, "r", "", 0)
		if err != nil || r.CancelReason != why {
			t.Errorf("%v %q", err, r.CancelReason)
		}
		w.finishAll()
	})
}

// An answer is to one question: that of another dispatch of the task, or of
// another attempt of it, is not answered by it.
//
// proves R-D7
func TestAnswerToAnotherDispatchIsRefused(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		p := fan("r", 1)
		p.Tasks[0].Retry = api.Retry{Attempts: 2, Backoff: api.Backoff{Min: api.Duration(time.Millisecond), Max: api.Duration(time.Millisecond)}}
		_, err := w.offer(as(ann), p)
		w.must(err)
		synctest.Wait()
		first := w.desk.sorted((*job).active)[0]
		w.desk.end(first, api.EventFailed, api.ReasonAgent, true)
		time.Sleep(time.Second)
		synctest.Wait()
		second := w.desk.sorted((*job).active)[0]
		w.desk.end(second, api.EventNeedsInput, "", true)
		synctest.Wait()
		for _, a := range []api.RunAnswer{{DispatchID: first.d.ID, Attempt: 1}, {DispatchID: first.d.ID}, {DispatchID: second.d.ID, Attempt: 2}, {DispatchID: "d-other"}} {
			a.Task, a.Text = "t0", "yes"
			if _, err := w.o.Answer(ctx, as(ann), "r", a); api.CodeOf(err) != api.CodeConflict {
				t.Errorf("%+v: %v", a, err)
			}
		}
		if _, err := w.o.Answer(ctx, as(ann), "r", api.RunAnswer{Task: "t0", Text: "yes", DispatchID: second.d.ID, Attempt: 1}); err != nil { // the control
			t.Error(err)
		}
		synctest.Wait()
		w.finishAll()
	})
}

// A queue says how many tasks it keeps waiting, also while it is paused.
func TestQueueCountsBlockedTasks(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		p := fan("r", 20)
		p.Tasks[18].Locks, p.Tasks[19].Locks = []api.Lock{{Key: "k"}}, []api.Lock{{Key: "k"}}
		_, err := w.offer(as(ann), p)
		w.must(err)
		synctest.Wait()
		for _, pause := range []bool{false, true} {
			if pause {
				_, err := w.o.PauseQueue(ctx, as(root), api.DefaultQueue)
				w.must(err)
			}
			list, err := w.o.Queues(ctx)
			if err != nil || len(list) != 1 || list[0].Running != 8 || list[0].Ready != 12 || (list[0].PausedBy != "") != pause {
				t.Errorf("paused %t: %+v %v", pause, list, err)
			}
		}
		_, err = w.o.ResumeQueue(ctx, as(root), api.DefaultQueue)
		w.must(err)
		w.finishAll()
	})
}
