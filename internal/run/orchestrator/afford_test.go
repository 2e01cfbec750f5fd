package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// annMaySpend gives Ann a budget of wall time for a day. Each attempt of subagent work
// reserves an hour of it.
func (w *world) annMaySpend(wall time.Duration) {
	grants := deskGrants()
	grants[0].Budget = &api.Budget{Wall: api.Duration(wall), Per: api.PerDay}
	w.spendBy(grants)
}

// endAfter ends all attempts that run after some time, and returns how many those were.
func (w *world) endAfter(d time.Duration) int {
	synctest.Wait()
	active := w.desk.sorted((*job).active)
	time.Sleep(d)
	for _, j := range active {
		w.desk.end(j, api.EventFinished, "", true)
	}
	synctest.Wait()
	return len(active)
}

// affordable returns a run with the tasks that wait for a budget.
func (w *world) affordable(id api.RunID) (r api.Run, waiting []api.RunTask) {
	w.t.Helper()
	synctest.Wait()
	r, err := w.o.Describe(context.Background(), ann, id, "", 100)
	w.must(err)
	for _, t := range r.Tasks {
		if t.State == api.TaskRunning && t.Blocked != "" {
			if !strings.HasPrefix(t.Blocked, `budget of grant "of-ann" for 2000-01-01`) && !strings.HasPrefix(t.Blocked, "a free slot") || t.DispatchID != "" {
				w.t.Fatalf("task %s waits for %q, dispatch %q", t.Task, t.Blocked, t.DispatchID)
			}
			waiting = append(waiting, t)
		}
	}
	return r, waiting
}

func (w *world) wantCounts(id api.RunID, done, denied int) {
	w.t.Helper()
	r, _ := w.affordable(id)
	n := map[api.TaskState]int{}
	for _, t := range r.Tasks {
		n[t.State]++
	}
	if n[api.TaskDone] != done || n[api.TaskDenied] != denied || len(r.Tasks) != done+denied {
		w.t.Fatalf("run %s: tasks %v, want %d done and %d denied", id, n, done, denied)
	}
}

// 20 tasks of one second have room for their reservations five at a time, and all of them
// finish, without a sweep between them.
//
// proves R-O11
func TestTasksWaitForWhatOthersHaveReserved(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 20}}, func(w *world) {
		w.annMaySpend(5 * time.Hour)
		_, err := w.offer(as(ann), fan("r0", 20))
		w.must(err)
		began := time.Now()
		if _, waiting := w.affordable("r0"); len(waiting) != 15 {
			t.Errorf("%d tasks wait, want 15", len(waiting))
		}
		for most := 5; ; most = 4 { // of the second round on, some seconds are spent
			n := w.endAfter(time.Second)
			if n == 0 {
				break
			}
			if n > most {
				t.Errorf("%d ran at once, want at most %d", n, most)
			}
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("the run took %s", d)
		}
		w.wantCounts("r0", 20, 0)
	})
}

// What is spent is not given back: a task that waits is denied as soon as what others have
// spent leaves no room for it, and not before.
//
// proves R-O11
func TestATaskIsDeniedWhenSpentAndNeedExceed(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		w.annMaySpend(90 * time.Minute)
		_, err := w.offer(as(ann), fan("r0", 3))
		w.must(err)
		if _, waiting := w.affordable("r0"); len(waiting) != 2 {
			t.Errorf("%d tasks wait, want 2", len(waiting))
		}
		if n := w.endAfter(20 * time.Minute); n != 1 { // 70 minutes are left
			t.Errorf("%d ran", n)
		}
		if _, waiting := w.affordable("r0"); len(waiting) != 1 {
			t.Errorf("%d tasks wait, want 1", len(waiting))
		}
		if n := w.endAfter(20 * time.Minute); n != 1 { // 50 are left
			t.Errorf("%d ran", n)
		}
		w.wantCounts("r0", 2, 1)
	})
}

// A task that waits for a budget leaves its slot to others and is there after a restart.
//
// proves R-O11
func TestATaskThatWaitsForABudgetHasNoSlot(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 2}}, func(w *world) {
		w.annMaySpend(90 * time.Minute)
		_, err := w.offer(as(ann), fan("r0", 3))
		w.must(err)
		_, err = w.offer(as(ben), fan("r1", 1))
		w.must(err)
		for _, how := range []func(){func() {}, w.restart} {
			how()
			if _, waiting := w.affordable("r0"); len(waiting) != 2 {
				t.Errorf("%d tasks wait, want 2", len(waiting))
			}
			if n := w.desk.countActive("r1"); n != 1 {
				t.Errorf("%d tasks of Ben run, want 1", n)
			}
		}
		for w.endAfter(time.Second) > 0 {
		}
		w.wantCounts("r0", 3, 0)
	})
}

