package orchestrator_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// The shapes of large plans.
func fan(id api.RunID, n int) api.Plan {
	p := api.Plan{ID: id}
	for i := range n {
		p.Tasks = append(p.Tasks, api.PlanTask{ID: api.TaskID(fmt.Sprintf("t%d", i)), Subagent: work})
	}
	return p
}

func chain(id api.RunID, n int) api.Plan {
	p := fan(id, n)
	for i := 1; i < n; i++ {
		p.Tasks[i].DependsOn = []api.TaskID{p.Tasks[i-1].ID}
	}
	return p
}

func star(id api.RunID, n int) api.Plan {
	p := fan(id, n)
	for i := 1; i < n; i++ {
		p.Tasks[i].DependsOn = []api.TaskID{p.Tasks[0].ID}
	}
	return p
}

// commit is what the log says of one commit: how many entries of each kind.
type commit struct {
	from, to uint64
	kinds    map[record.Kind]int
}

// commits reads everything that was committed since the last time.
func (w *world) commits(from uint64) (list []commit) {
	w.t.Helper()
	w.mu.Lock()
	heads := slices.Clone(w.heads)
	w.heads = nil
	w.mu.Unlock()
	w.must(w.store.Read(context.Background(), func(v *store.View) error {
		for _, to := range heads {
			c := commit{from: from, to: to, kinds: map[record.Kind]int{}}
			if err := v.Each("SELECT kind, count(*) FROM audit_entry WHERE seq >= ? AND seq < ? GROUP BY kind", store.Args{int64(from), int64(to)}, func(scan store.Scan) error {
				var kind record.Kind
				var n int
				err := scan(&kind, &n)
				c.kinds[kind] = n
				return err
			}); err != nil {
				return err
			}
			if from = to; len(c.kinds) > 0 {
				list = append(list, c)
			}
		}
		return nil
	}))
	return list
}

// settled waits for a run to be so.
func (w *world) settled(id api.RunID) api.Run {
	w.t.Helper()
	for {
		changed := w.store.Committed()
		r, err := w.o.Describe(context.Background(), root, id, "", 1)
		w.must(err)
		if r.State.Settled() {
			return r
		}
		<-changed
	}
}

// many tasks are as many as a plan may have.
const many = api.MaxPlanTasks / size

// A failure ends all that depends on it in the commit that says so, however much
// and however far away that is.
//
// proves R-O4
func TestTenThousandTasksAreSkippedInOneCommit(t *testing.T) {
	for name, shape := range map[string]func(api.RunID, int) api.Plan{"beside each other": star, "in a row": chain} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scratch(t), orchestrator.Config{})
			defer func() { w.must(w.stop()) }()
			_, err := w.offer(as(ann), shape("large", many))
			w.must(err)
			w.desk.await(func() bool { return w.desk.countActive("large") == 1 })
			from, err := w.ledger.Len(t.Context())
			w.must(err)
			_ = w.commits(from)
			w.desk.end(w.desk.sorted((*job).active)[0], api.EventFailed, api.ReasonOutput, true)
			if r := w.settled("large"); r.Counts[api.TaskSkipped] != many-1 || r.State != api.RunFailed {
				t.Errorf("%+v", r.Counts)
			}
			list := w.commits(from)
			if len(list) != 1 || list[0].kinds[record.KindTaskFailed] != 1 || list[0].kinds[record.KindTaskSkipped] != many-1 || list[0].kinds[record.KindRunSettled] != 1 {
				t.Errorf("%d commits: %v", len(list), list)
			}
		})
	}
}

// proves R-O7
func TestTenThousandTasksAreCancelledInOneCommit(t *testing.T) {
	w := newWorld(t, scratch(t), orchestrator.Config{})
	defer func() { w.must(w.stop()) }()
	_, err := w.offer(as(ann), fan("large", many))
	w.must(err)
	w.desk.await(func() bool { return w.desk.countActive("large") == orchestrator.DefaultSlots })
	from, err := w.ledger.Len(t.Context())
	w.must(err)
	_ = w.commits(from)
	_, err = w.o.Cancel(t.Context(), as(ann), "large", api.RunCancel{})
	w.must(err)
	w.desk.await(func() bool { return w.desk.calls["cancel"] == orchestrator.DefaultSlots })
	for _, j := range w.desk.sorted((*job).active) {
		w.desk.end(j, api.EventCancelled, "", true)
	}
	if r := w.settled("large"); r.State != api.RunCancelled || r.Counts[api.TaskCancelled] != many {
		t.Errorf("%s %v", r.State, r.Counts)
	}
	list := w.commits(from)
	most := slices.MaxFunc(list, func(a, b commit) int { return a.kinds[record.KindTaskCancelled] - b.kinds[record.KindTaskCancelled] })
	if most.kinds[record.KindTaskCancelled] != many-orchestrator.DefaultSlots {
		t.Errorf("%v", list)
	}
}

// What one end costs does not depend on how many tasks there are: neither what
// is written nor, within a half, what is allocated.
func TestCostOfACompletionDoesNotDependOnPlanSize(t *testing.T) {
	const ends = 100
	type cost struct{ rows, mallocs int64 }
	measure := func(p api.Plan, others int) cost {
		w := newWorld(t, scratch(t), orchestrator.Config{})
		defer func() { w.must(w.stop()) }()
		for i := range others { // settled runs
			id := api.RunID(fmt.Sprintf("other-%d", i))
			_, err := w.offer(as(ann), fan(id, 1))
			w.must(err)
			w.finish(id)
		}
		_, err := w.offer(as(ann), p)
		w.must(err)
		one := func() {
			w.desk.await(func() bool { return w.desk.countActive(p.ID) > 0 })
			w.desk.end(w.desk.sorted((*job).active)[0], api.EventFinished, "", true)
			_, err := w.o.Queues(t.Context()) // it has heard of it
			w.must(err)
		}
		for range 20 {
			one()
		}
		w.desk.await(func() bool { return w.desk.countActive(p.ID) > 0 })
		before := cost{w.changes(), mallocs()}
		for range ends {
			one()
		}
		w.desk.await(func() bool { return w.desk.countActive(p.ID) > 0 })
		return cost{w.changes() - before.rows, mallocs() - before.mallocs}
	}
	for name, shape := range map[string]func(api.RunID, int) api.Plan{"fan": fan, "chain": chain} {
		small, large, old := measure(shape("r", 200), 0), measure(shape("r", many), 0), measure(shape("r", 200), 100)
		t.Logf("%s: %d ends among 200 tasks write %d rows and allocate %d times; among 10,000, %d and %d; beside 100 settled runs, %d and %d",
			name, ends, small.rows, small.mallocs, large.rows, large.mallocs, old.rows, old.mallocs)
		for _, c := range []cost{large, old} {
			if c.rows > small.rows+ends/10 || c.mallocs > small.mallocs*3/2 {
				t.Errorf("%s: it costs %+v, and %+v in a small plan", name, c, small)
			}
		}
	}
}

// changes is how many rows were ever changed on the connection that writes.
func (w *world) changes() (n int64) {
	w.t.Helper()
	w.must(w.store.Update(context.Background(), func(tx *store.Tx) error { return tx.Get("SELECT total_changes()", nil, &n) }))
	return n
}

func mallocs() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Mallocs)
}
