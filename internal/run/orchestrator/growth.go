package orchestrator

import (
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// growBy adds the tasks of a growth to a run: all in this commit, or none, and then the
// task that grows fails.
func (e *engine) growBy(b *batch, r *run, i int32, g plan.Growth) {
	first, err := r.grow(g, request{})
	if err != nil {
		e.carryOut(b, r, i, cannotGrow(err))
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
	if t := &r.tasks[i]; t.children.Open == 0 && t.state == api.TaskGrowing { // there was no item
		e.finishTask(b, r, i, record.EventDone, record.TaskStep{})
	}
}

// clipped is the text of an error about what a worker wrote, of bounded length.
func clipped(err error) string {
	const most = 1000
	s := err.Error()
	if bad, ok := err.(*api.Error); ok { //nolint:errorlint // the message of a wrapped one is in the text
		s = bad.Message
	}
	return strings.ToValidUTF8(cuttext.Text(s, most), "")
}

// ended returns a task's state and cause for package plan.
func (r *run) ended(i int) (api.TaskState, int) { return r.tasks[i].state, int(r.tasks[i].cause) }

func (r *run) end(i int32) plan.End { return r.plan.EndOf(int(i), r.ended) }

// advance continues a pending task whose dependencies are met.
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

// children is how the tasks stand that grew from a task.
type children struct {
	plan.Offspring

	approve, reject int // votes
}

// childEnded continues the task that task i grew from.
func (e *engine) childEnded(b *batch, r *run, i int32) {
	parent := r.plan.Parent(int(i))
	if parent < 0 {
		return
	}
	t, p, child := &r.tasks[parent], &r.plan.Tasks[parent], &r.tasks[i]
	t.children.Settle(child.state)
	switch {
	case t.state != api.TaskGrowing: // its quorum is known
	case t.cancelBy != "" || r.cancelBy != "":
		e.carryOut(b, r, parent, afterGrown(r, parent))
	case p.ForEach != nil:
		e.carryOut(b, r, parent, afterItem(r, parent, i))
	case p.Quorum != nil && child.state == api.TaskDone && r.plan.Tasks[i].Approval == nil: // its verdict is read first
		e.look(b, r, parent, i)
	case p.Quorum != nil:
		r.count(parent, i, child.state == api.TaskDone)
		e.tally(b, r, parent)
	case child.state != api.TaskDone:
		e.carryOut(b, r, parent, failsBecause(r, i, "%s"))
		e.cancelRest(b, r, parent, "the gate of task %s has failed")
	case r.plan.Children(int(parent))[len(r.plan.Children(int(parent)))-1] == i:
		e.look(b, r, parent, i)
	}
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
	if d := afterVote(r, i); d.end != "" {
		e.carryOut(b, r, i, d)
		e.cancelRest(b, r, i, "the quorum of task %s is known")
	}
}

// cancelRest cancels what grew from a task that has settled.
func (e *engine) cancelRest(b *batch, r *run, i int32, why string) {
	for _, n := range r.plan.Children(int(i)) {
		e.cancelTask(b, r, n, api.Service, fmt.Sprintf(why, r.plan.Tasks[i].ID))
	}
	e.settleRun(b, r)
}
