package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Approvals asks people for their approval of tasks; see internal/approval.
type Approvals interface {
	// AskTask asks once for a task, and returns how its request stands. waits fails if the
	// task does not wait in the transaction that makes the request durable.
	AskTask(ctx context.Context, action api.TaskAction, timeout time.Duration, waits func(*store.Tx) error) (api.Approval, error)
	// EndTask ends the request in the transaction of the task's end. A task that is done
	// uses it.
	EndTask(tx *store.Tx, run api.RunID, task api.TaskID, done bool) error
	// ForgetRun removes the requests of a run with its rows.
	ForgetRun(tx *store.Tx, run api.RunID) error
}

// asking is what people are asked. It has copies of what it needs.
type asking struct {
	action  api.TaskAction
	timeout time.Duration
}

// waitForPeople makes a task wait for those who may approve, and asks them once that is
// durable.
func (e *engine) waitForPeople(b *batch, r *run, i int32) {
	t, by := &r.tasks[i], []string{}
	for _, p := range r.plan.Tasks[i].Approval.By {
		by = append(by, string(p))
	}
	e.transition(r, i, record.EventAsk)
	r.asking++
	t.message = fmt.Sprintf("for approval by %s; see: bailiwick approval list", strings.Join(by, ", "))
	e.log(b, record.KindTaskWaiting, r, i, record.TaskStep{Message: t.message})
	b.task(r, i)
	e.ask(b, r, i)
}

// ask asks people for their approval of a task that waits for it, or looks how the
// request stands.
func (e *engine) ask(b *batch, r *run, i int32) {
	p := &r.plan.Tasks[i]
	a := &asking{timeout: time.Duration(p.Approval.Timeout), action: api.TaskAction{
		Run: r.id, Task: p.ID, Principal: r.principal, Plan: r.doc.Digest, By: p.Approval.By, Needs: max(1, p.Approval.Count), Shown: []api.ShownTask{},
	}}
	if a.timeout == 0 {
		a.timeout = time.Duration(api.DefaultApprovalExpiry)
	}
	for _, n := range r.plan.Shown(int(i)) {
		if t := &r.tasks[n]; t.dispatch != "" && t.state == api.TaskDone {
			a.action.Shown = append(a.action.Shown, api.ShownTask{Task: r.plan.Tasks[n].ID, Dispatch: t.dispatch})
		}
	}
	b.effects = append(b.effects, effect{kind: effectAsk, run: r, task: i, name: p.ID, ask: a})
}

var errNotWaiting = errors.New("the task does not wait any more")

// ask has people asked, and reports what they decided.
func (o *Orchestrator) ask(ctx context.Context, x effect) error {
	v := voted{run: x.run, task: x.task, outcome: record.EventFail, step: record.TaskStep{Reason: string(api.ReasonContext)}}
	fail := func(reason api.Reason, err error) error {
		v.step = record.TaskStep{Reason: string(reason), Message: clipped(err)}
		o.inbox.put(v)
		return nil
	}
	if o.cfg.Approvals == nil {
		return fail(api.ReasonContext, errors.New("this service asks nobody for approval"))
	}
	action := x.ask.action
	action.Shown = make([]api.ShownTask, len(x.ask.action.Shown))
	for n, s := range x.ask.action.Shown {
		d, found, err := o.cfg.Dispatch.Get(ctx, s.Dispatch)
		if err != nil {
			return err
		}
		if !found || d.Outcome == nil {
			return fail(api.ReasonContext, fmt.Errorf("the products of task %s are not there to be shown", s.Task))
		}
		if action.Shown[n], err = record.ShownTask(s.Task, d.ID, d.Result, d.Outcome); err != nil {
			return fail(api.ReasonOutput, fmt.Errorf("the products of task %s: %w", s.Task, err))
		}
	}
	failpoint.Hit(failpoint.TaskAsk, string(action.Run))
	a, err := o.cfg.Approvals.AskTask(ctx, action, x.ask.timeout, func(tx *store.Tx) error {
		var state api.TaskState
		err := tx.Get("SELECT state FROM run_task WHERE run = ? AND task = ?", store.Args{x.run.seq, x.task}, &state)
		if err == nil && state != api.TaskWaiting {
			err = errNotWaiting
		}
		return err
	})
	switch {
	case errors.Is(err, errNotWaiting):
		return nil
	case api.CodeOf(err) == api.CodeTooLarge:
		return fail(api.ReasonOutput, err)
	case err != nil:
		return err
	}
	failpoint.Hit(failpoint.TaskVoted, string(action.Run))
	switch a.State { //nolint:exhaustive // the others: people have not decided, or the task has ended
	case api.ApprovalApproved:
		v.outcome, v.step = record.EventDone, record.TaskStep{}
	case api.ApprovalDenied:
		v.outcome, v.step = record.EventDeny, record.TaskStep{Reason: string(api.ReasonDenied), Message: denial(a)}
	case api.ApprovalExpired:
		v.step = record.TaskStep{Reason: string(api.ReasonTimeout), Message: fmt.Sprintf("approval %s expired at %s", a.Action.ID, a.Action.Expires.Format(time.RFC3339))}
	default:
		return nil
	}
	o.inbox.put(v)
	return nil
}

// denial says who denied an approval, and why.
func denial(a api.Approval) string {
	for _, vote := range a.Votes {
		if !vote.Approve {
			return clipped(fmt.Errorf("%s denied approval %s%s", vote.Principal, a.Action.ID, withReason(vote.Reason)))
		}
	}
	return fmt.Sprintf("approval %s was denied", a.Action.ID)
}

func withReason(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// voted is what people decided about a task: EventDone, EventDeny or EventFail.
type voted struct {
	run     *run
	task    int32
	outcome record.TaskEvent
	step    record.TaskStep
}

func (v voted) apply(e *engine, b *batch) {
	if t := &v.run.tasks[v.task]; v.run.settled.IsZero() && t.state == api.TaskWaiting && t.dispatch == "" {
		e.finishTask(b, v.run, v.task, v.outcome, v.step)
	}
}

// Decided notifies the engine that people decided about a task, or that its request
// expired. It never blocks.
func (o *Orchestrator) Decided(run api.RunID, task api.TaskID) { o.inbox.put(decided{run, task}) }

type decided struct {
	run  api.RunID
	task api.TaskID
}

func (d decided) apply(e *engine, b *batch) {
	r := e.byID[d.run]
	if r == nil {
		return
	}
	if i, ok := r.plan.Index(d.task); ok && r.plan.Tasks[i].Approval != nil && r.tasks[i].state == api.TaskWaiting {
		e.ask(b, r, int32(i)) //nolint:gosec // G115: bounded by api.MaxRunTasks
	}
}

// endApprovals ends the requests about the tasks that a batch settles.
func (e *engine) endApprovals(tx *store.Tx, b *batch) error {
	for _, t := range b.tasks {
		p, state := &t.run.plan.Tasks[t.task], t.run.tasks[t.task].state
		if p.Approval == nil || !state.Settled() || e.cfg.Approvals == nil {
			continue
		}
		if err := e.cfg.Approvals.EndTask(tx, t.run.id, p.ID, state == api.TaskDone); err != nil {
			return err
		}
	}
	return nil
}
