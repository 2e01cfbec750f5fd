package orchestrator

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// look is what a control task waits for: what a product says. It has copies of what it
// needs, because only the engine may read a plan that grows. A crash loses it, and
// recovery looks again, since the products do not change.
type look struct {
	task     api.PlanTask
	child    int32          // whose verdict it is; -1 for none
	when     bool           // it is about the condition
	of       api.TaskID     // that gave the product
	dispatch api.DispatchID // that gave it; empty: none is needed
	subject  api.ShownTask  // whose patch a protected gate judges
	caller   dispatch.Caller
}

// look has the product read that decides how a task continues.
func (e *engine) look(b *batch, r *run, i, child int32) {
	p := &r.plan.Tasks[i]
	l := &look{task: *p, child: child, caller: r.caller()}
	l.caller.Pinned = r.doc.Revision
	from := child
	if child < 0 {
		id := api.TaskID("")
		switch {
		case p.When != nil && !r.tasks[i].holds:
			id, l.when = p.When.Task, true
		case p.ForEach != nil:
			id = p.ForEach.From
		}
		if n, ok := r.plan.Index(id); ok {
			from = int32(n) //nolint:gosec // G115: bounded by api.MaxRunTasks
		}
	}
	if from >= 0 {
		l.of, l.dispatch = r.plan.Tasks[from].ID, r.tasks[from].dispatch
	}
	if child >= 0 && p.Gate != nil && p.Gate.Protected {
		of := r.plan.Subject(child)
		l.subject = api.ShownTask{Task: r.plan.Tasks[of].ID, Dispatch: r.tasks[of].dispatch}
	}
	e.looking++
	b.effects = append(b.effects, effect{kind: effectLook, run: r, task: i, name: p.ID, look: l})
}

// looked is what a look found. bad says what is wrong with the product.
type looked struct {
	run    *run
	task   int32
	child  int32
	when   bool // it is about the condition
	yes    bool
	growth plan.Growth
	bad    error
	refuse error // why a protected gate refuses the patch
}

// lookAt reads the product of a look.
func (p *performer) lookAt(ctx context.Context, x effect) error {
	l := x.look
	seen := looked{run: x.run, task: x.task, child: l.child}
	sum, err := p.finished(ctx, l.dispatch)
	if err != nil {
		return err
	}
	t := &l.task
	switch {
	case l.child >= 0 && t.Gate != nil:
		seen.yes, seen.bad = plan.VerdictOf(sum, api.VerdictGreen, api.VerdictRed)
		if t.Gate.Protected {
			if sum, err = p.finished(ctx, l.subject.Dispatch); err == nil {
				seen.refuse = plan.CheckProtected(t.Gate, l.subject.Task, sum)
			}
		}
	case l.child >= 0:
		seen.yes, seen.bad = plan.VerdictOf(sum, api.VerdictApprove, api.VerdictReject)
	case l.when:
		seen.when = true
		seen.yes, seen.bad = plan.Holds(t.When, sum)
	case t.ForEach != nil:
		seen.growth, seen.bad, err = p.items(ctx, l, sum)
	case t.Quorum != nil:
		seen.growth = plan.Growth{Cause: plan.CauseQuorum, Task: t.ID}
	}
	if err != nil {
		return err
	}
	if seen.bad != nil && l.of != "" {
		seen.bad = fmt.Errorf("result of task %s: %w", l.of, seen.bad)
	}
	p.inbox.put(seen)
	return nil
}

// finished returns the result of a finished dispatch, and an empty one of any other.
func (p *performer) finished(ctx context.Context, id api.DispatchID) (*api.ResultSummary, error) {
	if id != "" {
		d, found, err := p.cfg.Dispatch.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if found && d.State == api.EventFinished && d.Outcome != nil {
			return d.Outcome, nil
		}
	}
	return &api.ResultSummary{}, nil
}

