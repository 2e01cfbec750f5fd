package plan

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// ParseAppend reads tasks that are to be appended to a run from a JSON list, with the
// checks of a plan. They may depend on each other and on tasks that were declared or
// appended before. A task that names no source starts from that of the run: the source
// that every task of it has, so that it is the plan's. The problems have paths as in a
// plan, such as $.tasks[0].id.
func (p *Plan) ParseAppend(raw []byte) (Growth, []api.Problem) {
	var found list
	doc, err := canon.Marshal(map[string]json.RawMessage{"tasks": raw})
	if err != nil || len(doc) > api.MaxPlan {
		found.sense("$.tasks", "not valid JSON, or more than %d bytes", api.MaxPlan)
		return Growth{}, found.problems()
	}
	d := read(doc, nil, &found)
	g := check(d, p, &found)
	source, same := sourceOf(p.Tasks[:p.declared])
	for i := range d.plan.Tasks {
		t := &d.plan.Tasks[i]
		if t.Source == nil && t.Approval == nil && !same {
			found.sense(task(i), "name its source: the tasks of the run start from different ones")
		}
	}
	if found.count > 0 {
		return Growth{}, NameTasks(found.problems(), d.plan.Tasks)
	}
	d.plan.Source = source
	inherit(&d.plan)
	out := Growth{Cause: CauseAppend, Tasks: make([]api.PlanTask, 0, len(d.plan.Tasks))}
	for _, i := range g.order { // each after those that it depends on
		dropDefaults(&d.plan.Tasks[i])
		out.Tasks = append(out.Tasks, d.plan.Tasks[i])
	}
	return out, nil
}

// sourceOf is the source that every task starts from, nil if there are tasks
// without one. False: they start from different ones.
func sourceOf(tasks []api.PlanTask) (source *api.SourceRequest, same bool) {
	same = true
	for i := range tasks {
		t := &tasks[i]
		switch {
		case t.Approval != nil:
		case t.Source == nil:
			return nil, true
		case source != nil && *source != *t.Source:
			same = false
		default:
			source = t.Source
		}
	}
	return source, same
}

// appended returns the tasks of an append, which has passed ParseAppend.
func appended(p *Plan, g Growth) ([]api.PlanTask, error) {
	raw, err := canon.Marshal(g.Tasks)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	again, problems := p.ParseAppend(raw)
	if problems != nil {
		return nil, Error(problems)
	}
	a, errA := g.Canonical()
	b, errB := again.Canonical()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		return nil, api.Errorf(api.CodeInvalid, "the appended tasks are not in canonical form")
	}
	return slices.Clip(again.Tasks), nil
}
