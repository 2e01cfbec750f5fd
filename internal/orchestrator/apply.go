package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// apply takes up a run that was submitted.
func (a added) apply(e *engine, b *batch) {
	e.place(a.run)
	e.take(b, a.run)
}

// place gives a run its queue.
func (e *engine) place(r *run) {
	q := e.queues[r.doc.Queue]
	if q == nil { // no longer configured: nothing of it starts until it is
		q = newQueue(r.doc.Queue, 0)
		e.queues[q.name] = q
	}
	r.queue = q
}

// take makes a run that has its queue part of what moves.
func (e *engine) take(b *batch, r *run) {
	r.queue.runs++
	e.runs[r.seq], e.byID[r.id] = r, r
	if !r.doc.DeadlineAt.IsZero() {
		e.at(r.doc.DeadlineAt, r.seq, -1)
	}
	for i := range r.tasks {
		if r.tasks[i].state == api.TaskDone { // taken over, or done before a restart
			for _, d := range r.plan.Dependents(i) {
				r.tasks[d].deps--
			}
		}
	}
	for _, i := range r.plan.Order() {
		if t := &r.tasks[i]; t.state == api.TaskPending && t.deps == 0 {
			e.move(r, i, plan.EventDeps)
			e.queueUp(r, i)
		}
	}
	e.close(b, r) // nothing may be left of one that goes on from another
}

// find returns the task that a dispatch belongs to, if it is still about that.
func (e *engine) find(d *api.Dispatch) (*run, int32, bool) {
	r := e.byID[d.Run]
	if r == nil {
		return nil, 0, false
	}
	i, ok := r.plan.Index(d.Task)
	if !ok || r.tasks[i].dispatch != d.ID {
		return nil, 0, false
	}
	return r, int32(i), true //nolint:gosec // G115: bounded by api.MaxPlanTasks
}

// relevant reports whether the end of an attempt of its dispatch is news for a
// task: what it has asked before, and is answered, is not.
func (t *task) relevant(d *api.Dispatch) bool {
	if !d.State.Ended() || !t.open() {
		return false
	}
	if d.State == api.EventNeedsInput {
		return t.state == api.TaskRunning && int32(d.Attempt) > t.asked //nolint:gosec // G115: counts up from 1
	}
	return true
}

// apply heeds the end of an attempt.
func (n ended) apply(e *engine, b *batch) {
	if r, i, ok := e.find(&n.dispatch); ok && r.tasks[i].relevant(&n.dispatch) {
		e.end(b, r, i, &n.dispatch)
	}
}

// current returns the task that an effect was for, unless it has moved on.
func (e *engine) current(r *run, i int32, fence uint64) *task {
	if t := &r.tasks[i]; r.settled.IsZero() && t.fence == fence && t.open() {
		return t
	}
	return nil
}

