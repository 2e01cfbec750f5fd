package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// unapproved returns why a dispatch waits for people; nil: it does not.
func (f submitted) unapproved() *dispatch.Unapproved {
	u, _ := errors.AsType[*dispatch.Unapproved](f.err)
	return u
}

// waitToWrite makes a task wait for people to approve what its dispatch, which was not
// admitted, is to write. It waits without its locks and its slot.
func (e *engine) waitToWrite(b *batch, r *run, i int32, u *dispatch.Unapproved) {
	t := &r.tasks[i]
	e.resources.releaseTask(r, i)
	e.transition(r, i, record.EventAsk)
	r.asking++
	t.message = waitsFor(u.Action.By)
	b.log(record.KindTaskWaiting, r, i, record.TaskStep{Approval: true, Message: t.message})
	b.task(r, i)
	b.askToWrite(r, i, u)
}

// askToWrite asks people for their approval of what a task is to write. Without u, which
// only an attempt to start it gives, it looks how the request stands.
func (b *batch) askToWrite(r *run, i int32, u *dispatch.Unapproved) {
	t := &r.tasks[i]
	t.asked = true
	a := &asking{look: u == nil, again: b.recovers, action: api.TaskAction{Run: r.id, Task: r.plan.Tasks[i].ID, Write: &api.WriteAction{Dispatch: t.dispatch}}}
	if u != nil {
		a.action, a.timeout = u.Action, time.Duration(u.Timeout)
		a.action.Plan = r.doc.Digest
		for _, n := range u.Action.Write.Needs {
			if !shows(a.action.Shown, n.Dispatch) {
				a.action.Shown = append(a.action.Shown, api.ShownTask{Task: n.Task, Dispatch: n.Dispatch})
			}
		}
	}
	b.effects = append(b.effects, effect{kind: effectAsk, run: r, task: i, name: r.plan.Tasks[i].ID, ask: a})
}

func shows(list []api.ShownTask, id api.DispatchID) bool {
	for i := range list {
		if list[i].Dispatch == id {
			return true
		}
	}
	return false
}

// mayWrite queues a task again whose attempt people approved, or were not asked about.
// Whether they did is decided by the admission of its dispatch.
func (e *engine) mayWrite(r *run, i int32) {
	e.transition(r, i, record.EventApprove)
	r.tasks[i].approved = true
	e.resources.enqueue(r, i)
}

// lookAtWrite reports what people decided about a task that is to write. After a service
// that ended before it could ask them, the task tries again, which asks.
func (p *performer) lookAtWrite(ctx context.Context, x effect) error {
	action := &x.ask.action
	a, err := p.cfg.Approvals.OfTask(ctx, action.Run, action.Task, action.Starts())
	switch {
	case api.CodeOf(err) == api.CodeNotFound && !x.ask.again: // they are about to be asked
	case api.CodeOf(err) == api.CodeNotFound:
		p.inbox.put(voted{run: x.run, task: x.task, of: action.Starts(), outcome: record.EventDone})
	case err != nil:
		return err
	default:
		p.voted(x, &a)
	}
	return nil
}
