package orchestrator_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// bubble runs fn with a world in a time of its own. That nothing is left when it
// ends is checked by the bubble.
func bubble(t *testing.T, config orchestrator.Config, fn func(w *world)) {
	t.Helper()
	root := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, root, config)
		defer func() {
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if wrong := slices.Concat(w.log.wrong, w.desk.complaints()); len(wrong) > 0 {
				t.Error(strings.Join(wrong, "\n"))
			}
		}()
		fn(w)
	})
}

// ours returns the goroutines of the engine.
func ours() (list []string) {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	for g := range strings.SplitSeq(string(b), "\n\n") {
		if strings.Contains(g, "internal/run/orchestrator.(*") {
			list = append(list, g)
		}
	}
	return list
}

// However it is closed, and whatever is under way then: nothing is left when
// Close returns, every waiting call is answered, and the next Open continues.
func TestCloseLeavesNoGoroutines(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{narrow: 1}}, func(w *world) {
		synctest.Wait()
		if len(ours()) == 0 { // the control
			w.t.Fatalf("an open engine has no goroutine")
		}
		ctx := context.Background()
		for i := range 30 {
			p := fan(api.RunID(fmt.Sprintf("r%d", i)), 12)
			for n, s := range []api.Name{slow, busy, work, quick, work, denied} {
				p.Tasks[n].Subagent = s
				p.Tasks[n].Retry = api.Retry{Attempts: 9}
			}
			if i%2 == 0 {
				p.Queue = narrow
			}
			_, err := w.offer(as(ann), p)
			w.must(err)
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = w.o.Events(ctx, ann, p.ID, "999999", time.Hour) })
			for range 4 {
				calls.Go(func() { _, _ = w.o.Cancel(ctx, as(ann), p.ID, api.RunCancel{Task: "t11"}) })
				calls.Go(func() { _, _ = w.o.Describe(ctx, ann, p.ID, "", 0) })
			}
			if i%3 > 0 { // else while all of it is just beginning
				synctest.Wait()
			}
			for n, j := range w.desk.sorted((*job).active) {
				if n%2 == 0 {
					w.desk.end(j, api.EventFailed, api.ReasonAgent, true)
				}
			}
			o := w.o
			var closing sync.WaitGroup
			for range i%3 + 1 {
				closing.Go(func() { w.must(o.Close()) })
			}
			closing.Wait()
			if left := ours(); i%3 > 0 && len(left) > 0 && slices.ContainsFunc(left, func(g string) bool { return !strings.Contains(g, "_test.") }) {
				w.t.Fatalf("left after Close:\n%s", strings.Join(left, "\n\n"))
			}
			calls.Wait()
			if _, err := o.Describe(ctx, ann, p.ID, "", 0); err == nil {
				w.t.Fatalf("a closed engine answers")
			}
			if err := o.Err(); err != nil {
				w.t.Fatalf("closed in good order: %v", err)
			}
			o.Ended(api.Dispatch{Run: p.ID}) // has no effect and does not block
			w.desk.freeze()
			w.open()
		}
		w.finishAll()
	})
}

// finishAll ends everything that there is.
func (w *world) finishAll() {
	w.t.Helper()
	for range 5000 {
		synctest.Wait()
		w.read()
		open := false
		for _, r := range w.log.runs {
			open = open || r.settled == nil
		}
		if !open {
			return
		}
		w.desk.open()
		list := w.desk.sorted((*job).active)
		for _, j := range list {
			w.desk.end(j, api.EventFinished, "", true)
		}
		if len(list) == 0 {
			time.Sleep(time.Minute)
		}
	}
	w.t.Fatalf("runs do not settle: %s", w.story())
}

// The time between attempts follows from the seed and nothing else.
//
// proves R-O4
func TestBackoffIsAFunctionOfTheSeed(t *testing.T) {
	delays := func(seed, random uint64) (list []time.Duration) {
		cryptotest.SetGlobalRandom(t, random)
		bubble(t, orchestrator.Config{Seed: seed}, func(w *world) {
			p := fan("r", 5)
			for i := range p.Tasks {
				p.Tasks[i].Retry = api.Retry{Attempts: 8, Backoff: api.Backoff{Min: api.Duration(time.Second), Max: api.Duration(time.Minute)}}
			}
			_, err := w.offer(as(ann), p)
			w.must(err)
			for range 400 {
				synctest.Wait()
				for _, j := range w.desk.sorted((*job).active) {
					w.desk.end(j, api.EventFailed, api.ReasonTimeout, true)
				}
				time.Sleep(time.Second)
			}
			w.read()
			for task := range w.log.each {
				list = append(list, task.delays...)
			}
		})
		return list
	}
	first := delays(1, 7)
	if len(first) != 5*7 || len(slices.Compact(slices.Sorted(slices.Values(first)))) < 30 {
		t.Fatalf("%d delays: %v", len(first), first)
	}
	if again := delays(1, 7); !slices.Equal(first, again) {
		t.Errorf("the same seed: %v, then %v", first, again)
	}
	if other := delays(2, 7); slices.Equal(first, other) {
		t.Errorf("another seed waits the same: %v", other)
	}
	if other := delays(1, 8); slices.Equal(first, other) {
		t.Errorf("another run waits the same: %v", other)
	}
}

