package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// heir is a retry as the reference sees it: what it has of the earlier run.
type heir struct {
	run, old *replayRun
	again    map[api.TaskID]bool // what runs again, and not only because of another task
	kept     map[api.TaskID]bool // as it was: done, or skipped by a condition
}

// inherit gives a retry the tasks that grew in the earlier run or were appended to it, and
// takes over what is done there and nothing changes. It returns how many.
func (m *replay) inherit(r *replayRun, from []string) (taken int64) {
	old := m.runs[r.retryOf]
	if old == nil {
		return 0
	}
	h := heir{run: r, old: old, again: map[api.TaskID]bool{}, kept: map[api.TaskID]bool{}}
	regrown := map[api.TaskID]bool{} // what grows again
	for _, id := range from {
		t := old.tasks[api.TaskID(id)]
		if t == nil {
			return 0
		}
		for t.parent != nil && t.parent.plan.ForEach == nil {
			t = t.parent
		}
		h.again[t.plan.ID], regrown[t.plan.ID] = true, true
		if t.parent != nil {
			h.again[t.parent.plan.ID] = true
		}
	}
	for _, p := range r.plan.Tasks {
		if string(p.Input) != string(old.tasks[p.ID].plan.Input) {
			h.again[p.ID], regrown[p.ID] = true, true
		}
	}
	grew := slices.Clone(old.plan.Tasks[old.declared:])
	r.plan.Tasks = slices.Clip(r.plan.Tasks)
	for _, p := range grew {
		was := old.tasks[p.ID]
		if was.parent != nil && !h.keepsGrowth(was.parent, regrown) {
			continue
		}
		one := &replayTask{run: r, plan: p, state: api.TaskPending, freed: r.at}
		if was.parent != nil {
			one.parent = r.tasks[was.parent.plan.ID]
			one.parent.children = append(one.parent.children, one)
		}
		r.plan.Tasks, r.tasks[p.ID] = append(r.plan.Tasks, p), one
	}
	for _, p := range r.plan.Tasks {
		if was := old.tasks[p.ID]; h.keeps(p.ID) && was.state == api.TaskDone {
			t := r.tasks[p.ID]
			t.state, t.taken, t.dispatch = api.TaskDone, true, was.dispatch
			taken++
		}
	}
	for _, t := range r.tasks {
		if t.plan.ForEach != nil && len(t.children) > 0 && t.state == api.TaskPending {
			t.state = api.TaskGrowing
		}
	}
	return taken
}

// keeps reports whether a task is as it was in the earlier run.
func (h *heir) keeps(id api.TaskID) bool {
	if kept, ok := h.kept[id]; ok {
		return kept
	}
	was := h.old.tasks[id]
	kept := !h.again[id] && (was.state == api.TaskDone && !byPeople(was.plan) || was.byCondition()) && h.keepsUps(was)
	h.kept[id] = kept
	return kept
}

func (h *heir) keepsUps(t *replayTask) bool {
	return !slices.ContainsFunc(upstream(t.plan), func(up api.TaskID) bool { return !h.keeps(up) })
}

// keepsGrowth reports whether the run begins with what grew from a task.
func (h *heir) keepsGrowth(t *replayTask, regrown map[api.TaskID]bool) bool {
	switch {
	case t.parent != nil && !h.keepsGrowth(t.parent, regrown), t.plan.Quorum != nil:
		return false
	case t.plan.ForEach != nil:
		return !regrown[t.plan.ID] && h.keepsUps(t)
	}
	return h.keeps(t.plan.ID)
}

// byPeople reports whether people decide a task: they did so for one run.
func byPeople(t api.PlanTask) bool {
	return t.Approval != nil || t.Quorum != nil && slices.ContainsFunc(t.Quorum.Of, func(of string) bool { _, ok := person(api.Principal(of)); return ok })
}

// appendTasks appends tasks to a run.
func (m *machine) appendTasks(rt *rapid.T) {
	r := m.pick(rt)
	by, _ := m.steer(rt, r)
	steers := rapid.IntRange(0, 4).Draw(rt, "steers") > 0
	m.adds++
	var tasks []api.PlanTask
	for i := range rapid.IntRange(1, 3).Draw(rt, "tasks") {
		t := api.PlanTask{ID: api.TaskID(fmt.Sprintf("a%d-%d", m.adds, i)), Subagent: rapid.SampledFrom([]api.Name{work, work, work, quick, denied, fickle, before}).Draw(rt, "subagent")}
		if up := rapid.SampledFrom(r.plan.Tasks).Draw(rt, "up"); up.ID != "" && rapid.Bool().Draw(rt, "depends") && r.tasks[up.ID].parent == nil {
			t.DependsOn = append(t.DependsOn, up.ID)
		}
		switch rapid.IntRange(0, 5).Draw(rt, "construct") {
		case 0:
			t.ForEach = &api.ForEach{Values: []json.RawMessage{json.RawMessage(`"x"`), json.RawMessage(`"y"`)}}
		case 1:
			t.Gate = &api.Gate{Verify: api.GateStep{Subagent: checker}, Fix: api.GateStep{Subagent: fixer}}
		case 2:
			t = api.PlanTask{ID: t.ID, DependsOn: t.DependsOn, Approval: approved(rt)}
		}
		if i > 0 && rapid.Bool().Draw(rt, "chain") {
			t.DependsOn = append(t.DependsOn, tasks[i-1].ID)
		}
		tasks = append(tasks, t)
	}
	m.begin("append")
	raw, err := json.Marshal(tasks)
	m.must(err)
	m.log.adding = tasks
	may := by.TokenValid == nil && by.Principal == r.by && steers && !r.ending(m.config.Now())
	_, err = m.o.Append(context.Background(), by, steers, r.id, api.RunAppend{Tasks: raw, Key: string(tasks[0].ID)})
	m.expect(func() []string {
		if api.CodeOf(err) == api.CodeConflict && m.settledFirst(r) {
			may = false
		}
		if now := m.log.runs[r.id]; (err == nil) != may || may != (now.tasks[tasks[0].ID] != nil) {
			return []string{fmt.Sprintf("%s appends %d tasks to run %s, and may %v: %v", by.Principal, len(tasks), r.id, may, err)}
		}
		return nil
	})
}

// appended takes that a caller added tasks.
func (m *replay) appended(c *audit.Committed, r *replayRun) {
	d, _ := c.Entry.Detail.(record.RunGrowth)
	if d.Tasks != int64(len(m.adding)) || d.Total != int64(len(r.plan.Tasks)+len(m.adding)) || c.Entry.Principal != r.by || r.ending(c.Entry.At) {
		m.object(c.Seq, "%s appends %d tasks to run %s, to %d", c.Entry.Principal, d.Tasks, r.id, d.Total)
	}
	r.plan.Tasks = slices.Clip(r.plan.Tasks)
	for _, p := range m.adding {
		r.tasks[p.ID] = &replayTask{run: r, plan: p, state: api.TaskPending, freed: c.Entry.At}
		r.plan.Tasks = append(r.plan.Tasks, p)
	}
	m.adding = nil
}
