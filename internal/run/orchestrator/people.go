package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Approvals asks people for their approval of tasks; see internal/state/approval.
type Approvals interface {
	// AskTask asks once for a task, and returns how its request stands. waits fails if the
	// task does not wait in the transaction that makes the request durable.
	AskTask(ctx context.Context, action api.TaskAction, timeout time.Duration, waits func(*store.Tx) error) (api.Approval, error)
	// OfTask returns the newest request about a dispatch that is to write; of CodeNotFound
	// without one.
	OfTask(ctx context.Context, run api.RunID, task api.TaskID, id api.DispatchID) (api.Approval, error)
	// EndTask ends what is open in the transaction of the task's end. A task that is an
	// approval and done uses it.
	EndTask(tx *store.Tx, run api.RunID, task api.TaskID, done bool) error
	// ForgetRun removes the requests of a run with its rows.
	ForgetRun(tx *store.Tx, run api.RunID) error
}

// asking is what people are asked. It has copies of what it needs.
type asking struct {
	action  api.TaskAction
	timeout time.Duration
	look    bool // only at how the request about its dispatch stands
	again   bool // likewise; without one, the task tries again, which asks
}

// waitsFor returns the approvers a task awaits.
func waitsFor(by []api.Principal) string {
	names := make([]string, len(by))
	for i, p := range by {
		names[i] = string(p)
	}
	return fmt.Sprintf("for approval by %s; see: bailiwick approval list", strings.Join(names, ", "))
}

// ask asks people for their approval of a task that waits for it, or looks how the
// request stands.
func (b *batch) ask(r *run, i int32) {
	p := &r.plan.Tasks[i]
	a := &asking{timeout: time.Duration(p.Approval.Timeout), action: record.TaskAction(r.id, p.ID, r.principal, r.doc.Digest, p.Approval.By, max(1, p.Approval.Count))}
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

// ask requests an approval and reports the decision.
func (p *performer) ask(ctx context.Context, x effect) error {
	fail := func(reason api.Reason, err error) error {
		p.inbox.put(voted{run: x.run, task: x.task, of: x.ask.action.Starts(), outcome: record.EventFail, step: record.TaskStep{Reason: string(reason), Message: clipped(err)}})
		return nil
	}
	if p.cfg.Approvals == nil {
		return fail(api.ReasonContext, errors.New("this service requests no approvals"))
	}
	if x.ask.look {
		return p.lookAtWrite(ctx, x)
	}
	action := x.ask.action
	action.Shown = make([]api.ShownTask, len(x.ask.action.Shown))
	for n, s := range x.ask.action.Shown {
		d, found, err := p.cfg.Dispatch.Get(ctx, s.Dispatch)
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
	a, err := p.cfg.Approvals.AskTask(ctx, action, x.ask.timeout, func(tx *store.Tx) error {
		var state api.TaskState
		var id api.DispatchID
		err := tx.Get("SELECT state, dispatch FROM run_task WHERE run = ? AND task = ?", store.Args{x.run.seq, x.task}, &state, &id)
		if err == nil && (state != api.TaskWaiting || id != action.Starts()) {
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
	p.voted(x, &a)
	return nil
}

// voted reports how a request stands, once people decided or it expired.
func (p *performer) voted(x effect, a *api.Approval) {
	v := voted{run: x.run, task: x.task, of: x.ask.action.Starts(), outcome: record.EventFail}
	switch a.State { //nolint:exhaustive // the others: people have not decided, or the task has ended
	case api.ApprovalApproved, api.ApprovalUsed:
		v.outcome, v.step = record.EventDone, record.TaskStep{}
	case api.ApprovalDenied:
		v.outcome, v.step = record.EventDeny, record.TaskStep{Reason: string(api.ReasonDenied), Message: denial(*a)}
	case api.ApprovalExpired:
		v.step = record.TaskStep{Reason: string(api.ReasonTimeout), Message: fmt.Sprintf("approval %s expired at %s", a.Action.ID, a.Action.Expires.Format(time.RFC3339))}
	default:
		return
	}
	p.inbox.put(v)
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
	of      api.DispatchID // that is to write; empty: the task is the approval
	outcome record.TaskEvent
	step    record.TaskStep
}

func (v voted) apply(e *engine, b *batch) {
	t := &v.run.tasks[v.task]
	switch {
	case !v.run.settled.IsZero() || t.state != api.TaskWaiting || t.dispatch != v.of || v.of != "" && !t.writing():
	case v.of != "" && v.outcome == record.EventDone:
		// Whether the attempt may write is decided by the admission of its dispatch.
		e.transition(v.run, v.task, record.EventApprove)
		t.approved = true
		e.resources.enqueue(v.run, v.task)
	default:
		e.finishTask(b, v.run, v.task, v.outcome, v.step)
	}
}

// Decided notifies the engine that people decided about a task, or that its request
// expired. It never blocks.
func (o *Orchestrator) Decided(run api.RunID, task api.TaskID) {
	o.driver.inbox.put(decided{run, task})
}

type decided struct {
	run  api.RunID
	task api.TaskID
}

func (d decided) apply(e *engine, b *batch) {
	r := e.byID[d.run]
	if r == nil {
		return
	}
	switch i, ok := r.plan.Index(d.task); {
	case !ok || r.tasks[i].state != api.TaskWaiting:
	case r.plan.Tasks[i].Approval != nil:
		b.ask(r, int32(i)) //nolint:gosec // G115: bounded by api.MaxRunTasks
	case r.tasks[i].writing():
		b.askToWrite(r, int32(i), nil) //nolint:gosec // G115: likewise
	}
}

// endApprovals ends the requests about the tasks that a batch settles.
func (b *batch) endApprovals(tx *store.Tx, by Approvals) error {
	for _, t := range b.tasks {
		p, state := &t.run.plan.Tasks[t.task], t.run.tasks[t.task].state
		if p.Approval == nil && !t.run.tasks[t.task].asked || !state.Settled() || by == nil {
			continue
		}
		if err := by.EndTask(tx, t.run.id, p.ID, p.Approval != nil && state == api.TaskDone); err != nil {
			return err
		}
	}
	return nil
}
