package orchestrator

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// schedule starts what can be started.
func (e *engine) schedule(b *batch) {
	for _, q := range e.queues {
		for w := q.pop(); w != nil; w = q.pop() {
			e.begin(b, w)
		}
	}
}

// queueUp has a ready task ask for its locks, and with them for a slot, unless
// its run or its queue is paused.
func (e *engine) queueUp(r *run, i int32) {
	if r.pausedBy != "" || r.queue.paused() || r.tasks[i].state != api.TaskReady {
		return
	}
	w := e.locks.newLease(r, i)
	r.tasks[i].lease = w
	e.granted = e.locks.ask(w, e.granted)
	e.grant()
}

// grant lets tasks that have just been given their locks wait for a slot.
func (e *engine) grant() {
	for _, w := range e.granted {
		w.run.queue.push(w)
	}
	e.granted = e.granted[:0]
}

// withdraw takes back what a task holds or waits for.
func (e *engine) withdraw(r *run, i int32) {
	w := r.tasks[i].lease
	if w == nil {
		return
	}
	r.tasks[i].lease = nil
	r.queue.remove(w)
	e.granted = e.locks.release(w, e.granted)
	e.grant()
}

// begin starts an attempt, or goes on with one that asked something: durably
// first, so that it is known of before there is anything of it.
func (e *engine) begin(b *batch, w *lease) {
	r, i := w.run, w.task
	t := &r.tasks[i]
	e.move(r, i, plan.EventStart)
	e.fence++
	t.fence = e.fence
	ef := effect{kind: effectFire, run: r, task: i, fence: t.fence, caller: r.caller()}
	if t.answer != nil {
		ef.kind, ef.id, ef.asked, ef.answer = effectResume, t.dispatch, t.asked, *t.answer
	} else {
		t.attempt++
		t.dispatch, t.asked = r.dispatchID(i, t.attempt), 0
		t.started = b.now
		t.reason, t.message = "", ""
		ef.order = r.order(i)
		if r.needed(i) {
			b.holds = append(b.holds, taskRef{r, i})
		}
	}
	t.notBefore, t.ended, t.inFlight = time.Time{}, time.Time{}, true
	e.running++
	r.queue.running++
	alone, shared := lockNames(r.plan.Tasks[i].Locks)
	e.fact(b, record.KindTaskStarted, r, i, record.TaskStart{Fence: int64(t.fence), Locks: alone, Shared: shared}) //nolint:gosec // G115: counts up from 1
	b.task(r, i)
	b.effects = append(b.effects, ef)
}

// stopped gives back what a running task had.
func (e *engine) stopped(r *run, i int32) {
	e.running--
	r.queue.running--
	r.tasks[i].inFlight = false
	e.withdraw(r, i)
}

// over brings a task to its end, and with it all that cannot follow.
func (e *engine) over(b *batch, r *run, i int32, ev plan.Event, step record.TaskStep) {
	t := &r.tasks[i]
	if t.state == api.TaskRunning {
		e.stopped(r, i)
	} else {
		e.withdraw(r, i)
	}
	e.settle(b, r, i, ev, step)
	if e.fault != nil {
		return
	}
	if t.state == api.TaskDone {
		e.follow(r, i)
	} else {
		e.skip(b, r, i)
	}
	e.close(b, r)
}

// settle makes one task final.
func (e *engine) settle(b *batch, r *run, i int32, ev plan.Event, step record.TaskStep) {
	e.move(r, i, ev)
	t := &r.tasks[i]
	t.ended, t.answer, t.verdict = b.now, nil, nil
	t.reason, t.message = api.Reason(step.Reason), step.Message
	e.fact(b, settledKind(t.state), r, i, step)
	b.task(r, i)
	b.settled = append(b.settled, settledTask{t.state, t.reason})
}

func settledKind(s api.TaskState) record.Kind {
	switch s {
	case api.TaskDone:
		return record.KindTaskDone
	case api.TaskSkipped:
		return record.KindTaskSkipped
	case api.TaskCancelled:
		return record.KindTaskCancelled
	case api.TaskDenied:
		return record.KindTaskDenied
	case api.TaskFailed, api.TaskPending, api.TaskReady, api.TaskRunning, api.TaskWaiting:
	}
	return record.KindTaskFailed
}

// follow makes ready what depended on a task that is done and on nothing else.
func (e *engine) follow(r *run, i int32) {
	for _, d := range r.plan.Dependents(int(i)) {
		t := &r.tasks[d]
		t.deps--
		if t.deps == 0 && t.state == api.TaskPending {
			e.move(r, d, plan.EventDeps)
			e.queueUp(r, d)
		}
	}
}

// skip ends everything that depends on a task that will not be done, however
// far away.
func (e *engine) skip(b *batch, r *run, cause int32) {
	from := []int32{cause}
	for len(from) > 0 {
		i := from[len(from)-1]
		from = from[:len(from)-1]
		for _, d := range r.plan.Dependents(int(i)) {
			t := &r.tasks[d]
			if t.state != api.TaskPending {
				continue
			}
			t.cause = cause
			e.settle(b, r, d, plan.EventSkip, record.TaskStep{Cause: string(r.plan.Tasks[cause].ID)})
			from = append(from, d)
		}
	}
}

