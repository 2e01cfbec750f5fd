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
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// apply adds a run that was submitted.
func (a runAdded) apply(e *engine, b *batch) {
	e.resources.assignQueue(a.run)
	e.addRun(b, a.run)
}

// addRun adds a run that has its queue to the engine.
func (e *engine) addRun(b *batch, r *run) {
	r.queue.runs++
	e.runs[r.seq], e.byID[r.id] = r, r
	if !r.doc.DeadlineAt.IsZero() {
		e.timers.add(b.steady.Add(r.doc.DeadlineAt.Sub(b.now)), r.doc.DeadlineAt, r.seq, -1)
	}
	for i := range r.tasks {
		if r.tasks[i].state.Settled() { // taken over from another run, or settled before a restart
			end := r.end(int32(i)) //nolint:gosec // G115: bounded by api.MaxRunTasks
			for _, d := range r.plan.Dependents(i) {
				if r.plan.Free(d, int32(i), end) { //nolint:gosec // G115: likewise
					r.tasks[d].deps--
				}
			}
		}
	}
	for _, i := range r.plan.Order() {
		e.advance(b, r, i)
	}
	e.resumeGrowing(b, r)
	e.settleRun(b, r) // a retry may have nothing left to do
}

// relevant reports whether the state of its dispatch is new to a task. A question
// that was answered before is not.
func (t *task) relevant(d *api.Dispatch) bool {
	if !d.State.Ended() || !t.open() {
		return false
	}
	if d.State == api.EventNeedsInput {
		return t.state == api.TaskRunning && int32(d.Attempt) > t.questionOf //nolint:gosec // G115: counts up from 1
	}
	return true
}

func (n dispatchEnded) apply(e *engine, b *batch) {
	d := &n.dispatch
	if r := e.byID[d.Run]; r != nil {
		i, ok := r.plan.Index(d.Task)
		if ok && r.tasks[i].dispatch == d.ID && r.tasks[i].relevant(d) {
			e.attemptEnded(b, r, int32(i), d) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		}
	}
	e.resources.budgets.recheck(n.dispatch.Principal)
}

// current returns the task that an effect was for; nil when the effect is stale.
func current(r *run, i int32, fence uint64) *task {
	if t := &r.tasks[i]; r.settled.IsZero() && t.fence == fence && t.open() {
		return t
	}
	return nil
}

