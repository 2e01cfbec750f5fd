package orchestrator

import (
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// schedule starts tasks that hold their locks while slots are free.
func (e *engine) schedule(b *batch) {
	for more := true; more; {
		e.resources.budgets.queueFirst()
		more = false
		for _, q := range e.resources.queues {
			for w := q.pop(); w != nil; w = q.pop() {
				more = true // a line may have another first task
				if w.run.tasks[w.task].affording != nil {
					e.retryAdmission(b, w)
				} else {
					e.startTask(b, w)
				}
			}
		}
	}
}

// startTask starts an attempt, or resumes one that asked a question. It is
// persisted before it can have any effect.
func (e *engine) startTask(b *batch, w *lease) {
	r, i := w.run, w.task
	t := &r.tasks[i]
	e.transition(r, i, record.EventStart)
	e.fence++
	t.fence = e.fence
	if t.answer == nil {
		if !t.approved {
			t.attempt++
		}
		t.approved, t.dispatch, t.questionOf = false, r.dispatchID(i, t.attempt), 0
		t.started = b.now
		t.reason, t.message = "", ""
		if r.needed(i) {
			b.reserved = append(b.reserved, taskRef{r, i})
		}
	}
	t.notBefore, t.ended, t.inFlight = time.Time{}, time.Time{}, true
	e.resources.running++
	r.queue.running++
	exclusive, shared := lockNames(r.locksOf(i))
	b.log(record.KindTaskStarted, r, i, record.TaskStart{Fence: int64(t.fence), Locks: exclusive, Shared: shared}) //nolint:gosec // G115: counts up from 1
	b.task(r, i)
	if e.resources.budgets.follow(r, i) {
		t.inFlight = false
		return
	}
	b.effects = append(b.effects, e.resources.budgets.submission(r, i))
}

// carryOut ends a task as was decided, or lets tasks grow from it.
func (e *engine) carryOut(b *batch, r *run, i int32, d decision) {
	switch {
	case d.grow != nil:
		e.growBy(b, r, i, *d.grow)
	case d.end != "":
		e.finishTask(b, r, i, d.end, d.step)
	}
}

// finishTask settles a task, and the dependents that cannot run any more.
func (e *engine) finishTask(b *batch, r *run, i int32, ev record.TaskEvent, step record.TaskStep) {
	t := &r.tasks[i]
	if t.state == api.TaskRunning {
		e.resources.releaseTask(r, i)
	} else {
		e.resources.withdraw(r, i)
	}
	e.settleTask(b, r, i, ev, step)
	if e.fault != nil {
		return
	}
	e.release(b, r, i)
	e.settleRun(b, r)
}

// settleTask makes one task final.
func (e *engine) settleTask(b *batch, r *run, i int32, ev record.TaskEvent, step record.TaskStep) {
	e.transition(r, i, ev)
	t := &r.tasks[i]
	t.ended, t.answer, t.failure = b.now, nil, nil
	t.reason, t.message = api.Reason(step.Reason), step.Message
	b.log(record.Kind("task."+string(t.state)), r, i, step) // kinds are named after the states
	b.task(r, i)
	b.settled = append(b.settled, settledTask{t.state, t.reason})
}

// release continues, or skips, the tasks that depend on one that has settled, directly
// or not, and the tasks that these grew from.
func (e *engine) release(b *batch, r *run, settled int32) {
	from := []int32{settled}
	for len(from) > 0 {
		i := from[len(from)-1]
		from = from[:len(from)-1]
		end := r.end(i)
		for _, d := range r.plan.Dependents(int(i)) {
			t := &r.tasks[d]
			switch {
			case t.state != api.TaskPending:
			case r.plan.Free(d, i, end):
				t.deps--
				e.advance(b, r, d)
			default:
				e.skip(b, r, d, i, "")
				from = append(from, d)
			}
		}
		e.childEnded(b, r, i)
	}
}

// skip skips a task because of another.
func (e *engine) skip(b *batch, r *run, i, cause int32, why string) {
	if t := &r.tasks[cause]; t.state == api.TaskSkipped && t.cause >= 0 && r.tasks[t.cause].state != api.TaskDone {
		cause = t.cause // the first that was not done
	}
	r.tasks[i].cause = cause
	e.settleTask(b, r, i, record.EventSkip, record.TaskStep{Cause: string(r.plan.Tasks[cause].ID), Message: why})
}

// settleRun settles a run whose tasks are all final. No entry of the run may
// follow.
func (e *engine) settleRun(b *batch, r *run) {
	if r.left > 0 || !r.settled.IsZero() || e.fault != nil {
		return
	}
	r.state = plan.Settle(r.now(), r.plan.Counts(r.ended), r.cancelBy != "")
	r.settled = b.now
	b.log(record.KindRunSettled, r, -1, record.RunEnd{
		State: string(r.state), Millis: max(0, b.now.Sub(r.submitted)).Milliseconds(), Done: int64(r.counts[api.TaskDone]), Failed: int64(r.counts[api.TaskFailed]),
		Denied: int64(r.counts[api.TaskDenied]), Cancelled: int64(r.counts[api.TaskCancelled]), Skipped: int64(r.counts[api.TaskSkipped]),
	})
	b.run(r)
	b.done = append(b.done, r)
	delete(e.runs, r.seq)
	delete(e.byID, r.id)
	r.queue.runs--
}

// attemptEnded moves a task after an attempt of its dispatch has ended.
func (e *engine) attemptEnded(b *batch, r *run, i int32, d *api.Dispatch) {
	t := &r.tasks[i]
	t.missed = false
	step := record.TaskStep{Reason: string(d.Reason), Message: d.Message}
	switch d.State {
	case api.EventFinished:
		e.carryOut(b, r, i, afterDispatch(r, i))
	case api.EventNeedsInput:
		e.waitForAnswer(b, r, i, d)
	case api.EventCancelled:
		if t.failure != nil {
			e.carryOut(b, r, i, afterRefusal(t.failure))
			return
		}
		e.finishTask(b, r, i, record.EventCancel, record.TaskStep{By: string(d.CancelBy), Message: d.CancelReason})
	case api.EventFailed:
		if t.state == api.TaskReady && t.cancelBy == "" {
			return // its question expired: the resume reports it
		}
		if t.state == api.TaskReady {
			e.finishTask(b, r, i, record.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
			return
		}
		if t.state == api.TaskRunning && t.cancelBy == "" && r.cancelBy == "" && int(t.attempt) < plan.Attempts(&r.plan.Tasks[i]) && plan.Retries(&r.plan.Tasks[i], d.Reason) {
			e.retryLater(b, r, i, step)
			return
		}
		ev := record.EventFail
		if d.Reason == api.ReasonDenied && t.state == api.TaskRunning { // policy refused the resume
			ev = record.EventDeny
		}
		e.finishTask(b, r, i, ev, step)
	case api.EventAccepted, api.EventStarted:
	}
}

// wait makes a task wait for people, without its locks and its slot.
func (e *engine) wait(b *batch, r *run, i int32, step record.TaskStep) {
	if r.tasks[i].state == api.TaskRunning {
		e.resources.releaseTask(r, i)
	}
	e.transition(r, i, record.EventAsk)
	r.asking++
	r.tasks[i].message = step.Message
	b.log(record.KindTaskWaiting, r, i, step)
	b.task(r, i)
}

// waitForAnswer makes a task wait for an answer, without its locks and its slot.
func (e *engine) waitForAnswer(b *batch, r *run, i int32, d *api.Dispatch) {
	t := &r.tasks[i]
	if t.state != api.TaskRunning {
		return
	}
	t.questionOf, t.answer = int32(d.Attempt), nil //nolint:gosec // G115: counts up from 1
	e.wait(b, r, i, record.TaskStep{Message: d.Message})
	if t.cancelBy != "" && d.CancelBy == "" { // it asked before the cancel reached it
		b.cancelDispatch(r, i)
	}
}

// retryLater makes a task wait for its next attempt.
func (e *engine) retryLater(b *batch, r *run, i int32, step record.TaskStep) {
	t := &r.tasks[i]
	e.resources.releaseTask(r, i)
	e.transition(r, i, record.EventBackoff)
	wait := backoff(e.cfg.Seed, r, i)
	t.notBefore = b.now.Add(wait)
	t.ended, t.reason, t.message, t.answer = b.now, api.Reason(step.Reason), step.Message, nil
	step.Until = t.notBefore.Format(time.RFC3339Nano)
	b.log(record.KindTaskWaiting, r, i, step)
	b.task(r, i)
	e.backingOff++
	e.timers.add(b.steady.Add(wait), t.notBefore, r.seq, i)
}

// transient reports whether an error is not about the task, so that a retry may
// succeed.
func transient(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeInvalid, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeTooLarge, api.CodeIntegrity, api.CodeNotConfigured, api.CodeUnauthenticated:
		return false
	case api.CodeAuditUnavailable, api.CodeUnavailable, api.CodeNotFinished, api.CodeThrottled, api.CodeInternal:
	}
	return true
}
