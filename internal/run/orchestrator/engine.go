package orchestrator

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	// maxEvents bounds how many events share a commit, and so how long the next
	// ones wait.
	maxEvents = 2000
	// sweepTime is how often the engine polls for completions that it was not
	// notified of.
	sweepTime = 30 * time.Second
)

// engine is the state of all unsettled runs. One goroutine owns it.
type engine struct {
	cfg    *Config
	runs   map[int64]*run
	byID   map[api.RunID]*run
	queues map[api.Name]*queue
	locks  *locks
	lines  []*budgetLine         // of tasks that wait for room in a budget
	ends   map[api.Principal]int // attempts of a principal that have ended
	timers timerHeap
	fence  uint64 // the last fencing token that was issued

	running    int // tasks
	looking    int // looks at products under way
	backingOff int // tasks that wait for their next attempt
	nextSweep  time.Time
	fault      error    // an invariant was violated
	granted    []*lease // leases that have just been granted

	grown func(p api.Principal, more size) // notified that a run takes more; may be nil
}

func newEngine(cfg *Config) *engine {
	e := &engine{cfg: cfg, runs: map[int64]*run{}, byID: map[api.RunID]*run{}, queues: map[api.Name]*queue{}, locks: newLocks(), ends: map[api.Principal]int{}, nextSweep: cfg.Steady().Add(sweepTime)}
	e.queues[api.DefaultQueue] = newQueue(api.DefaultQueue, DefaultSlots)
	for name, slots := range cfg.Queues {
		e.queues[name] = newQueue(name, slots)
		e.queues[name].weights = cfg.Weights[name]
	}
	return e
}

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

// transition moves a task along the table of transitions in internal/rule/plan.
func (e *engine) transition(r *run, i int32, ev record.TaskEvent) {
	t := &r.tasks[i]
	to, ok := record.NextTask(t.state, ev)
	if !ok {
		if e.fault == nil {
			e.fault = fmt.Errorf("invariant violated: run %s task %s: event %q in state %s", r.id, r.plan.Tasks[i].ID, ev, t.state)
		}
		return
	}
	switch {
	case t.asking():
		r.asking--
	case t.state == api.TaskWaiting:
		e.backingOff--
	}
	r.set(i, to)
}

// log adds an entry about a task, or with i -1 about the run.
func (e *engine) log(b *batch, kind record.Kind, r *run, i int32, detail record.Detail) {
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

// hasPendingWork reports whether a task runs, or will start without further input.
func (e *engine) hasPendingWork() bool {
	if e.running > 0 || e.looking > 0 {
		return true
	}
	for _, q := range e.queues {
		if q.ready > 0 && !q.paused() {
			return true
		}
	}
	return e.backingOff > 0
}

// next returns when the next timer or sweep is due.
func (e *engine) next() time.Time {
	if len(e.timers) > 0 && e.timers[0].at.Before(e.nextSweep) {
		return e.timers[0].at
	}
	return e.nextSweep
}

// due applies the timers and the sweep that are due.
func (e *engine) due(b *batch) {
	for len(e.timers) > 0 && !e.timers[0].at.After(b.steady) {
		d := heap.Pop(&e.timers).(timer) //nolint:forcetypeassert // only timers are pushed
		r := e.runs[d.run]
		switch {
		case r == nil: // settled
		case d.task < 0 && b.now.Before(d.when): // the clock was set back: what is logged must show that the time has passed
			e.addTimer(b, d.when.Sub(b.now), d.when, d.run, d.task)
		case d.task < 0:
			e.expireRun(b, r)
		case r.tasks[d.task].state == api.TaskWaiting && r.tasks[d.task].notBefore.Equal(d.when):
			e.transition(r, d.task, record.EventDue)
			e.enqueue(r, d.task)
		}
	}
	if !b.steady.Before(e.nextSweep) {
		e.nextSweep = b.steady.Add(sweepTime)
		e.sweep(b)
	}
}

// sweep polls every open dispatch for a missed completion.
func (e *engine) sweep(b *batch) {
	for _, l := range e.lines { // a day may have begun, or a budget is larger
		l.refused = taskRef{}
	}
	for _, r := range e.runs {
		for i := range r.tasks {
			if t := &r.tasks[i]; t.asking() && r.plan.Tasks[i].Approval != nil {
				e.ask(b, r, int32(i)) //nolint:gosec // G115: likewise
			} else if t.writing() {
				e.askToWrite(b, r, int32(i), nil) //nolint:gosec // G115: likewise
			} else if t.open() && !t.inFlight {
				b.effects = append(b.effects, r.effect(effectPoll, int32(i))) //nolint:gosec // G115: bounded by api.MaxPlanTasks
			}
		}
	}
}

// timer is the time of a task's next attempt, or with task -1 the deadline of a
// run. It has the number of the run, so that a settled run can be freed.
type timer struct {
	at   time.Time // by the steady clock: a wall clock that is set makes nothing early
	when time.Time // by the wall clock, as the records have it
	run  int64
	task int32
}

// addTimer adds a timer that is due after wait.
func (e *engine) addTimer(b *batch, wait time.Duration, when time.Time, run int64, task int32) {
	heap.Push(&e.timers, timer{b.steady.Add(wait), when, run, task})
}

// timerHeap is the timers, soonest first.
type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) } //nolint:forcetypeassert // only timers are pushed

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return d
}