func (f submitted) apply(e *engine, b *batch) {
	t := current(f.run, f.task, f.fence)
	if t == nil || t.state != api.TaskRunning {
		return
	}
	t.inFlight = false
	r, i := f.run, f.task
	full := f.reserved()
	if full == nil || t.cancelBy != "" {
		e.resources.budgets.leave(r, i)
	}
	switch {
	case full != nil && t.cancelBy == "":
		e.resources.budgets.refuse(r, i, full)
	case full != nil && t.answer != nil:
		b.cancelDispatch(r, i)
	case f.err == nil && t.relevant(&f.dispatch):
		e.attemptEnded(b, r, i, &f.dispatch)
	case f.err == nil:
		if t.cancelBy != "" {
			b.cancelDispatch(r, i)
		}
	case t.answer != nil: // the dispatch still waits for an answer and has to be cancelled
		t.failure = f.err
		t.cancelBy, t.cancelWhy = api.Service, strings.ToValidUTF8(fmt.Sprintf("resuming with the answer failed: %.1000s", f.err), "")
		b.cancelDispatch(r, i)
	case t.cancelBy != "": // no dispatch exists to cancel
		e.finishTask(b, r, i, record.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
	case f.unapproved() != nil:
		u := f.unapproved()
		e.wait(b, r, i, record.TaskStep{Approval: true, Message: waitsFor(u.Action.By)})
		b.askToWrite(r, i, u)
	default:
		e.carryOut(b, r, i, afterRefusal(f.err))
	}
}

// apply lets a task be cancelled while its dispatch cannot be submitted or
// resumed.
func (f effectFailed) apply(e *engine, b *batch) {
	x := &f.effect
	t := current(x.run, x.task, x.fence)
	if t == nil || x.kind == effectCancel || x.kind == effectPoll || x.kind == effectLook || x.kind == effectAsk {
		return
	}
	t.inFlight = false
	e.resources.budgets.leave(x.run, x.task) // others need not wait for what is not known
	if t.cancelBy != "" {
		b.cancelDispatch(x.run, x.task)
	}
}

// apply retries an effect that is still wanted.
func (a effectDue) apply(e *engine, b *batch) {
	x := &a.effect
	if x.kind == effectLook || x.kind == effectAsk {
		if x.run.settled.IsZero() {
			b.effects = append(b.effects, *x)
		} else if x.kind == effectLook {
			e.looking--
		}
		return
	}
	t := current(x.run, x.task, x.fence)
	if t == nil {
		return
	}
	if x.kind == effectSubmit || x.kind == effectResume {
		if t.cancelBy != "" || t.state != api.TaskRunning {
			return
		}
		t.inFlight, t.ends = true, e.resources.budgets.ends[x.run.principal]
		x.behind = e.resources.budgets.behind(x.run, x.task)
	}
	b.effects = append(b.effects, *x)
}

// apply handles the polled record of a dispatch. A completion counts as missed
// when the sweep before has seen it too: an end is stored shortly before the
// engine is notified.
func (l polled) apply(e *engine, b *batch) {
	t := current(l.run, l.task, l.fence)
	if t == nil || t.inFlight {
		return
	}
	d := &l.dispatch
	switch {
	case !l.found && t.cancelBy != "": // it was never submitted, and never will be
		e.finishTask(b, l.run, l.task, record.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
	case !l.found:
	case !t.relevant(d):
		if t.cancelBy != "" && d.CancelBy == "" {
			b.cancelDispatch(l.run, l.task)
		}
	case l.expected || t.missed:
		if !l.expected {
			e.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "polling found a completion that the engine was not notified of: this is a bug",
				slog.String("run", string(l.run.id)), slog.String("dispatch", string(d.ID)))
			b.after = append(b.after, func(e *engine) { e.cfg.Observer.Swept(1) })
		}
		e.attemptEnded(b, l.run, l.task, d)
	default:
		t.missed = true
	}
}

// pauseQueue pauses a queue, or resumes it when by is empty.
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
			e.resources.park(r)
		default:
			e.resources.unpark(r)
		}
	}
}

// cancelRun ends tasks that have not started at once, and running ones as soon
// as possible.
func (e *engine) cancelRun(b *batch, r *run, by api.Actor, why string) {
	if r.cancelBy != "" {
		return
	}
	r.cancelBy, r.cancelWhy = by, why
	b.run(r)
	// Dependents come first, so that each task is cancelled rather than skipped
	// because of another.
	for _, i := range slices.Backward(r.plan.Order()) {
		e.cancelTask(b, r, i, by, why)
	}
	e.settleRun(b, r)
}

// maxRepeatedReason bounds a reason that is repeated for each task of a run: there
// may be ten thousand.
const maxRepeatedReason = 200

// cancelTask ends a task. A task with a dispatch ends when that does.
func (e *engine) cancelTask(b *batch, r *run, i int32, by api.Actor, why string) {
	t := &r.tasks[i]
	switch {
	case t.state.Settled() || t.cancelBy != "":
	case t.state == api.TaskGrowing:
		t.cancelBy, t.cancelWhy = by, why
		b.task(r, i)
		for _, child := range r.plan.Children(int(i)) {
			e.cancelTask(b, r, child, by, why)
		}
		e.carryOut(b, r, i, afterGrown(r, i))
	case t.open():
		t.cancelBy, t.cancelWhy = by, why
		b.task(r, i)
		if t.state == api.TaskReady { // it will not resume
			e.resources.withdraw(r, i)
		}
		if !t.inFlight {
			b.cancelDispatch(r, i)
		}
	default:
		if r.cancelBy != "" && len(why) > maxRepeatedReason {
			why = "" // the run has it
		}
		t.cancelBy, t.cancelWhy = by, why
		e.finishTask(b, r, i, record.EventCancel, record.TaskStep{By: string(by), Message: why})
	}
}

// cancelDispatch cancels a task's dispatch, once: the effect is retried until it
// succeeds.
func (b *batch) cancelDispatch(r *run, i int32) {
	t := &r.tasks[i]
	if t.cancelSent {
		return
	}
	t.cancelSent = true
	ef := r.effect(effectCancel, i)
	ef.by, ef.why = t.cancelBy, t.cancelWhy
	b.effects = append(b.effects, ef)
}
