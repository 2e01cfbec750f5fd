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
