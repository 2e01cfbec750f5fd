package orchestrator

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// recover builds everything up from what is stored, and finds out which effects
// are due. It is the only way into memory for what was there before.
func (o *Orchestrator) recover(ctx context.Context) error {
	e := o.engine
	var runs []*run
	if err := o.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		var fence int64
		if err := v.Get("SELECT value FROM run_fence", nil, &fence); err != nil && !errors.Is(err, store.ErrNoRow) {
			return err
		}
		e.fence = uint64(fence) //nolint:gosec // G115: counts up from 1
		if err := e.loadQueues(v); err != nil {
			return err
		}
		runs, err = openRuns(v)
		return err
	}); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunRecover, "")
	b := &batch{now: o.cfg.Now().UTC()}
	// First what was held, then what waits.
	for _, r := range runs {
		o.room.keep(r, 1)
		e.place(r)
		if err := e.hold(b, r); err != nil {
			return err
		}
	}
	for _, r := range runs {
		e.take(b, r)
		e.wait(b, r)
	}
	if b.changes() > 0 {
		e.fault = errors.Join(e.fault, errors.New("what is stored of the runs is not what a commit leaves"))
	}
	if e.fault != nil {
		return e.fault
	}
	o.out.list = b.effects
	return nil
}

func (e *engine) loadQueues(v store.Reader) error {
	return v.Each("SELECT name, by, at FROM run_queue", nil, func(scan store.Scan) error {
		var name api.Name
		var by api.Principal
		var at int64
		if err := scan(&name, &by, &at); err != nil {
			return err
		}
		if q := e.queues[name]; q != nil {
			q.pausedBy, q.pausedAt = by, instant(at)
		}
		return nil
	})
}

// hold gives the tasks that are stored as running what they had, and has their
// dispatches asked for again.
func (e *engine) hold(b *batch, r *run) error {
	for i := range r.tasks {
		t, i := &r.tasks[i], int32(i) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		if t.state != api.TaskRunning {
			continue
		}
		t.lease = e.locks.newLease(r, i)
		if err := e.locks.hold(t.lease); err != nil {
			return fmt.Errorf("%w; what is stored of the runs is damaged", err)
		}
		e.running++
		r.queue.running++
		ef := effect{kind: effectFire, run: r, task: i, fence: t.fence, caller: r.caller(), id: t.dispatch}
		switch {
		case t.cancelBy != "": // never to be begun now
			ef.kind, ef.expected = effectLook, true
		case t.answer != nil:
			ef.kind, ef.asked, ef.answer = effectResume, t.asked, *t.answer
		default:
			ef.order = r.order(i)
		}
		t.inFlight = ef.kind != effectLook
		b.effects = append(b.effects, ef)
	}
	return nil
}

// wait has what is stored as waiting wait again, or go on where what it waited
// for has come.
func (e *engine) wait(b *batch, r *run) {
	for i := range r.tasks {
		t, i := &r.tasks[i], int32(i) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		switch {
		case t.state != api.TaskWaiting:
		case !t.notBefore.IsZero() && t.notBefore.After(b.now):
			e.backingOff++
			e.at(t.notBefore, r.seq, i)
		case !t.notBefore.IsZero():
			e.backingOff++ // and no more with the move
			e.move(r, i, plan.EventDue)
			e.queueUp(r, i)
		case t.answer != nil && t.cancelBy == "":
			e.move(r, i, plan.EventAnswer)
			e.queueUp(r, i)
		default:
			b.effects = append(b.effects, effect{kind: effectLook, run: r, task: i, fence: t.fence, id: t.dispatch, expected: true})
		}
	}
}
