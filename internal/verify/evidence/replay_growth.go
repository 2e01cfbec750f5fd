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
	plan.Offspring

	last int // the task that settled last
}

// grow applies the entry of a growth: it must be exactly the one that the plan and the
// products before the entry give.
func (s *taskStep) grow() error {
	if s.r.ending(s.i) {
		return errors.New("grew after its cancellation was requested")
	}
	want, err := s.past().due(s.i, s.was.State)
	if err != nil {
		return err
	}
	doc, err := want.Canonical()
	if err != nil {
		return err
	}
	if api.DigestOf(doc) != s.e.Refs[record.RefGrowth] {
		if err := s.r.explain(s.e, &want); err != nil {
			return err
		}
		return fmt.Errorf("its %s differs from the derived growth", want.Cause)
	}
	return s.r.extend(s.e, want)
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
			r.tasks[up].offspring.Open++
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
	o.last = i
	o.Settle(r.tasks[i].State)
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
