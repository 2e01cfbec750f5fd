package plan

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// End is how a task ended, for the tasks that depend on it.
type End struct {
	State       api.TaskState
	ByCondition bool // it was skipped because a condition does not hold
}

// Satisfied reports whether the end of task d lets task i start: it is done, or task i
// accepts that it is not.
func (p *Plan) Satisfied(i, d int32, end End) bool {
	t := &p.Tasks[i]
	switch {
	case end.State == api.TaskDone:
		return true
	case end.State == api.TaskSkipped && end.ByCondition:
		return t.After == api.AfterAny && !decides(t, p.Tasks[d].ID)
	case end.State != api.TaskFailed || p.Tasks[d].ForEach == nil:
		return false
	}
	id, some := p.Tasks[d].ID, false
	for _, n := range t.Needs {
		if n.From == id {
			if !n.AllowFailed {
				return false
			}
			some = true
		}
	}
	return some && !slices.Contains(t.DependsOn, id)
}

// decides reports whether a task is for a result of another, which decides whether it
// runs, or how it grows: without that there is nothing for it to do.
func decides(t *api.PlanTask, by api.TaskID) bool {
	return t.When != nil && t.When.Task == by || t.ForEach != nil && t.ForEach.From == by
}

// EndOf returns the end of a task for Satisfied; end is as of Counts.
func (p *Plan) EndOf(i int, end func(i int) (state api.TaskState, cause int)) End {
	state, cause := end(i)
	return End{State: state, ByCondition: state == api.TaskSkipped && passed(len(p.Tasks), cause, end)}
}

// Free reports whether task d no longer keeps task i from starting. What a task depends
// on has ended when others grow from it, which need not wait for that any more.
func (p *Plan) Free(i, d int32, end End) bool {
	if p.parent[i] >= 0 && p.parent[d] != p.parent[i] {
		return end.State.Settled()
	}
	return p.Satisfied(i, d, end)
}
