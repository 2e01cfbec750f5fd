package evidence

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// past is a run with the dispatches of its tasks as they were before an entry: what they
// had produced by then, and what follows from that.
type past struct {
	r *replay
	n uint64 // the entry
}

// due returns the growth that is due now, by the plan and the products before entry n.
func (p past) due(i int, was api.TaskState) (g plan.Growth, err error) {
	t := &p.r.plan.Tasks[i]
	g.Task = t.ID
	switch {
	case was == api.TaskPending && plan.Grows(t):
		if err := p.begins(i); err != nil {
			return g, err
		}
		if t.ForEach == nil {
			g.Cause = plan.CauseQuorum
			return g, nil
		}
		g.Cause = plan.CauseForEach
		g.Items, err = p.items(i)
		return g, err
	case t.Gate == nil || t.ForEach != nil || was != api.TaskRunning && was != api.TaskGrowing:
		return g, fmt.Errorf("it was %s, and nothing made it grow", was)
	case was == api.TaskRunning:
		if err := p.finished(i); err != nil {
			return g, err
		}
	default:
		green, err := p.checked(i)
		if err == nil && green {
			err = errors.New("its last check is green")
		}
		if err != nil {
			return g, err
		}
	}
	g.Cause, g.Round = plan.CauseGate, len(p.r.plan.Children(i))/2+1
	if was == api.TaskGrowing {
		g.Round = (len(p.r.plan.Children(i))+1)/2 + 1
	}
	return g, nil
}

// product is an error in what a task produced, worded for the consumer.
type product struct{ error }

// items are those of a for_each.
func (p past) items(i int) ([]plan.Item, error) {
	f := p.r.plan.Tasks[i].ForEach
	var sum *api.ResultSummary
	if f.From != "" {
		from, ok := p.r.plan.Index(f.From)
		if !ok {
			return nil, fmt.Errorf("the plan has no task %s", f.From)
		}
		var err error
		if sum, err = p.result(from); err != nil {
			return nil, err
		}
		if err := p.r.meter.spend(unitPlan*len(sum.Value) + unitCompare*len(sum.Outputs)); err != nil {
			return nil, err
		}
	}
	items, err := plan.ItemsOf(f, sum)
	if err != nil {
		return nil, product{err}
	}
	return items, nil
}

// result returns the signed result of the dispatch of a task that finished before
// entry n.
func (p past) result(i int) (*api.ResultSummary, error) {
	if err := p.finished(i); err != nil {
		return nil, err
	}
	a := p.r.histories[p.r.tasks[i].Dispatch].finished(p.n).made()
	if a == nil || a.signed == nil {
		return nil, fmt.Errorf("the result of task %s cannot be read", p.r.plan.Tasks[i].ID)
	}
	return &a.signed.Summary, nil
}

// finished refuses a task whose dispatch has not finished before entry n.
func (p past) finished(i int) error {
	t := &p.r.tasks[i]
	if h := p.r.histories[t.Dispatch]; t.Dispatch == "" || h == nil || h.finished(p.n) == nil {
		return fmt.Errorf("the dispatch of task %s had not finished", p.r.plan.Tasks[i].ID)
	}
	return nil
}

// checked returns the verdict of the last check of a gate.
func (p past) checked(i int) (green bool, err error) {
	of := p.r.plan.Children(i)
	if len(of) == 0 {
		return false, errors.New("nothing has checked it")
	}
	last := int(of[len(of)-1])
	if p.r.tasks[last].State != api.TaskDone {
		return false, fmt.Errorf("task %s is %s", p.r.plan.Tasks[last].ID, p.r.tasks[last].State)
	}
	if g := p.r.plan.Tasks[i].Gate; g.Protected {
		subject := int(p.r.plan.Subject(of[len(of)-1]))
		sum, err := p.result(subject)
		if err != nil {
			return false, err
		}
		if err := plan.CheckProtected(g, p.r.plan.Tasks[subject].ID, sum); err != nil {
			return false, product{err}
		}
	}
	return p.verdict(last, api.VerdictGreen, api.VerdictRed)
}

func (p past) verdict(i int, yes, no string) (bool, error) {
	sum, err := p.result(i)
	if err == nil {
		err = p.r.meter.spend(unitPlan * len(sum.Value))
	}
	if err != nil {
		return false, err
	}
	ok, err := plan.VerdictOf(sum, yes, no)
	if err != nil {
		err = product{err}
	}
	return ok, err
}

// begins refuses that a task begins before all that it depends on has ended as it
// accepts, or although its condition does not hold.
func (p past) begins(i int) error {
	if err := p.r.dependencies(i); err != nil {
		return err
	}
	holds, err := p.holds(i)
	if err == nil && !holds {
		err = errors.New("its condition does not hold")
	}
	return err
}

// holds evaluates the condition of a task.
func (p past) holds(i int) (bool, error) {
	w := p.r.plan.Tasks[i].When
	if w == nil {
		return true, nil
	}
	of, ok := p.r.plan.Index(w.Task)
	if !ok {
		return false, fmt.Errorf("the plan has no task %s", w.Task)
	}
	sum, err := p.result(of)
	if err != nil {
		return false, err
	}
	key := condition{p.r.tasks[of].Dispatch, w.Result, string(w.Is)}
	if known, ok := p.r.conditions[key]; ok {
		return known.holds, known.err
	}
	if err := p.r.meter.spend(unitPlan * len(sum.Value)); err != nil {
		return false, err
	}
	holds, err := plan.Holds(w, sum)
	if err != nil {
		err = product{err}
	}
	if p.r.conditions == nil {
		p.r.conditions = map[condition]answer{}
	}
	p.r.conditions[key] = answer{holds, err}
	return holds, err
}

// condition is one that is evaluated once, for all tasks that have it.
type condition struct {
	dispatch  api.DispatchID
	place, is string
}

type answer struct {
	holds bool
	err   error
}

// votes counts the voters of a quorum that approve, and those that do or still can.
func (p past) votes(i int) (approve, possible int, err error) {
	of := p.r.plan.Children(i)
	for _, v := range of {
		switch state := p.r.tasks[v].State; {
		case !state.Settled():
			possible++
			continue
		case state != api.TaskDone:
			continue
		}
		yes := true // a person that denies ends the task as denied
		if p.r.plan.Tasks[v].Approval == nil {
			bad := product{}
			if yes, err = p.verdict(int(v), api.VerdictApprove, api.VerdictReject); err != nil && !errors.As(err, &bad) {
				return 0, 0, err
			}
		}
		if yes {
			approve, possible = approve+1, possible+1
		}
	}
	return approve, possible, nil
}
