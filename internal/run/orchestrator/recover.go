package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// recover rebuilds the engine from the database, and derives the effects that are
// due.
func (d *driver) recover(ctx context.Context) error {
	e := d.engine
	var runs []*run
	if err := d.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		var fence int64
		if err := v.Get("SELECT value FROM run_fence", nil, &fence); err != nil && !errors.Is(err, store.ErrNoRow) {
			return err
		}
		e.fence = uint64(fence) //nolint:gosec // G115: counts up from 1
		if err := e.resources.loadQueues(v); err != nil {
			return err
		}
		runs, err = openRuns(v)
		return err
	}); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunRecover, "")
	b := d.newBatch()
	b.recovers = true
	c := &recovery{e, b}
	// Leases that were held come before those that are requested again.
	var waiting []taskRef
	for _, r := range runs {
		d.capacity.add(r.principal, r.size(), 1)
		e.resources.assignQueue(r)
		found, err := c.adoptRunning(ctx, r)
		if err != nil {
			return err
		}
		waiting = append(waiting, found...)
	}
	c.adoptWaiting(waiting)
	for _, r := range runs {
		e.addRun(b, r)
		c.restoreWaiting(r)
	}
	if b.changes() > 0 {
		e.fault = errors.Join(e.fault, errors.New("invariant violated: the stored runs are not in a state that a commit leaves"))
	}
	if e.fault != nil {
		return e.fault
	}
	d.effects.put(b.effects...)
	return nil
}

// recovery gives the engine the runs that the database has, before the first event.
type recovery struct {
	engine *engine
	batch  *batch // has the effects that are due; nothing of it is committed
}

// adoptRunning gives the tasks that are stored as running their slots and locks,
// and submits their dispatches again. A task whose gate is not settled gets its
// locks. So does one whose attempt has not begun, which it returns: it may have waited
// for a budget, without a slot.
func (c *recovery) adoptRunning(ctx context.Context, r *run) (waiting []taskRef, err error) {
	e, b := c.engine, c.batch
	for i := range r.tasks {
		t, i := &r.tasks[i], int32(i) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		if t.state != api.TaskRunning && (t.state != api.TaskGrowing || !r.holdsForGate(i)) {
			continue
		}
		t.lease = e.resources.locks.newLease(r, i)
		if err := e.resources.locks.adopt(t.lease); err != nil {
			return nil, fmt.Errorf("invariant violated: %w", err)
		}
		if t.state == api.TaskGrowing {
			continue
		}
		e.resources.running++
		if t.cancelBy == "" {
			if begun, err := begun(ctx, e.cfg.Dispatch, t); err != nil {
				return nil, err
			} else if !begun {
				waiting = append(waiting, taskRef{r, i})
				continue
			}
		}
		r.queue.running++
		ef := e.resources.budgets.submission(r, i)
		if t.cancelBy != "" { // must not start any more
			ef = r.effect(effectPoll, i)
			ef.expected = true
		}
		t.inFlight = ef.kind != effectPoll
		b.effects = append(b.effects, ef)
	}
	return waiting, nil
}

// begun reports whether the attempt of a task that is stored as running was admitted.
func begun(ctx context.Context, in Dispatcher, t *task) (bool, error) {
	d, ok, err := in.Get(ctx, t.dispatch)
	asks := t.answer != nil && d.State == api.EventNeedsInput && int32(d.Attempt) <= t.questionOf //nolint:gosec // G115: counts up from 1
	return ok && !asks, err
}

// restoreWaiting makes tasks that are stored as waiting wait again, or moves those
// that are due.
func (c *recovery) restoreWaiting(r *run) {
	e, b := c.engine, c.batch
	for i := range r.tasks {
		t, i := &r.tasks[i], int32(i) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		switch {
		case t.state != api.TaskWaiting:
		case !t.notBefore.IsZero() && t.notBefore.After(b.now):
			e.backingOff++
			_, most := plan.Delay(&r.plan.Tasks[i], int(t.attempt)) // the clock may have been set back
			e.timers.add(b.steady.Add(min(t.notBefore.Sub(b.now), most)), t.notBefore, r.seq, i)
		case !t.notBefore.IsZero():
			e.backingOff++ // the transition decrements it
			e.transition(r, i, record.EventDue)
			e.resources.enqueue(r, i)
		case t.answer != nil && t.cancelBy == "":
			e.transition(r, i, record.EventAnswer)
			e.resources.enqueue(r, i)
		case r.plan.Tasks[i].Approval != nil:
			b.ask(r, i)
		case t.writing():
			b.askToWrite(r, i, nil)
		default:
			ef := r.effect(effectPoll, i)
			ef.expected = true
			b.effects = append(b.effects, ef)
		}
	}
}

// adoptWaiting submits tasks that are stored as running and whose attempts have not begun,
// in the order in which they started, while slots are free. The others wait for one.
func (c *recovery) adoptWaiting(found []taskRef) {
	e, b := c.engine, c.batch
	slices.SortFunc(found, func(a, b taskRef) int { return cmp.Compare(a.get().fence, b.get().fence) })
	for _, t := range found {
		t.run.queue.running++ // as wait expects
		e.resources.budgets.wait(t.run, t.task, "", "")
		switch q := t.run.queue; {
		case !t.counts():
		case q.running < q.slots: // most have no budget, and need not wait for each other
			e.retryAdmission(b, t.get().lease)
		default:
			t.get().affording.due = true
			q.push(t.get().lease)
		}
	}
}