// However many come after it, a task gets its lock when those before it have
// given it back, and principals take turns at slots.
//
// proves R-O3
func TestNoTaskStarves(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{narrow: 1, "wide": 100}}, func(w *world) {
		offer := func(by api.Principal, id string, queue api.Name, shared bool) {
			p := fan(api.RunID(id), 1)
			p.Queue = queue
			if queue == "wide" {
				p.Tasks[0].Locks = []api.Lock{{Key: "k", Shared: shared}}
			}
			_, err := w.offer(as(by), p)
			w.must(err)
			time.Sleep(time.Millisecond)
		}
		state := func(id api.RunID) api.TaskState {
			synctest.Wait()
			w.read()
			return w.log.runs[id].tasks["t0"].shown(w.log, time.Now())
		}
		offer(ann, "s-0", "wide", true)
		offer(ann, "s-1", "wide", true)
		offer(ben, "alone", "wide", false)
		for i := 2; i < 40; i++ {
			offer(ann, fmt.Sprintf("s-%d", i), "wide", true)
		}
		if state("alone") != api.TaskReady || state("s-2") != api.TaskReady || state("s-1") != api.TaskRunning {
			w.t.Fatalf("%s", w.story())
		}
		for _, j := range w.desk.sorted((*job).active) {
			w.desk.end(j, api.EventFinished, "", true)
		}
		if state("alone") != api.TaskRunning || state("s-2") != api.TaskReady {
			w.t.Fatalf("%s", w.story())
		}
		w.finishAll()

		var order []api.Principal
		for i := range 20 {
			offer(ann, fmt.Sprintf("a-%d", i), narrow, false)
		}
		for i := range 3 {
			offer(ben, fmt.Sprintf("b-%d", i), narrow, false)
		}
		for range 8 {
			synctest.Wait()
			j := w.desk.sorted((*job).active)[0]
			order = append(order, j.by)
			w.desk.end(j, api.EventFinished, "", true)
		}
		if want := []api.Principal{ann, ben, ann, ben, ann, ben, ann, ann}; !slices.Equal(order, want) && !slices.Equal(order, []api.Principal{ann, ann, ben, ann, ben, ann, ben, ann}) {
			w.t.Fatalf("%v: ben does not have his turns", order)
		}
		w.finishAll()
	})
}

// A token may submit and read, and steer nothing.
//
// proves R-O7
func TestTokenCallersCannotSteerRuns(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		caller := dispatch.Caller{Principal: ann, Ceiling: api.Irreversible, TokenValid: func() bool { return true }}
		_, err := w.offer(caller, fan("r", 2))
		w.must(err)
		synctest.Wait()
		for name, call := range map[string]func(dispatch.Caller) error{
			"cancel": func(c dispatch.Caller) error {
				_, err := w.o.Cancel(ctx, c, "r", api.RunCancel{Task: "t1"})
				return err
			},
			"pause":        func(c dispatch.Caller) error { _, err := w.o.Pause(ctx, c, "r"); return err },
			"resume":       func(c dispatch.Caller) error { _, err := w.o.Resume(ctx, c, "r"); return err },
			"pause queue":  func(c dispatch.Caller) error { _, err := w.o.PauseQueue(ctx, c, api.DefaultQueue); return err },
			"resume queue": func(c dispatch.Caller) error { _, err := w.o.ResumeQueue(ctx, c, api.DefaultQueue); return err },
		} {
			if code := api.CodeOf(call(caller)); code != api.CodeDenied && code != api.CodeNotFound {
				w.t.Fatalf("%s by a token: %s", name, code)
			}
			operator := as(root)
			if err := call(operator); err != nil { // the control
				w.t.Fatalf("%s by the operator: %v", name, err)
			}
		}
		_, err = w.o.Submit(ctx, dispatch.Caller{Principal: ann, TokenValid: func() bool { return false }}, api.RunRequest{Plan: w.remember(fan("gone", 1))})
		if err == nil {
			w.t.Fatalf("submitted by a token that has ended")
		}
		synctest.Wait()
		w.finishAll()
	})
}

// A cancel or pause of a run by its id takes effect from the
// moment at which the run is durable, although the engine has not heard of it.
//
// proves R-O7
func TestCancelDuringSubmissionCounts(t *testing.T) {
	for name, want := range map[string]api.RunState{"cancel": api.RunCancelled, "pause": api.RunPaused} {
		t.Run(name, func(t *testing.T) {
			bubble(t, orchestrator.Config{}, func(w *world) {
				ctx := context.Background()
				var other sync.WaitGroup
				var at sync.Once
				w.heard = func(k record.Kind) {
					if k != record.KindRunSubmitted {
						return
					}
					at.Do(func() {
						other.Go(func() {
							var err error
							if name == "cancel" {
								_, err = w.o.Cancel(ctx, as(ann), "r", api.RunCancel{})
							} else {
								_, err = w.o.Pause(ctx, as(ann), "r")
							}
							if err != nil {
								t.Error(err)
							}
						})
					})
				}
				_, err := w.offer(as(ann), fan("r", 2))
				w.must(err)
				other.Wait()
				synctest.Wait()
				for _, j := range w.desk.sorted((*job).active) { // what began in that moment
					if j.d.CancelBy != "" {
						w.desk.end(j, api.EventCancelled, "", true)
					}
				}
				synctest.Wait()
				r, err := w.o.Describe(ctx, ann, "r", "", 0)
				if err != nil || r.State != want {
					w.t.Fatalf("the run is %s with %v: %v", r.State, r.Counts, err)
				}
			})
		})
	}
}