// A task that waits for a budget can be cancelled, and does not begin while its run is
// paused.
func TestATaskThatWaitsForABudgetIsSteered(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		w.annMaySpend(90 * time.Minute)
		for _, id := range []api.RunID{"r0", "r1"} {
			_, err := w.offer(as(ann), fan(id, 2))
			w.must(err)
			synctest.Wait()
		}
		_, err := w.o.Cancel(ctx, as(ann), "r1", api.RunCancel{})
		w.must(err)
		if r, waiting := w.affordable("r1"); r.State != api.RunCancelled || len(waiting) != 0 {
			t.Errorf("run r1 is %s, %d tasks wait", r.State, len(waiting))
		}
		_, err = w.o.Pause(ctx, as(ann), "r0")
		w.must(err)
		if n := w.endAfter(time.Minute); n != 1 {
			t.Errorf("%d ran", n)
		}
		if n := w.endAfter(time.Minute); n != 0 {
			t.Errorf("%d ran while the run was paused", n)
		}
		_, err = w.o.Resume(ctx, as(ann), "r0")
		w.must(err)
		if n := w.endAfter(time.Second); n != 1 {
			t.Errorf("%d ran, want 1", n)
		}
		w.wantCounts("r0", 2, 0)
	})
}

// However many tasks waited for a budget when the service stopped, after the restart as
// many run as there are slots, in the order in which they started.
//
// proves R-O11
func TestARestartStartsNoMoreThanThereAreSlots(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 4}}, func(w *world) {
		w.annMaySpend(90 * time.Minute)
		_, err := w.offer(as(ann), fan("r0", 20))
		w.must(err)
		if _, waiting := w.affordable("r0"); len(waiting) != 19 {
			t.Errorf("%d tasks wait, want 19", len(waiting))
		}
		w.must(w.stop())
		w.down(w.config.Now())
		w.annMaySpend(100 * time.Hour)
		w.start()
		for round := range 5 {
			synctest.Wait()
			for _, j := range w.desk.sorted((*job).active) {
				if j.fence > uint64(4*(round+1)) {
					t.Errorf("round %d: the task with fence %d runs", round, j.fence)
				}
			}
			if n := w.endAfter(time.Second); n != 4 {
				t.Errorf("round %d: %d ran, want 4", round, n)
			}
		}
		w.wantCounts("r0", 20, 0)
	})
}

// A task whose question was answered, and which waits for a budget to resume, has no slot
// after a restart either.
//
// proves R-O11
func TestARestartResumesNoMoreThanThereAreSlots(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 2}}, func(w *world) {
		ctx := context.Background()
		w.annMaySpend(5 * time.Hour)
		_, err := w.offer(as(ann), fan("r0", 4))
		w.must(err)
		for range 2 {
			synctest.Wait()
			for _, j := range w.desk.sorted((*job).active) {
				w.desk.end(j, api.EventNeedsInput, "", true)
			}
		}
		synctest.Wait()
		w.annMaySpend(90 * time.Minute)
		for i := range 4 {
			_, err := w.o.Answer(ctx, as(ann), "r0", api.RunAnswer{Task: api.TaskID(fmt.Sprintf("t%d", i)), Attempt: 1, Text: "yes"})
			w.must(err)
		}
		synctest.Wait()
		if n := w.desk.countActive("r0"); n != 1 {
			t.Errorf("%d resumed, want 1", n)
		}
		w.must(w.stop())
		w.down(w.config.Now())
		w.annMaySpend(100 * time.Hour)
		w.start()
		for range 2 {
			if n := w.endAfter(time.Second); n != 2 {
				t.Errorf("%d ran, want 2", n)
			}
		}
		w.wantCounts("r0", 4, 0)
	})
}

// A task that waits for a budget does not begin in a run that is paused, also after a
// restart.
func TestARestartStartsNothingThatIsPaused(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		w.annMaySpend(90 * time.Minute)
		_, err := w.offer(as(ann), fan("r0", 2))
		w.must(err)
		synctest.Wait()
		_, err = w.o.Pause(ctx, as(ann), "r0")
		w.must(err)
		w.must(w.stop())
		w.down(w.config.Now())
		w.annMaySpend(100 * time.Hour)
		w.start()
		synctest.Wait()
		r, err := w.o.Describe(ctx, ann, "r0", "", 10)
		w.must(err)
		if n := w.desk.countActive("r0"); n != 1 || !strings.HasPrefix(r.Tasks[1].Blocked, "the run, paused by") {
			t.Errorf("%d run, and %q is in the way of the other", n, r.Tasks[1].Blocked)
		}
		_, err = w.o.Resume(ctx, as(ann), "r0")
		w.must(err)
		if n := w.endAfter(time.Second); n != 2 {
			t.Errorf("%d ran, want 2", n)
		}
	})
}

