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
func (s *taskStep) endGrowing() error {
	t := s.planned()
	o := &s.task().offspring
	switch {
	case s.e.Kind == record.KindTaskCancelled:
		if o.Open > 0 {
			return fmt.Errorf("cancelled while %s that grew from it had not ended", record.Plural(int64(o.Open), "task"))
		}
		if !s.r.ending(s.i) && (t.ForEach == nil || o.ForEachEnd() != api.TaskCancelled) {
			return errors.New("cancelled without a request")
		}
		return nil
	case t.Quorum != nil:
		return s.endQuorum()
	case o.Open > 0 && (t.ForEach != nil || o.Lost+o.Cancelled == 0): // a gate ends with the first of its tasks that is not done
		return fmt.Errorf("%s while %s that grew from it had not ended", s.task().State, record.Plural(int64(o.Open), "task"))
	case t.ForEach != nil:
		if end := o.ForEachEnd(); end == api.TaskCancelled || (end == api.TaskDone) != (s.e.Kind == record.KindTaskDone) {
			return fmt.Errorf("%s, but of its tasks %d are done, %d cancelled and %d lost", s.task().State, o.Done, o.Cancelled, o.Lost)
		}
		return nil
	}
	return s.endGate()
}

// endGate verifies that a gate was passed on green, or that no fix was left.
func (s *taskStep) endGate() error {
	if o := &s.task().offspring; o.Lost+o.Cancelled > 0 {
		if s.e.Kind == record.KindTaskDone {
			return errors.New("done, but not all tasks of its gate are")
		}
		return nil
	}
	green, err := s.past().checked(s.i)
	bad := product{}
	switch {
	case errors.As(err, &bad):
		if s.e.Kind == record.KindTaskDone {
			return fmt.Errorf("done, but its last check has no verdict: %w", err)
		}
		return nil
	case err != nil:
		return err
	case green != (s.e.Kind == record.KindTaskDone):
		if green {
			return errors.New("failed, but its last check is green")
		}
		if s.e.Kind == record.KindTaskDone {
			return errors.New("done, but its last check is red")
		}
	}
	if green {
		return nil
	}
	next, err := s.past().due(s.i, api.TaskGrowing)
	if err == nil && s.r.plan.CanGrow(next) == nil {
		return fmt.Errorf("failed after check %d, but its gate has another fix", next.Round-1)
	}
	return err
}

// endQuorum verifies that a quorum was known.
func (s *taskStep) endQuorum() error {
	q := s.planned().Quorum
	approve, possible, err := s.past().votes(s.i)
	switch {
	case err != nil:
		return err
	case s.e.Kind == record.KindTaskDone && approve < q.Approve:
		return fmt.Errorf("done with %d approvals of %d", approve, q.Approve)
	case s.e.Kind != record.KindTaskDone && possible >= q.Approve:
		return fmt.Errorf("failed, but %d of its voters approve or can, and %d are enough", possible, q.Approve)
	}
	return nil
}

// cannot verifies that a task failed because what it should have grown from does not
// give a growth that fits, or its condition no answer. was is its state before.
func (s *taskStep) cannot() error {
	if s.d.Reason != string(api.ReasonOutput) {
		return fmt.Errorf("failed for reason %.40q without a dispatch", s.d.Reason)
	}
	g, err := s.past().due(s.i, s.was.State)
	bad := product{}
	switch {
	case errors.As(err, &bad):
		return nil
	case err != nil && (plan.Grows(s.planned()) || s.was.State != api.TaskPending):
		return err
	case err != nil: // it has a condition at most
		if err := s.r.dependencies(s.i); err != nil {
			return err
		}
		if _, err := s.past().holds(s.i); errors.As(err, &bad) {
			return nil
		}
		return errors.New("failed for its products, which it does not need")
	}
	if err := s.r.afford(g); err != nil {
		return err
	}
	if s.r.plan.CanGrow(g) == nil && !s.r.inputsRefused(s.i) {
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
func (s *taskStep) skipByCondition() error {
	if err := s.r.dependencies(s.i); err != nil {
		return err
	}
	holds, err := s.past().holds(s.i)
	if err == nil && holds {
		err = errors.New("skipped, but its condition holds")
	}
	s.task().byCondition = true
	return err
}

// hinders reports whether the end of task d keeps task i from starting.
func (r *replay) hinders(i int, d int32) bool {
	return !r.plan.Free(int32(i), d, r.end(int(d))) //nolint:gosec // G115: below api.MaxRunTasks
}

// skip verifies that a task is skipped because its condition does not hold, or because
// of another that settled without being done, and that it depends on, directly or not.
func (s *taskStep) skip() error {
	cause, ok := s.r.plan.Index(api.TaskID(s.d.Cause))
	w := s.planned().When
	if ok && w != nil && w.Task == api.TaskID(s.d.Cause) && s.r.tasks[cause].State == api.TaskDone {
		s.task().cause = cause
		return s.skipByCondition()
	}
	c := (*taskReplay)(nil)
	if ok {
		c = &s.r.tasks[cause]
	}
	if c == nil || !c.State.Settled() || c.State == api.TaskDone || c.State == api.TaskSkipped && (!c.byCondition || s.r.tasks[c.cause].State != api.TaskDone) {
		return fmt.Errorf("skipped because of task %.80q, which did not fail", s.d.Cause)
	}
	if err := s.r.meter.spend(unitCompare * len(s.r.plan.Deps(s.i))); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.r.plan.Deps(s.i), func(d int32) bool {
		return (int(d) == cause || s.r.tasks[d].State == api.TaskSkipped && s.r.tasks[d].cause == cause) && s.r.hinders(s.i, d)
	}) {
		return fmt.Errorf("skipped because of task %s, which it does not depend on", s.d.Cause)
	}
	s.task().cause, s.task().byCondition = cause, c.byCondition && c.State == api.TaskSkipped
	return nil
}
