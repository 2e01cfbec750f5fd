package orchestrator

import (
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// growBy adds the tasks of a growth to a run: all in this commit, or none, and then the
// task that grows fails.
func (e *engine) growBy(b *batch, r *run, i int32, g plan.Growth) {
	first, err := r.grow(g, request{})
	if err != nil {
		e.cannotGrow(b, r, i, err)
		return
	}
	switch {
	case r.tasks[i].state != api.TaskRunning:
	case r.holdsForGate(i):
		e.resources.releaseSlot(r, i)
	default:
		e.resources.releaseTask(r, i)
	}
	e.transition(r, i, record.EventGrow)
	b.task(r, i)
	number, total := len(r.growths)-1, len(r.tasks)
	b.growths = append(b.growths, taskRef{r, int32(number)}) //nolint:gosec // G115: bounded by api.MaxRunTasks
	b.log(record.KindRunGrown, r, i, record.RunGrowth{Cause: string(g.Cause), Round: int64(g.Round), Tasks: int64(total - first), Total: int64(total)})
	b.items[len(b.items)-1].Entry.Refs = map[string]api.Digest{record.RefGrowth: r.growths[number].digest}
	if e.grown != nil {
		e.grown(r.principal, size{total - first, len(r.growths[number].doc)})
	}
	e.startAdded(b, r, first)
	if t := &r.tasks[i]; t.children.open == 0 && t.state == api.TaskGrowing { // there was no item
		e.finishTask(b, r, i, record.EventDone, record.TaskStep{})
	}
}

// cannotGrow fails a task whose products are not what its growth wants.
func (e *engine) cannotGrow(b *batch, r *run, i int32, err error) {
	e.finishTask(b, r, i, record.EventFail, record.TaskStep{Reason: string(api.ReasonOutput), Message: clipped(err)})
}

// clipped is the text of an error about what a worker wrote, of bounded length.
func clipped(err error) string {
	const most = 1000
	s := err.Error()
	if bad, ok := err.(*api.Error); ok { //nolint:errorlint // the message of a wrapped one is in the text
		s = bad.Message
	}
	if len(s) > most {
		s = api.Cut(s, most) + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// ended is how a task stands, as package plan wants it.
func (r *run) ended(i int) (api.TaskState, int) { return r.tasks[i].state, int(r.tasks[i].cause) }

func (r *run) end(i int32) plan.End { return r.plan.EndOf(int(i), r.ended) }

// advance continues a pending task that no dependency keeps any more.
func (e *engine) advance(b *batch, r *run, i int32) {
	t, p := &r.tasks[i], &r.plan.Tasks[i]
	switch {
	case t.state != api.TaskPending || t.deps > 0:
	case p.When != nil && !t.holds, plan.Grows(p), p.Approval != nil:
		e.look(b, r, i, -1)
	default:
		e.transition(r, i, record.EventDeps)
		e.resources.enqueue(r, i)
	}
}

// children is how the tasks that grew from a task stand.
type children struct {
	open      int32 // not settled
	lost      int32 // settled and neither done nor cancelled
	cancelled int32
	approve   int32 // votes
	reject    int32
}

// settled counts a child that has settled.
func (c *children) settled(state api.TaskState) {
	c.open--
	switch state { //nolint:exhaustive // the rest is not settled
	case api.TaskDone:
	case api.TaskCancelled:
		c.cancelled++
	default:
		c.lost++
	}
}

// childEnded continues the task that task i grew from.
func (e *engine) childEnded(b *batch, r *run, i int32) {
	parent := r.plan.Parent(int(i))
	if parent < 0 {
		return
	}
	t, p, child := &r.tasks[parent], &r.plan.Tasks[parent], &r.tasks[i]
	t.children.settled(child.state)
	switch {
	case t.state != api.TaskGrowing: // its quorum is known
	case t.cancelBy != "" || r.cancelBy != "":
		e.cancelGrown(b, r, parent)
	case p.ForEach != nil:
		e.forEachEnded(b, r, parent, i)
	case p.Quorum != nil:
		e.voted(b, r, parent, i)
	case child.state != api.TaskDone:
		e.finishTask(b, r, parent, record.EventFail, r.because(i, "%s"))
		e.cancelRest(b, r, parent, "the gate of task %s has failed")
	case r.plan.Children(int(parent))[len(r.plan.Children(int(parent)))-1] == i:
		e.look(b, r, parent, i)
	}
}

// cancelGrown cancels a task once all that grew from it have ended.
func (e *engine) cancelGrown(b *batch, r *run, i int32) {
	t := &r.tasks[i]
	if t.children.open > 0 || t.state != api.TaskGrowing {
		return
	}
	by, why := t.cancelBy, t.cancelWhy
	if by == "" {
		by = r.cancelBy
	}
	e.finishTask(b, r, i, record.EventCancel, record.TaskStep{By: string(by), Message: why})
}

// because is the step of a task that fails because of a child.
func (r *run) because(child int32, format string) record.TaskStep {
	t := &r.tasks[child]
	reason := t.reason
	if reason == "" {
		reason = api.ReasonContext
	}
	return record.TaskStep{Reason: string(reason), Message: fmt.Sprintf(format, fmt.Sprintf("task %s is %s", r.plan.Tasks[child].ID, t.state))}
}

// forEachEnded ends a task with a for_each when last, the last of its tasks, has.
func (e *engine) forEachEnded(b *batch, r *run, i, last int32) {
	c := &r.tasks[i].children
	switch {
	case c.open > 0:
	case c.lost > 0:
		of := r.plan.Children(int(i))
		step := record.TaskStep{}
		for _, n := range of {
			if s := r.tasks[n].state; s != api.TaskDone && s != api.TaskCancelled {
				step = r.because(n, fmt.Sprintf("%d of %d tasks are not done: %%s", c.lost+c.cancelled, len(of)))
				break
			}
		}
		e.finishTask(b, r, i, record.EventFail, step)
	case c.cancelled > 0:
		step := record.TaskStep{By: string(r.tasks[last].cancelBy), Message: fmt.Sprintf("%d of %d tasks were cancelled", c.cancelled, len(r.plan.Children(int(i))))}
		if step.By == "" {
			step.By = string(api.Service)
		}
		e.finishTask(b, r, i, record.EventCancel, step)
	default:
		e.finishTask(b, r, i, record.EventDone, record.TaskStep{})
	}
}

// voted counts the vote of a person, or has that of a subagent looked up.
func (e *engine) voted(b *batch, r *run, i, voter int32) {
	if r.tasks[voter].state == api.TaskDone && r.plan.Tasks[voter].Approval == nil {
		e.look(b, r, i, voter)
		return
	}
	r.count(i, voter, r.tasks[voter].state == api.TaskDone)
	e.tally(b, r, i)
}

// count counts a vote, once.
func (r *run) count(i, voter int32, approves bool) {
	if r.tasks[voter].counted {
		return
	}
	r.tasks[voter].counted = true
	if approves {
		r.tasks[i].children.approve++
	} else {
		r.tasks[i].children.reject++
	}
}

// tally ends a quorum as soon as its outcome is known, and cancels the voters that are
// left.
func (e *engine) tally(b *batch, r *run, i int32) {
	t, p := &r.tasks[i], &r.plan.Tasks[i]
	of := r.plan.Children(int(i))
	need, c := int32(p.Quorum.Approve), t.children //nolint:gosec // G115: at most api.MaxVoters
	approved := c.approve >= need
	if !approved && int32(len(of))-c.reject >= need { //nolint:gosec // G115: likewise
		return
	}
	ev, step := record.EventDone, record.TaskStep{}
	if !approved {
		ev, step = record.EventFail, record.TaskStep{Reason: string(api.ReasonVerify), Message: fmt.Sprintf("%d of %d voters do not approve, %d have to", c.reject, len(of), need)}
		if t.faulty != "" {
			step.Message += "; " + t.faulty
		}
	}
	e.finishTask(b, r, i, ev, step)
	e.cancelRest(b, r, i, "the quorum of task %s is known")
}

// cancelRest cancels what grew from a task that has settled.
func (e *engine) cancelRest(b *batch, r *run, i int32, why string) {
	for _, n := range r.plan.Children(int(i)) {
		e.cancelTask(b, r, n, api.Service, fmt.Sprintf(why, r.plan.Tasks[i].ID))
	}
	e.settleRun(b, r)
}