// apply heeds what became of the request for a dispatch.
func (f fired) apply(e *engine, b *batch) {
	t := e.current(f.run, f.task, f.fence)
	if t == nil || t.state != api.TaskRunning {
		return
	}
	t.inFlight = false
	r, i := f.run, f.task
	switch {
	case f.err == nil && t.relevant(&f.dispatch):
		e.end(b, r, i, &f.dispatch)
	case f.err == nil:
		if t.cancelBy != "" {
			e.cancelDispatch(b, r, i)
		}
	case t.answer != nil: // the dispatch waits for it still, and must not for ever
		t.verdict = f.err
		t.cancelBy, t.cancelWhy = r.principal, strings.ToValidUTF8(fmt.Sprintf("its answer could not be used: %.1000s", f.err), "")
		e.cancelDispatch(b, r, i)
	case t.cancelBy != "": // and there is nothing to cancel
		e.over(b, r, i, plan.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
	default:
		e.refused(b, r, i, f.err)
	}
}

// apply heeds that a dispatch could not be asked for, or gone on with. Meanwhile
// its task can be cancelled.
func (f failed) apply(e *engine, b *batch) {
	x := &f.effect
	t := e.current(x.run, x.task, x.fence)
	if t == nil || x.kind == effectCancel || x.kind == effectLook {
		return
	}
	t.inFlight = false
	if t.cancelBy != "" {
		e.cancelDispatch(b, x.run, x.task)
	}
}

// apply tries again what is still wanted.
func (a again) apply(e *engine, b *batch) {
	x := &a.effect
	t := e.current(x.run, x.task, x.fence)
	if t == nil {
		return
	}
	if x.kind == effectFire || x.kind == effectResume {
		if t.cancelBy != "" || t.state != api.TaskRunning {
			return
		}
		t.inFlight = true
	}
	b.effects = append(b.effects, *x)
}

// apply heeds what the record of a dispatch says. An end that nobody told of is
// one where it was there a sweep ago: in the moment of an end its record is
// stored before anybody is told.
func (l looked) apply(e *engine, b *batch) {
	t := e.current(l.run, l.task, l.fence)
	if t == nil || t.inFlight {
		return
	}
	d := &l.dispatch
	switch {
	case !l.found && t.cancelBy != "": // it was never asked for, and never will be
		e.over(b, l.run, l.task, plan.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
	case !l.found:
	case !t.relevant(d):
		if t.cancelBy != "" && d.CancelBy == "" {
			e.cancelDispatch(b, l.run, l.task)
		}
	case l.expected || t.missed:
		if !l.expected {
			e.swept(b, l.run, d)
		}
		e.end(b, l.run, l.task, d)
	default:
		t.missed = true
	}
}

func (e *engine) swept(b *batch, r *run, d *api.Dispatch) {
	e.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "the end of a dispatch was found that nobody had told of: this is a fault of ours",
		slog.String("run", string(r.id)), slog.String("dispatch", string(d.ID)))
	b.after = append(b.after, func(e *engine) { e.cfg.Observer.Swept(1) })
}

// park takes what waits of a run out of the queues of locks and slots: what is
// paused must not be in the way of others.
func (e *engine) park(r *run) {
	for i := range r.tasks {
		if t := &r.tasks[i]; t.state == api.TaskReady {
			e.withdraw(r, int32(i)) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		}
	}
}

func (e *engine) unpark(r *run) {
	for _, i := range r.plan.Order() {
		if t := &r.tasks[i]; t.state == api.TaskReady && t.lease == nil && t.cancelBy == "" {
			e.queueUp(r, i)
		}
	}
}

// pauseQueue keeps anything new from starting in a queue, or by nobody lets it
// go on.
func (e *engine) pauseQueue(b *batch, q *queue, by api.Principal) {
	b.queues = append(b.queues, q)
	q.pausedBy, q.pausedAt = by, time.Time{}
	if by != "" {
		q.pausedAt = b.now
	}
	for _, r := range slices.SortedFunc(maps.Values(e.runs), func(a, b *run) int { return cmp.Compare(a.seq, b.seq) }) {
		switch {
		case r.queue != q:
		case q.paused():
			e.park(r)
		default:
			e.unpark(r)
		}
	}
}

// cancelRun ends what has not begun at once, and what runs as soon as it can.
func (e *engine) cancelRun(b *batch, r *run, by api.Principal, why string) {
	if r.cancelBy != "" {
		return
	}
	r.cancelBy, r.cancelWhy = by, why
	b.run(r)
	// Those that others wait for come last, so that each is cancelled, and none
	// skipped for the sake of another.
	for _, i := range slices.Backward(r.plan.Order()) {
		e.cancelTask(b, r, i, by, why)
	}
	e.close(b, r)
}

// maxRepeated bounds a reason that is said again with each task of a run: there
// may be ten thousand.
const maxRepeated = 200

// cancelTask ends a task. One that has a dispatch ends with that.
func (e *engine) cancelTask(b *batch, r *run, i int32, by api.Principal, why string) {
	t := &r.tasks[i]
	switch {
	case t.state.Settled() || t.cancelBy != "":
	case t.open():
		t.cancelBy, t.cancelWhy = by, why
		b.task(r, i)
		if t.state == api.TaskReady { // it will not go on
			e.withdraw(r, i)
		}
		if !t.inFlight {
			e.cancelDispatch(b, r, i)
		}
	default:
		if r.cancelBy != "" && len(why) > maxRepeated {
			why = "" // the run says it
		}
		t.cancelBy, t.cancelWhy = by, why
		e.over(b, r, i, plan.EventCancel, record.TaskStep{By: string(by), Message: why})
	}
}

// cancelDispatch asks for the end of a task's dispatch, once: that is tried again
// until it is heard.
func (e *engine) cancelDispatch(b *batch, r *run, i int32) {
	t := &r.tasks[i]
	if t.ending {
		return
	}
	t.ending = true
	b.effects = append(b.effects, effect{kind: effectCancel, run: r, task: i, fence: t.fence, id: t.dispatch, by: t.cancelBy, why: t.cancelWhy})
}
