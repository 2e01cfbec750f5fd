package evidence

import (
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// taskStep is one step of a task, which the table of transitions allows: it is compared
// with the plan, with the dispatch of the task and with the products of others.
type taskStep struct {
	r   *replay
	i   int // of the task, in the plan
	e   *entry
	was record.TaskChain // the task before the step
	d   record.TaskStep  // of e, if its kind has one
}

// task returns the task after the step.
func (s *taskStep) task() *taskReplay { return &s.r.tasks[s.i] }

// planned returns the task as the plan has it.
func (s *taskStep) planned() *api.PlanTask { return &s.r.plan.Tasks[s.i] }

// past returns what had happened before the step.
func (s *taskStep) past() past { return past{s.r, s.e.seq} }

// check compares a step with all else. Starts are apart: see start.
func (s *taskStep) check() error {
	t, p := s.task(), s.planned()
	h := s.r.histories[t.Dispatch]
	if p.Approval != nil && (s.was.State == api.TaskWaiting || s.e.Kind == record.KindTaskWaiting) {
		return s.approval()
	}
	if s.d.Approval || s.was.People && s.was.State == api.TaskWaiting {
		return s.writing()
	}
	finished := func() bool { return s.past().finished(s.i) == nil }
	switch {
	case h != nil && h.last() != nil && !t.Admitted:
		return fmt.Errorf("its dispatch %s was not admitted for it", t.Dispatch)
	case s.e.Kind == record.KindRunGrown:
		return s.grow()
	case s.e.Kind == record.KindTaskSkipped:
		return s.skip()
	case s.was.State == api.TaskGrowing:
		return s.endGrowing()
	case s.e.Kind == record.KindTaskCancelled && s.was.State == api.TaskRunning && p.Gate != nil && finished() && s.r.ending(s.i):
		return nil // before its gate
	case s.e.Kind == record.KindTaskFailed && (s.was.State == api.TaskPending || s.d.Reason == string(api.ReasonOutput) && finished()):
		return s.cannot()
	case s.e.Kind == record.KindTaskWaiting:
		return s.wait()
	case s.e.Kind == record.KindTaskDone:
		if h == nil || h.finished(s.e.seq) == nil {
			return fmt.Errorf("done, but its dispatch %s had not finished", t.Dispatch)
		}
		if p.Gate != nil {
			return errors.New("done, but its gate has not checked it")
		}
		return nil
	}
	return s.ended()
}

// start verifies the start of a task by the plan. wrong is why the table of
// transitions refuses it.
func (s *taskStep) start(wrong error) error {
	t := s.task()
	d := detail[record.TaskStart](s.e)
	switch {
	case wrong != nil:
	case s.planned().Approval != nil || plan.Grows(s.planned()):
		wrong = errors.New("started, but it has no dispatch of its own")
	case s.was.State == api.TaskPending:
		wrong = s.past().begins(s.i)
	case !t.Resumed && !s.was.People && t.begun[s.e.Dispatch]:
		wrong = errors.New("the same dispatch again")
	}
	switch {
	case wrong != nil:
	case s.r.paused:
		wrong = errors.New("started while its run was paused")
	case s.r.ending(s.i):
		wrong = errors.New("started after its cancellation was requested")
	}
	if taken := s.r.leases.take(s.planned().ID, s.r.locksOf(s.i), d); wrong == nil {
		wrong = taken
	}
	if t.begun == nil {
		t.begun = map[api.DispatchID]bool{}
	}
	t.starts, t.begun[s.e.Dispatch] = append(t.starts, s.e), true
	return wrong
}

// wait verifies that a task waits for an answer, or for its next attempt.
func (s *taskStep) wait() error {
	t, task, h := s.task(), s.planned(), s.r.histories[s.task().Dispatch]
	if h == nil || h.last() == nil {
		return errors.New("waiting without a dispatch")
	}
	if s.d.Until == "" {
		if a := h.at(s.e.seq); a == nil || a.end == nil || a.end.seq >= s.e.seq || a.end.Kind != record.KindDispatchNeedsInput {
			return errors.New("waiting for an answer, but its dispatch has no question")
		}
		return nil
	}
	final := h.last().final()
	end := detail[record.DispatchEnd](final)
	switch {
	case s.r.ending(s.i):
		return errors.New("retried after its cancellation was requested")
	case final == nil || final.Kind != record.KindDispatchFailed || final.seq >= s.e.seq:
		return errors.New("retried, but its dispatch had not failed")
	case t.Attempt >= plan.Attempts(task):
		return fmt.Errorf("retried after attempt %d of %d", t.Attempt, plan.Attempts(task))
	case s.d.Reason != end.Reason || !plan.Retries(task, api.Reason(s.d.Reason)):
		return fmt.Errorf("retried for reason %.40q, which the plan does not list or its dispatch does not have", s.d.Reason)
	}
	return nil
}