// items returns the growth of a task with a for_each, whose tasks its subagent accepts.
func (p *performer) items(ctx context.Context, l *look, sum *api.ResultSummary) (g plan.Growth, bad, err error) {
	items, bad := plan.ItemsOf(l.task.ForEach, sum)
	if bad != nil {
		return g, bad, nil
	}
	tasks, bad := plan.Instances(&l.task, items)
	if bad != nil {
		return g, bad, nil
	}
	g = plan.Growth{Cause: plan.CauseForEach, Task: l.task.ID, Items: items}
	v := vettingOf(tasks, func(int) bool { return true })
	for i := range v.reqs {
		v.reqs[i].Source = nil // which the run has pinned
	}
	if err := v.validate(ctx, p.cfg.Dispatch, l.caller); err != nil {
		if transient(err) {
			return g, nil, err
		}
		return g, err, nil
	}
	for _, p := range v.Problems { // whether it may be dispatched is decided when it is
		if p.Member == "input" {
			return g, fmt.Errorf("item %q: %s", items[v.places[p.Index].task].Name, p.Message), nil
		}
	}
	return g, nil, nil
}

// apply continues a task after a look, unless it has ended meanwhile.
func (l looked) apply(e *engine, b *batch) {
	e.looking--
	r, i := l.run, l.task
	if !r.settled.IsZero() {
		return
	}
	t, p := &r.tasks[i], &r.plan.Tasks[i]
	switch {
	case t.cancelBy != "" || r.cancelBy != "":
	case l.child >= 0 && t.state == api.TaskGrowing && p.Quorum != nil:
		if l.bad != nil && t.faulty == "" {
			t.faulty = clipped(l.bad)
		}
		r.count(i, l.child, l.yes && l.bad == nil)
		e.tally(b, r, i)
	case l.child >= 0 && t.state == api.TaskGrowing:
		e.carryOut(b, r, i, afterVerdict(r, i, l))
	case t.state == api.TaskGrowing && p.ForEach != nil && t.children.Open == 0:
		e.carryOut(b, r, i, afterItem(r, i, i))
	case l.child >= 0 || t.state != api.TaskPending:
	case l.bad != nil:
		e.carryOut(b, r, i, cannotGrow(l.bad))
	case l.when && l.yes:
		t.holds = true
		e.advance(b, r, i)
	case l.when:
		w := p.When
		cause, _ := r.plan.Index(w.Task)                                                                                    // plan.Parse checked it
		e.skip(b, r, i, int32(cause), clipped(fmt.Errorf("%s of the result of task %s is not %s", w.Result, w.Task, w.Is))) //nolint:gosec // G115: bounded by api.MaxRunTasks
		e.release(b, r, i)
		e.settleRun(b, r)
	case p.Approval != nil:
		e.wait(b, r, i, record.TaskStep{Message: waitsFor(p.Approval.By)})
		b.ask(r, i)
	default:
		e.growBy(b, r, i, l.growth)
	}
}

// countChildren counts how the tasks stand that grew from others, of a run that was
// read.
func (r *run) countChildren() {
	for n := range r.tasks {
		r.tasks[n].children = children{Offspring: plan.Offspring{Open: len(r.plan.Children(n))}}
	}
	for n := range r.tasks {
		if parent := r.plan.Parent(n); parent >= 0 && r.tasks[n].state.Settled() {
			r.tasks[parent].children.Settle(r.tasks[n].state)
		}
	}
}

// resumeGrowing looks again at the verdicts that tasks of a run waited for before a
// restart.
func (e *engine) resumeGrowing(b *batch, r *run) {
	for n := range r.tasks {
		i := int32(n) //nolint:gosec // G115: bounded by api.MaxRunTasks
		p, of := &r.plan.Tasks[n], r.plan.Children(n)
		if r.tasks[n].state != api.TaskGrowing || len(of) == 0 {
			continue
		}
		switch {
		case p.ForEach != nil:
			if r.tasks[n].children.Open == 0 { // a retry took all of them over
				e.look(b, r, i, -1)
			}
		case p.Quorum != nil:
			for _, voter := range of {
				switch t := &r.tasks[voter]; {
				case t.state == api.TaskDone && r.plan.Tasks[voter].Approval == nil:
					e.look(b, r, i, voter)
				case t.state.Settled():
					r.count(i, voter, t.state == api.TaskDone)
				}
			}
		case r.tasks[of[len(of)-1]].state == api.TaskDone:
			e.look(b, r, i, of[len(of)-1])
		}
	}
}
