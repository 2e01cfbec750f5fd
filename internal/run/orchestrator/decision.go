package orchestrator

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// decision is what happens to a task: it ends, or tasks grow from it. The zero value is
// that it waits. The functions that decide only read the run; the engine carries out.
type decision struct {
	end  record.TaskEvent
	step record.TaskStep
	grow *plan.Growth
}

func isDone() decision { return decision{end: record.EventDone} }

func fails(reason api.Reason, message string) decision {
	return decision{end: record.EventFail, step: record.TaskStep{Reason: string(reason), Message: message}}
}

func cancelled(by api.Actor, why string) decision {
	return decision{end: record.EventCancel, step: record.TaskStep{By: string(by), Message: why}}
}

// cannotGrow decides about a task whose products are not what its growth wants.
func cannotGrow(err error) decision { return fails(api.ReasonOutput, clipped(err)) }

// afterRefusal decides about a task whose dispatch could not be submitted or resumed.
func afterRefusal(err error) decision {
	message := err.Error()
	if bad, ok := errors.AsType[*api.Error](err); ok {
		message = bad.Message
	}
	switch api.CodeOf(err) { //nolint:exhaustive // the others are transient
	case api.CodeDenied:
		return decision{end: record.EventDeny, step: record.TaskStep{Reason: string(api.ReasonDenied), Message: message}}
	case api.CodeIntegrity, api.CodeConflict:
		return fails(api.ReasonIntegrity, message)
	}
	return fails(api.ReasonContext, message)
}

// afterDispatch decides about a task whose dispatch has finished: its gate may begin.
func afterDispatch(r *run, i int32) decision {
	switch t := &r.tasks[i]; {
	case r.plan.Tasks[i].Gate == nil:
		return isDone()
	case t.cancelBy != "":
		return cancelled(t.cancelBy, t.cancelWhy)
	case r.cancelBy != "":
		return cancelled(r.cancelBy, "")
	}
	return decision{grow: &plan.Growth{Cause: plan.CauseGate, Task: r.plan.Tasks[i].ID, Round: 1}}
}

// afterVerdict decides about a task by the verdict of its gate: the finding may be fixed.
func afterVerdict(r *run, i int32, l looked) decision {
	p := &r.plan.Tasks[i]
	of := r.plan.Children(int(i))
	round := len(of)/2 + 1
	switch {
	case of[len(of)-1] != l.child: // an earlier one
		return decision{}
	case l.refuse != nil:
		return fails(api.ReasonVerify, clipped(l.refuse))
	case l.bad != nil:
		return cannotGrow(l.bad)
	case l.yes:
		return isDone()
	case round > plan.Fixes(p.Gate):
		return fails(api.ReasonVerify, fmt.Sprintf("the verdict of task %s is %s, and no fix is left", r.plan.Tasks[l.child].ID, api.VerdictRed))
	}
	return decision{grow: &plan.Growth{Cause: plan.CauseGate, Task: p.ID, Round: round + 1}}
}

// afterItem decides about a task with a for_each when last, one of its tasks, has ended.
func afterItem(r *run, i, last int32) decision {
	c, of := &r.tasks[i].children, r.plan.Children(int(i))
	switch c.ForEachEnd() { //nolint:exhaustive // the other states are not an end
	case api.TaskGrowing:
		return decision{}
	case api.TaskFailed:
		for _, n := range of {
			if s := r.tasks[n].state; s != api.TaskDone && s != api.TaskCancelled {
				return failsBecause(r, n, fmt.Sprintf("%d of %d tasks are not done: %%s", c.Lost+c.Cancelled, len(of)))
			}
		}
		return fails("", "")
	case api.TaskCancelled:
		by := r.tasks[last].cancelBy
		if by == "" {
			by = api.Service
		}
		return cancelled(by, fmt.Sprintf("%d of %d tasks were cancelled", c.Cancelled, len(of)))
	}
	return isDone()
}

// failsBecause decides about a task that fails because of a child.
func failsBecause(r *run, child int32, format string) decision {
	t := &r.tasks[child]
	reason := t.reason
	if reason == "" {
		reason = api.ReasonContext
	}
	return fails(reason, fmt.Sprintf(format, fmt.Sprintf("task %s is %s", r.plan.Tasks[child].ID, t.state)))
}

// afterVote decides about a quorum as soon as its outcome is known.
func afterVote(r *run, i int32) decision {
	t, p := &r.tasks[i], &r.plan.Tasks[i]
	of := r.plan.Children(int(i))
	need, c := p.Quorum.Approve, t.children
	switch {
	case c.approve >= need:
		return isDone()
	case len(of)-c.reject >= need:
		return decision{}
	}
	message := fmt.Sprintf("%d of %d voters do not approve, %d have to", c.reject, len(of), need)
	if t.faulty != "" {
		message += "; " + t.faulty
	}
	return fails(api.ReasonVerify, message)
}

// afterGrown decides about a cancelled task: it ends once all that grew from it have.
func afterGrown(r *run, i int32) decision {
	t := &r.tasks[i]
	switch {
	case t.children.Open > 0 || t.state != api.TaskGrowing:
		return decision{}
	case t.cancelBy != "":
		return cancelled(t.cancelBy, t.cancelWhy)
	}
	return cancelled(r.cancelBy, "")
}

// backoff returns how long the next attempt of a task waits: a random time within
// plan.Delay. It is a function of the seed, the run, the task and the attempt.
func backoff(seed uint64, r *run, i int32) time.Duration {
	low, high := plan.Delay(&r.plan.Tasks[i], int(r.tasks[i].attempt))
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.doc.Nonce)) // a hash never fails
	_, _ = h.Write(strconv.AppendInt(nil, int64(i), 10))
	source := rand.New(rand.NewPCG(seed^h.Sum64(), uint64(r.tasks[i].attempt))) //nolint:gosec // G115, G404: no secret, and reproducible on purpose
	return low + time.Duration(source.Int64N(int64(high-low)+1))
}
