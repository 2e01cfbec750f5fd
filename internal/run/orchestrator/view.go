package orchestrator

import (
	"fmt"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// view returns a run with a page of its tasks.
func view(r *run, from, limit int) api.Run {
	v := head(r)
	to := min(from+limit, len(r.tasks))
	v.Tasks = make([]api.RunTask, 0, max(0, to-from))
	for i := from; i < to; i++ {
		v.Tasks = append(v.Tasks, taskView(r, i))
	}
	if to < len(r.tasks) {
		v.Next = strconv.Itoa(to)
	}
	return v
}

// head returns a run without its tasks.
func head(r *run) api.Run {
	v := api.Run{
		RunID: r.id, State: r.now(), Queue: r.doc.Queue, Principal: r.principal, Plan: r.doc.Digest, Revision: r.doc.Number, SubmittedAt: r.submitted,
		SettledAt: pointer(r.settled), Deadline: pointer(r.doc.DeadlineAt), RetryOf: r.doc.RetryOf, Labels: r.doc.Labels, From: r.doc.From, Changed: r.doc.Changed, NoReuse: r.doc.NoReuse, CancelBy: r.cancelBy, CancelReason: r.cancelWhy,
		Counts: map[api.TaskState]int{}, Total: len(r.tasks), Tasks: []api.RunTask{},
	}
	for s, n := range r.counts {
		if n > 0 {
			v.Counts[s] = n
		}
	}
	return v
}

func pointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// taskView describes a task.
func taskView(r *run, i int) api.RunTask {
	t, p := &r.tasks[i], &r.plan.Tasks[i]
	v := api.RunTask{
		Task: p.ID, State: t.state, Subagent: p.Subagent, Reason: t.reason, Message: t.message, DispatchID: t.dispatch, Attempt: int(t.attempt),
		Attempts: plan.Attempts(&r.plan.Tasks[i]), Asks: t.asking() && t.dispatch != "" && !t.writing() && t.cancelBy == "", NotBefore: pointer(t.notBefore), CancelBy: t.cancelBy, //nolint:gosec // G115: bounded by api.MaxPlanTasks
		StartedAt: pointer(t.started), EndedAt: pointer(t.ended), TakenOver: t.takenOver,
	}
	for _, d := range r.plan.Deps(i) {
		v.After = append(v.After, r.plan.Tasks[d].ID)
	}
	if t.state == api.TaskSkipped && t.cause >= 0 {
		v.Cause = r.plan.Tasks[t.cause].ID
	}
	if parent := r.plan.Parent(i); parent >= 0 {
		v.GrewFrom = r.plan.Tasks[parent].ID
	}
	if of := r.plan.Children(i); t.state == api.TaskGrowing && p.Gate == nil {
		v.Message = fmt.Sprintf("%d of %d done", t.children.Done, len(of))
	}
	switch {
	case t.state == api.TaskReady:
		v.Blocked = blocked(r, t)
	case !t.hasSlot():
		v.Blocked = unaffordable(r, t)
	}
	if t.writing() || !t.hasSlot() && t.answer == nil {
		v.DispatchID = "" // it is not admitted
	}
	return v
}

// unaffordable describes what a task waits for that has started and is not admitted.
func unaffordable(r *run, t *task) string {
	switch a := t.affording; {
	case a.budget != "" && !a.due:
		return a.budget + ", which attempts that have not ended have reserved"
	case a.due, r.pausedBy != "", r.queue.paused():
		return blocked(r, t)
	}
	return "earlier tasks, which are submitted again after a restart"
}

// blocked describes what a task waits for that is ready, or has to have a slot again.
func blocked(r *run, t *task) string {
	switch {
	case t.cancelBy != "":
		return "the cancel of its dispatch"
	case r.pausedBy != "":
		return "the run, paused by " + string(r.pausedBy)
	case r.queue.paused():
		return "queue " + string(r.queue.name) + ", paused by " + string(r.queue.pausedBy)
	case t.lease == nil:
		return ""
	case !t.lease.held:
		return t.lease.blockedBy()
	case r.queue.slots == 0:
		return "queue " + string(r.queue.name) + ", which is no longer configured"
	}
	return "a free slot of queue " + string(r.queue.name)
}