func lone(id api.RunID, subagent api.Name) api.Plan {
	return api.Plan{ID: id, Tasks: []api.PlanTask{{ID: "t0", Subagent: subagent}}}
}

// A large task is not overtaken by small ones of other runs that start later, also not by
// those that start after a restart or after midnight.
//
// proves R-O11
func TestNoTaskIsOvertakenInABudget(t *testing.T) {
	for name, interval := range map[string]func(*world){
		"": func(*world) {}, "restart": (*world).restart,
		"midnight": func(*world) { time.Sleep(24*time.Hour - time.Since(time.Now().Truncate(24*time.Hour))) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 8}}, func(w *world) {
				w.annMaySpend(65 * time.Minute) // a checker reserves 10 minutes, work 60
				offer := func(p api.Plan) {
					_, err := w.offer(as(ann), p)
					w.must(err)
					synctest.Wait()
				}
				offer(lone("c0", checker))
				offer(lone("big", work))
				interval(w)
				for i := range 4 {
					offer(lone(api.RunID(fmt.Sprintf("c%d", i+1)), checker))
				}
				_, err := w.offer(as(ben), lone("bens", checker)) // whom it does not concern
				w.must(err)
				synctest.Wait()
				if n := w.desk.countActive("bens"); n != 1 {
					t.Errorf("%d tasks of Ben run", n)
				}
				for i := range 4 {
					if n := w.desk.countActive(api.RunID(fmt.Sprintf("c%d", i+1))); n > 0 {
						t.Errorf("c%d runs", i+1)
					}
				}
				w.endAfter(2 * time.Minute)
				if n := w.desk.countActive("big"); n != 1 && name != "midnight" {
					t.Errorf("%d of run big run, want 1", n)
				}
				for w.endAfter(time.Second) > 0 {
				}
				w.wantCounts("big", 1, 0)
				w.wantCounts("c4", 1, 0)
			})
		})
	}
}

// When the first of a line goes to the line of another budget, is cancelled or is paused,
// the next has its turn at once.
//
// proves R-O11
func TestTheNextOfALineIsTried(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 8}}, func(w *world) {
		w.annMaySpend(125 * time.Minute)
		both := fan("r0", 2)
		both.Budget = &api.Budget{Wall: api.Duration(100 * time.Minute)}
		for _, p := range []api.Plan{lone("h0", work), both, lone("h1", work), lone("h2", work)} {
			_, err := w.offer(as(ann), p)
			w.must(err)
			synctest.Wait()
		}
		runs := func(when string, want ...api.RunID) {
			t.Helper()
			synctest.Wait()
			for _, id := range []api.RunID{"h0", "r0", "h1", "h2"} {
				if n := w.desk.countActive(id); n > 1 || n == 1 != slices.Contains(want, id) {
					t.Errorf("%s: %d of run %s run", when, n, id)
				}
			}
		}
		runs("at first", "h0", "r0")
		for _, j := range w.desk.sorted((*job).active) {
			if j.order.Run == "h0" {
				w.desk.end(j, api.EventFinished, "", true)
			}
		}
		runs("h0 has ended, and r0 waits for its own budget", "r0", "h1")
		for _, j := range w.desk.sorted((*job).active) {
			if j.order.Run == "h1" {
				w.desk.end(j, api.EventFailed, api.ReasonAgent, true)
			}
		}
		runs("h1 has ended", "r0", "h2")
	})
	for name, away := range map[string]func(context.Context, *world) error{
		"cancelled": func(ctx context.Context, w *world) error {
			_, err := w.o.Cancel(ctx, as(ann), "big", api.RunCancel{})
			return err
		},
		"paused": func(ctx context.Context, w *world) error { _, err := w.o.Pause(ctx, as(ann), "big"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, orchestrator.Config{}, func(w *world) {
				w.annMaySpend(65 * time.Minute)
				for _, p := range []api.Plan{lone("c0", checker), lone("big", work), lone("c1", checker)} {
					_, err := w.offer(as(ann), p)
					w.must(err)
					synctest.Wait()
				}
				if n := w.desk.countActive("c1"); n != 0 {
					t.Errorf("%d of run c1 run before", n)
				}
				w.must(away(context.Background(), w))
				synctest.Wait()
				if n := w.desk.countActive("c1"); n != 1 {
					t.Errorf("%d of run c1 run after", n)
				}
			})
		})
	}
}
