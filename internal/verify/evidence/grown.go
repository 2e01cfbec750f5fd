package evidence

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// offspring counts the tasks that grew from a task.
type offspring struct {
	open, done, lost, cancelled int // lost: settled, and neither done nor cancelled
	last                        int // the task that settled last
}

// grow applies the entry of a growth: it must be exactly the one that the plan and the
// products before the entry give.
func (r *replay) grow(i int, e *entry, was record.TaskChain) error {
	if r.ending(i) {
		return errors.New("grew after its cancellation was requested")
	}
	want, err := r.due(i, e.seq, was.State)
	if err != nil {
		return err
	}
	doc, err := want.Canonical()
	if err != nil {
		return err
	}
	if api.DigestOf(doc) != e.Refs[record.RefGrowth] {
		if err := r.explain(e, &want); err != nil {
			return err
		}
		return fmt.Errorf("grew by another %s than its cause gives", want.Cause)
	}
	return r.extend(e, want)
}

// explain reads the document of a growth that its cause does not give.
func (r *replay) explain(e *entry, want *plan.Growth) error {
	g, err := r.growth(e)
	if err != nil {
		return err
	}
	if len(g.Items) != len(want.Items) {
		return fmt.Errorf("grew %s, but its list has %d", record.Plural(int64(len(g.Items)), "item"), len(want.Items))
	}
	for n := range g.Items {
		if a, b := &g.Items[n], &want.Items[n]; a.Name != b.Name || a.Path != b.Path || string(a.Value) != string(b.Value) {
			return fmt.Errorf("item %d is %.80q, but its list has %.80q there", n+1, a.Name, b.Name)
		}
	}
	if g.Round != want.Round {
		return fmt.Errorf("grew round %d of its gate instead of round %d", g.Round, want.Round)
	}
	return nil
}

// append applies the entry by which a caller added tasks.
func (r *replay) append(e *entry) error {
	g, err := r.growth(e)
	switch {
	case err != nil:
		return err
	case g.Cause != plan.CauseAppend:
		return fmt.Errorf("it adds tasks by %.20q, which no caller does", g.Cause)
	case r.cancelled:
		return errors.New("tasks were added after the run's cancellation was requested")
	}
	return r.extend(e, g)
}

// growth reads the document of a growth. Runs that retry each other can share it.
func (r *replay) growth(e *entry) (g plan.Growth, err error) {
	doc, err := r.document(e.Refs[record.RefGrowth], "growth")
	if err == nil {
		err = r.meter.decode(doc)
	}
	if err == nil {
		err = r.meter.spend(unitPlan * len(doc))
	}
	if err != nil {
		return g, err
	}
	return plan.ReadGrowth(doc)
}

// extend adds the tasks of a growth.
func (r *replay) extend(e *entry, g plan.Growth) error {
	if _, err := r.document(e.Refs[record.RefGrowth], "growth"); err != nil {
		return err
	}
	if err := r.afford(g); err != nil {
		return err
	}
	first, err := r.plan.Grow(g)
	if err != nil {
		return fmt.Errorf("it cannot grow: %w", err)
	}
	r.growths = append(r.growths, g)
	if err := r.addTasks(first); err != nil {
		return err
	}
	total := int64(len(r.tasks))
	d := detail[record.RunGrowth](e)
	if d.Cause != string(g.Cause) || d.Round != int64(g.Round) || d.Tasks != total-int64(first) || d.Total != total {
		return fmt.Errorf("it adds %d of %d tasks by %s, round %d, but its entry says %d of %d by %.20q, round %d",
			total-int64(first), total, g.Cause, g.Round, d.Tasks, d.Total, d.Cause, d.Round)
	}
	return nil
}

// afford charges the tasks of a growth before they are made.
func (r *replay) afford(g plan.Growth) error {
	tasks := len(g.Items) + len(g.Tasks) + api.MaxVoters
	size := 0
	if i, ok := r.plan.Index(g.Task); ok {
		size = len(r.plan.Tasks[i].Input)
	}
	return r.meter.hold(unitGrown*tasks+min(len(g.Items)*size, api.MaxRunInput)*unitInput, memoryGrown*tasks)
}

// addTasks follows the tasks of the plan from first on.
func (r *replay) addTasks(first int) error {
	inputs, err := inputsOf(r.plan.Tasks[first:])
	r.inputs = append(r.inputs, inputs...)
	for i := first; i < len(r.plan.Tasks); i++ {
		r.tasks = append(r.tasks, taskReplay{TaskChain: record.NewTaskChain()})
		if up := r.plan.Parent(i); up >= 0 {
			r.tasks[up].offspring.open++
		}
	}
	return err
}

// settled tells the task that task i grew from that it has ended.
func (r *replay) settledTask(i int) {
	up := r.plan.Parent(i)
	if up < 0 {
		return
	}
	o := &r.tasks[up].offspring
	o.open--
	o.last = i
	switch r.tasks[i].State { //nolint:exhaustive // it has settled
	case api.TaskDone:
		o.done++
	case api.TaskCancelled:
		o.cancelled++
	default:
		o.lost++
	}
}

