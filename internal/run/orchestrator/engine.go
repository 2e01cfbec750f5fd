package orchestrator

import (
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
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
	cfg       *Config
	runs      map[int64]*run
	byID      map[api.RunID]*run
	timers    timers
	resources resources
	fence     uint64 // the last fencing token that was issued

	looking    int   // looks at products under way
	backingOff int   // tasks that wait for their next attempt
	fault      error // an invariant was violated

	grown func(p api.Principal, more size) // notified that a run takes more; may be nil
}

func newEngine(cfg *Config) *engine {
	return &engine{cfg: cfg, runs: map[int64]*run{}, byID: map[api.RunID]*run{}, resources: newResources(cfg), timers: timers{nextSweep: cfg.Steady().Add(sweepTime)}}
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

// hasPendingWork reports whether a task runs, or will start without further input.
func (e *engine) hasPendingWork() bool {
	if e.resources.running > 0 || e.looking > 0 {
		return true
	}
	for _, q := range e.resources.queues {
		if q.ready > 0 && !q.paused() {
			return true
		}
	}
	return e.backingOff > 0
}

// due applies the timers and the sweep that are due.
func (e *engine) due(b *batch) {
	for d, ok := e.timers.pop(b.steady); ok; d, ok = e.timers.pop(b.steady) {
		r := e.runs[d.run]
		switch {
		case r == nil: // settled
		case d.task < 0 && b.now.Before(d.when): // the clock was set back: what is logged must show that the time has passed
			e.timers.add(b.steady.Add(d.when.Sub(b.now)), d.when, d.run, d.task)
		case d.task < 0 && r.cancelBy == "":
			wall := time.Duration(r.plan.Limits.Wall)
			b.log(record.KindRunExpired, r, -1, record.RunExpiry{Limit: record.LimitWall, Millis: wall.Milliseconds()})
			e.cancelRun(b, r, api.Service, fmt.Sprintf("the run reached its %s of %s", record.LimitWall, wall))
		case d.task < 0:
		case r.tasks[d.task].state == api.TaskWaiting && r.tasks[d.task].notBefore.Equal(d.when):
			e.transition(r, d.task, record.EventDue)
			e.resources.enqueue(r, d.task)
		}
	}
	if !b.steady.Before(e.timers.nextSweep) {
		e.timers.nextSweep = b.steady.Add(sweepTime)
		e.sweep(b)
	}
}

// sweep polls every open dispatch for a missed completion.
func (e *engine) sweep(b *batch) {
	e.resources.budgets.reconsider()
	for _, r := range e.runs {
		for i := range r.tasks {
			if t := &r.tasks[i]; t.asking() && r.plan.Tasks[i].Approval != nil {
				b.ask(r, int32(i)) //nolint:gosec // G115: likewise
			} else if t.writing() {
				b.askToWrite(r, int32(i), nil) //nolint:gosec // G115: likewise
			} else if t.open() && !t.inFlight {
				b.effects = append(b.effects, r.effect(effectPoll, int32(i))) //nolint:gosec // G115: bounded by api.MaxPlanTasks
			}
		}
	}
}
