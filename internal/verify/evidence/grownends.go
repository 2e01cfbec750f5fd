package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// endGrowing compares the end of a task with the tasks that grew from it.
func (r *replay) endGrowing(i int, e *entry) error {
	t := &r.plan.Tasks[i]
	o := &r.tasks[i].offspring
	switch {
	case e.Kind == record.KindTaskCancelled:
		if o.open > 0 {
			return fmt.Errorf("cancelled while %s that grew from it had not ended", record.Plural(int64(o.open), "task"))
		}
		if !r.ending(i) && (t.ForEach == nil || o.lost > 0 || o.cancelled == 0) {
			return errors.New("cancelled without a request")
		}
		return nil
	case t.Quorum != nil:
		return r.endQuorum(i, e)
	case o.open > 0 && (t.ForEach != nil || o.lost+o.cancelled == 0): // a gate ends with the first of its tasks that is not done
		return fmt.Errorf("%s while %s that grew from it had not ended", r.tasks[i].State, record.Plural(int64(o.open), "task"))
	case t.ForEach != nil:
		if done := o.lost+o.cancelled == 0; done != (e.Kind == record.KindTaskDone) || !done && o.lost == 0 {
			return fmt.Errorf("%s, but of its tasks %d are done, %d cancelled and %d lost", r.tasks[i].State, o.done, o.cancelled, o.lost)
		}
		return nil
	}
	return r.endGate(i, e)
}

// endGate verifies that a gate was passed on green, or that no fix was left.
func (r *replay) endGate(i int, e *entry) error {
	if o := &r.tasks[i].offspring; o.lost+o.cancelled > 0 {
		if e.Kind == record.KindTaskDone {
			return errors.New("done, but not all tasks of its gate are")
		}
		return nil
	}
	green, err := past{r, e.seq}.checked(i)
	bad := product{}
	switch {
	case errors.As(err, &bad):
		if e.Kind == record.KindTaskDone {
			return fmt.Errorf("done, but its last check has no verdict: %w", err)
		}
		return nil
	case err != nil:
		return err
	case green != (e.Kind == record.KindTaskDone):
		if green {
			return errors.New("failed, but its last check is green")
		}
		if e.Kind == record.KindTaskDone {
			return errors.New("done, but its last check is red")
		}
	}
	if green {
		return nil
	}
	next, err := past{r, e.seq}.due(i, api.TaskGrowing)
	if err == nil && r.plan.CanGrow(next) == nil {
		return fmt.Errorf("failed after check %d, but its gate has another fix", next.Round-1)
	}
	return err
}

// endQuorum verifies that a quorum was known.
func (r *replay) endQuorum(i int, e *entry) error {
	q := r.plan.Tasks[i].Quorum
	approve, possible, err := past{r, e.seq}.votes(i)
	switch {
	case err != nil:
		return err
	case e.Kind == record.KindTaskDone && approve < q.Approve:
		return fmt.Errorf("done with %d approvals of %d", approve, q.Approve)
	case e.Kind != record.KindTaskDone && possible >= q.Approve:
		return fmt.Errorf("failed, but %d of its voters approve or can, and %d are enough", possible, q.Approve)
	}
	return nil
}

// cannot verifies that a task failed because what it should have grown from does not
// give a growth that fits, or its condition no answer. was is its state before.
func (r *replay) cannot(i int, e *entry, d record.TaskStep, was api.TaskState) error {
	if d.Reason != string(api.ReasonOutput) {
		return fmt.Errorf("failed for reason %.40q without a dispatch", d.Reason)
	}
	g, err := past{r, e.seq}.due(i, was)
	bad := product{}
	switch {
	case errors.As(err, &bad):
		return nil
	case err != nil && (plan.Grows(&r.plan.Tasks[i]) || was != api.TaskPending):
		return err
	case err != nil: // it has a condition at most
		if err := r.dependencies(i); err != nil {
			return err
		}
		if _, err := (past{r, e.seq}).holds(i); errors.As(err, &bad) {
			return nil
		}
		return errors.New("failed for its products, which it does not need")
	}
	if err := r.afford(g); err != nil {
		return err
	}
	if r.plan.CanGrow(g) == nil && !r.inputsRefused(i) {
		return errors.New("failed for products from which it can grow")
	}
	return nil
}

// inputsRefused reports whether the inputs of the tasks that grow from task i may be
// refused by the schema of its subagent, which is not in the bundle if none ran.
func (r *replay) inputsRefused(i int) bool {
	t := &r.plan.Tasks[i]
	inputs := []json.RawMessage{t.Input}
	if t.Gate != nil {
		inputs = append(inputs, t.Gate.Verify.Input, t.Gate.Fix.Input)
	}
	return t.ForEach != nil && slices.ContainsFunc(inputs, func(in json.RawMessage) bool { return bytes.Contains(in, []byte("{{each.")) })
}

// skipByCondition verifies that a task is skipped because its condition does not hold.
func (r *replay) skipByCondition(i int, n uint64) error {
	if err := r.dependencies(i); err != nil {
		return err
	}
	holds, err := past{r, n}.holds(i)
	if err == nil && holds {
		err = errors.New("skipped, but its condition holds")
	}
	r.tasks[i].byCondition = true
	return err
}

// hinders reports whether the end of task d keeps task i from starting.
func (r *replay) hinders(i int, d int32) bool {
	return !r.plan.Free(int32(i), d, r.end(int(d))) //nolint:gosec // G115: below api.MaxRunTasks
}

// skip verifies that a task is skipped because its condition does not hold, or because
// of another that settled without being done, and that it depends on, directly or not.
func (r *replay) skip(i int, n uint64, d record.TaskStep) error {
	cause, ok := r.plan.Index(api.TaskID(d.Cause))
	w := r.plan.Tasks[i].When
	if ok && w != nil && w.Task == api.TaskID(d.Cause) && r.tasks[cause].State == api.TaskDone {
		r.tasks[i].cause = cause
		return r.skipByCondition(i, n)
	}
	c := (*taskReplay)(nil)
	if ok {
		c = &r.tasks[cause]
	}
	if c == nil || !c.State.Settled() || c.State == api.TaskDone || c.State == api.TaskSkipped && (!c.byCondition || r.tasks[c.cause].State != api.TaskDone) {
		return fmt.Errorf("skipped because of task %.80q, which did not fail", d.Cause)
	}
	if err := r.meter.spend(unitCompare * len(r.plan.Deps(i))); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.plan.Deps(i), func(d int32) bool {
		return (int(d) == cause || r.tasks[d].State == api.TaskSkipped && r.tasks[d].cause == cause) && r.hinders(i, d)
	}) {
		return fmt.Errorf("skipped because of task %s, which it does not depend on", d.Cause)
	}
	r.tasks[i].cause, r.tasks[i].byCondition = cause, c.byCondition && c.State == api.TaskSkipped
	return nil
}