// due returns the growth that is due now, by the plan and the products before entry n.
func (r *replay) due(i int, n uint64, was api.TaskState) (g plan.Growth, err error) {
	t := &r.plan.Tasks[i]
	g.Task = t.ID
	switch {
	case was == api.TaskPending && plan.Grows(t):
		if err := r.begins(i, n); err != nil {
			return g, err
		}
		if t.ForEach == nil {
			g.Cause = plan.CauseQuorum
			return g, nil
		}
		g.Cause = plan.CauseForEach
		g.Items, err = r.items(i, n)
		return g, err
	case t.Gate == nil || t.ForEach != nil || was != api.TaskRunning && was != api.TaskGrowing:
		return g, fmt.Errorf("it was %s, and nothing made it grow", was)
	case was == api.TaskRunning:
		if err := r.finished(i, n); err != nil {
			return g, err
		}
	default:
		green, err := r.checked(i, n)
		if err == nil && green {
			err = errors.New("its last check is green")
		}
		if err != nil {
			return g, err
		}
	}
	g.Cause, g.Round = plan.CauseGate, len(r.plan.Children(i))/2+1
	if was == api.TaskGrowing {
		g.Round = (len(r.plan.Children(i))+1)/2 + 1
	}
	return g, nil
}

// product is an error of what a task has produced, in the words of who wants it.
type product struct{ error }

// items are those of a for_each.
func (r *replay) items(i int, n uint64) ([]plan.Item, error) {
	f := r.plan.Tasks[i].ForEach
	var sum *api.ResultSummary
	if f.From != "" {
		from, ok := r.plan.Index(f.From)
		if !ok {
			return nil, fmt.Errorf("the plan has no task %s", f.From)
		}
		var err error
		if sum, err = r.result(from, n); err != nil {
			return nil, err
		}
		if err := r.meter.spend(unitPlan*len(sum.Value) + unitCompare*len(sum.Outputs)); err != nil {
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
func (r *replay) result(i int, n uint64) (*api.ResultSummary, error) {
	if err := r.finished(i, n); err != nil {
		return nil, err
	}
	a := r.histories[r.tasks[i].Dispatch].finished(n).made()
	if a == nil || a.signed == nil {
		return nil, fmt.Errorf("the result of task %s cannot be read", r.plan.Tasks[i].ID)
	}
	return &a.signed.Summary, nil
}

// finished refuses a task whose dispatch has not finished before entry n.
func (r *replay) finished(i int, n uint64) error {
	t := &r.tasks[i]
	if h := r.histories[t.Dispatch]; t.Dispatch == "" || h == nil || h.finished(n) == nil {
		return fmt.Errorf("the dispatch of task %s had not finished", r.plan.Tasks[i].ID)
	}
	return nil
}

// checked returns the verdict of the last check of a gate.
func (r *replay) checked(i int, n uint64) (green bool, err error) {
	of := r.plan.Children(i)
	if len(of) == 0 {
		return false, errors.New("nothing has checked it")
	}
	last := int(of[len(of)-1])
	if r.tasks[last].State != api.TaskDone {
		return false, fmt.Errorf("task %s is %s", r.plan.Tasks[last].ID, r.tasks[last].State)
	}
	if g := r.plan.Tasks[i].Gate; g.Protected {
		subject := int(r.plan.Subject(of[len(of)-1]))
		sum, err := r.result(subject, n)
		if err != nil {
			return false, err
		}
		if err := plan.CheckProtected(g, r.plan.Tasks[subject].ID, sum); err != nil {
			return false, product{err}
		}
	}
	return r.verdict(last, n, api.VerdictGreen, api.VerdictRed)
}

func (r *replay) verdict(i int, n uint64, yes, no string) (bool, error) {
	sum, err := r.result(i, n)
	if err == nil {
		err = r.meter.spend(unitPlan * len(sum.Value))
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
func (r *replay) begins(i int, n uint64) error {
	if err := r.dependencies(i); err != nil {
		return err
	}
	holds, err := r.holds(i, n)
	if err == nil && !holds {
		err = errors.New("its condition does not hold")
	}
	return err
}

// holds evaluates the condition of a task.
func (r *replay) holds(i int, n uint64) (bool, error) {
	w := r.plan.Tasks[i].When
	if w == nil {
		return true, nil
	}
	of, ok := r.plan.Index(w.Task)
	if !ok {
		return false, fmt.Errorf("the plan has no task %s", w.Task)
	}
	sum, err := r.result(of, n)
	if err != nil {
		return false, err
	}
	key := condition{r.tasks[of].Dispatch, w.Result, string(w.Is)}
	if known, ok := r.conditions[key]; ok {
		return known.holds, known.err
	}
	if err := r.meter.spend(unitPlan * len(sum.Value)); err != nil {
		return false, err
	}
	holds, err := plan.Holds(w, sum)
	if err != nil {
		err = product{err}
	}
	if r.conditions == nil {
		r.conditions = map[condition]answer{}
	}
	r.conditions[key] = answer{holds, err}
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

// ending reports whether a task, one that it grew from, or its run is being cancelled. The
// service cancels what is left of a task that has settled, without a further entry: the
// voters of a quorum that is known, and the tasks of a gate that has failed.
func (r *replay) ending(i int) bool {
	if r.cancelled || r.tasks[i].stopped {
		return true
	}
	for up := r.plan.Parent(i); up >= 0; up = r.plan.Parent(int(up)) {
		if r.tasks[up].stopped || r.tasks[up].State.Settled() {
			return true
		}
	}
	return false
}

// end is how a task ended, as those that depend on it see it.
func (r *replay) end(i int) plan.End {
	t := &r.tasks[i]
	return plan.End{State: t.State, ByCondition: t.State == api.TaskSkipped && t.byCondition}
}