// close settles a run of which every task is final. Nothing of it follows.
func (e *engine) close(b *batch, r *run) {
	if r.left > 0 || !r.settled.IsZero() || e.fault != nil {
		return
	}
	r.state = plan.Settle(r.now(), r.counts, r.cancelBy != "")
	r.settled = b.now
	e.fact(b, record.KindRunSettled, r, -1, record.RunEnd{
		State: string(r.state), Millis: b.now.Sub(r.submitted).Milliseconds(), Done: int64(r.counts[api.TaskDone]), Failed: int64(r.counts[api.TaskFailed]),
		Denied: int64(r.counts[api.TaskDenied]), Cancelled: int64(r.counts[api.TaskCancelled]), Skipped: int64(r.counts[api.TaskSkipped]),
	})
	b.run(r)
	b.done = append(b.done, r)
	delete(e.runs, r.seq)
	delete(e.byID, r.id)
	r.queue.runs--
}

// end is what the end of an attempt of a task's dispatch means for the task.
func (e *engine) end(b *batch, r *run, i int32, d *api.Dispatch) {
	t := &r.tasks[i]
	t.missed = false
	step := record.TaskStep{Reason: string(d.Reason), Message: d.Message}
	switch d.State {
	case api.EventFinished:
		e.over(b, r, i, plan.EventDone, record.TaskStep{})
	case api.EventNeedsInput:
		e.asksNow(b, r, i, d)
	case api.EventCancelled:
		if t.verdict != nil {
			e.refused(b, r, i, t.verdict)
			return
		}
		e.over(b, r, i, plan.EventCancel, record.TaskStep{By: string(d.CancelBy), Message: d.CancelReason})
	case api.EventFailed:
		if t.state == api.TaskReady && t.cancelBy == "" {
			return // its question was given up: it finds out when it goes on
		}
		if t.state == api.TaskReady {
			e.over(b, r, i, plan.EventCancel, record.TaskStep{By: string(t.cancelBy), Message: t.cancelWhy})
			return
		}
		if t.state == api.TaskRunning && t.cancelBy == "" && r.cancelBy == "" && int(t.attempt) < plan.Attempts(&r.plan.Tasks[i]) && plan.Retries(&r.plan.Tasks[i], d.Reason) {
			e.again(b, r, i, step)
			return
		}
		ev := plan.EventFail
		if d.Reason == api.ReasonDenied && t.state == api.TaskRunning { // it may not go on with its answer
			ev = plan.EventDeny
		}
		e.over(b, r, i, ev, step)
	case api.EventAccepted, api.EventStarted:
	}
}

// asksNow has a task wait for an answer, without its locks and its slot.
func (e *engine) asksNow(b *batch, r *run, i int32, d *api.Dispatch) {
	t := &r.tasks[i]
	if t.state != api.TaskRunning {
		return
	}
	e.stopped(r, i)
	e.move(r, i, plan.EventAsk)
	r.asking++
	t.asked, t.answer, t.message = int32(d.Attempt), nil, d.Message //nolint:gosec // G115: counts up from 1
	e.fact(b, record.KindTaskWaiting, r, i, record.TaskStep{Message: d.Message})
	b.task(r, i)
	if t.cancelBy != "" && d.CancelBy == "" { // it asked before it heard of that
		e.cancelDispatch(b, r, i)
	}
}

// again has a task wait for its next attempt.
func (e *engine) again(b *batch, r *run, i int32, step record.TaskStep) {
	t := &r.tasks[i]
	e.stopped(r, i)
	e.move(r, i, plan.EventBackoff)
	t.notBefore = b.now.Add(e.backoff(r, i))
	t.ended, t.reason, t.message, t.answer = b.now, api.Reason(step.Reason), step.Message, nil
	step.Until = t.notBefore.Format(time.RFC3339Nano)
	e.fact(b, record.KindTaskWaiting, r, i, step)
	b.task(r, i)
	e.backingOff++
	e.at(t.notBefore, r.seq, i)
}

// backoff is how long the next attempt of a task waits: anything up to a time
// that doubles with each attempt ("full jitter"). It follows from the seed, the
// run, the task and the attempt.
func (e *engine) backoff(r *run, i int32) time.Duration {
	bo := r.plan.Tasks[i].Retry.Backoff
	if bo == (api.Backoff{}) {
		bo = api.DefaultBackoff()
	}
	most := bo.Min
	for n := int32(1); n < r.tasks[i].attempt && most < bo.Max; n++ {
		most *= 2
	}
	most = min(most, bo.Max)
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.doc.Nonce)) // a hash never fails
	_, _ = h.Write(strconv.AppendInt(nil, int64(i), 10))
	source := rand.New(rand.NewPCG(e.cfg.Seed^h.Sum64(), uint64(r.tasks[i].attempt))) //nolint:gosec // G115, G404: no secret, and reproducible on purpose
	return time.Duration(source.Int64N(int64(most) + 1))
}

// refused is the end of a task whose dispatch was not to be had.
func (e *engine) refused(b *batch, r *run, i int32, err error) {
	step := record.TaskStep{Message: err.Error()}
	if bad, ok := errors.AsType[*api.Error](err); ok {
		step.Message = bad.Message
	}
	switch api.CodeOf(err) { //nolint:exhaustive // what else there is does not come here; see passing
	case api.CodeDenied:
		step.Reason = string(api.ReasonDenied)
		e.over(b, r, i, plan.EventDeny, step)
		return
	case api.CodeIntegrity, api.CodeConflict:
		step.Reason = string(api.ReasonIntegrity)
	default:
		step.Reason = string(api.ReasonContext)
	}
	e.over(b, r, i, plan.EventFail, step)
}

// passing reports whether an error says nothing about the task: asking again
// may do.
func passing(err error) bool {
	switch api.CodeOf(err) {
	case api.CodeInvalid, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeTooLarge, api.CodeIntegrity, api.CodeNotConfigured, api.CodeUnauthenticated:
		return false
	case api.CodeAuditUnavailable, api.CodeUnavailable, api.CodeNotFinished, api.CodeThrottled, api.CodeInternal:
	}
	return true
}
