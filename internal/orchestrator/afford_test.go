package orchestrator_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/orchestrator"
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
