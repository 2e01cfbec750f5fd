package orchestrator

import (
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// batch is what one commit makes durable, and the effects that follow it.
type batch struct {
	now      time.Time // by the wall clock
	recovers bool      // it rebuilds the engine
	steady   time.Time // by the clock of the timers
	items    []audit.Item
	tasks    []taskRef
	runs     []*run
	growths  []taskRef        // by their numbers, in their order
	answers  []api.DispatchID // dispatches whose question was answered
	queues   []*queue
	reserved []taskRef
	done     []*run // runs that are settled by it

	effects []effect
	after   []func(*engine)
	settled []settledTask
}

type taskRef struct {
	run  *run
	task int32
}

type settledTask struct {
	state  api.TaskState
	reason api.Reason
}

func (b *batch) task(r *run, i int32) {
	if t := &r.tasks[i]; !t.dirty {
		t.dirty = true
		b.tasks = append(b.tasks, taskRef{r, i})
	}
}

func (b *batch) run(r *run) {
	if !r.dirty {
		r.dirty = true
		b.runs = append(b.runs, r)
	}
}

func (b *batch) changes() int {
	return len(b.items) + len(b.tasks) + len(b.runs) + len(b.queues)
}

// log adds an entry about a task, or with i -1 about the run.
func (b *batch) log(kind record.Kind, r *run, i int32, detail record.Detail) {
	entry := record.Entry{Kind: kind, Run: string(r.id), Detail: detail}
	if i >= 0 {
		t := &r.tasks[i]
		entry.Task, entry.Resource = string(r.plan.Tasks[i].ID), string(r.plan.Tasks[i].Subagent)
		entry.Dispatch, entry.Attempt = t.dispatch, int(t.attempt)
	} else {
		entry.Refs = map[string]api.Digest{record.RefPlan: r.doc.Digest}
	}
	b.items = append(b.items, audit.Item{Entry: entry})
}

func (b *batch) write(tx *store.Tx, fence uint64) error {
	for _, t := range b.tasks {
		if err := saveTask(tx, t.run, t.task); err != nil {
			return err
		}
	}
	for _, t := range b.reserved {
		if err := dispatch.Reserve(tx, t.run.id, t.run.tasks[t.task].dispatch); err != nil {
			return err
		}
	}
	for _, g := range b.growths {
		if err := saveGrowth(tx, g.run, g.task); err != nil {
			return err
		}
	}
	for _, r := range b.runs {
		if err := saveRun(tx, r); err != nil {
			return err
		}
	}
	for _, r := range b.done {
		if err := dispatch.ReleaseReserved(tx, r.id); err != nil {
			return err
		}
	}
	for _, q := range b.queues {
		if err := saveQueue(tx, q); err != nil {
			return err
		}
	}
	for _, id := range b.answers {
		if err := dispatch.ClearAnswerDeadline(tx, id); err != nil {
			return err
		}
	}
	_, err := tx.Exec("INSERT INTO run_fence(one, value) VALUES (1, ?) ON CONFLICT DO UPDATE SET value = excluded.value", int64(fence)) //nolint:gosec // G115: counts up from 1
	return err
}

func saveQueue(tx *store.Tx, q *queue) (err error) {
	if q.paused() {
		_, err = tx.Exec("INSERT INTO run_queue(name, by, at) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET by = excluded.by, at = excluded.at", q.name, q.pausedBy, q.pausedAt.UnixNano())
	} else {
		_, err = tx.Exec("DELETE FROM run_queue WHERE name = ?", q.name)
	}
	return err
}
