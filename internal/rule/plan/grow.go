package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Cause says why a run grew. The set is closed.
type Cause string

// The causes.
const (
	CauseForEach Cause = "for_each" // the items of a list became known
	CauseGate    Cause = "gate"     // a task that has a gate is done, or a verdict is red
	CauseQuorum  Cause = "quorum"   // what its voters need is done
	CauseAppend  Cause = "append"   // a caller added tasks
)

// Growth is one growth of a run. Together with the plan, and the growths before it, it
// gives the tasks that are added: the engine and the verifier derive them by Grow.
type Growth struct {
	Cause Cause          `json:"cause"`
	Task  api.TaskID     `json:"task,omitempty"`  // that grows; absent for CauseAppend
	Round int            `json:"round,omitempty"` // of a gate, from 1: it adds gate N, and fix N-1 before it
	Items []Item         `json:"items,omitempty"` // of a for_each
	Tasks []api.PlanTask `json:"tasks,omitempty"` // of an append
}

// Canonical is the growth as canonical JSON, which ReadGrowth reads.
func (g *Growth) Canonical() (json.RawMessage, error) { return canon.Marshal(g) }

// ReadGrowth reads a growth that Canonical wrote.
func ReadGrowth(raw []byte) (g Growth, err error) {
	if err := canon.DecodeExact(raw, &g); err != nil {
		return g, fmt.Errorf("growth: %w", err)
	}
	return g, nil
}

// Grow adds the tasks of a growth, and returns the index of the first. After an error,
// which says what cannot be added, nothing has changed. Unlike all other methods it
// changes the plan; Canonical and Digest remain those of the submitted one.
func (p *Plan) Grow(g Growth) (int, error) {
	first := len(p.Tasks)
	s, err := sproutsOf(p, g)
	if err != nil {
		return 0, err
	}
	p.edges, p.filled = p.edges+s.edges, p.filled+s.filled
	for k := range s.tasks {
		at := int32(first + k) //nolint:gosec // G115: below MaxRunTasks
		p.index[s.tasks[k].ID] = first + k
		p.Tasks = append(p.Tasks, s.tasks[k])
		p.parent = append(p.parent, s.parent)
		p.deps, p.dependents = append(p.deps, s.deps[k]), append(p.dependents, nil)
		for _, d := range s.deps[k] {
			p.dependents[d] = append(p.dependents[d], at)
		}
		if s.parent >= 0 {
			p.children[s.parent] = append(p.children[s.parent], at)
		}
		p.order = append(p.order, at)
	}
	return first, nil
}

// CanGrow returns the error that Grow would, and changes nothing.
func (p *Plan) CanGrow(g Growth) error {
	_, err := sproutsOf(p, g)
	return err
}

// sprouts are the tasks of a growth that fits the run.
type sprouts struct {
	parent        int32
	tasks         []api.PlanTask
	deps          [][]int32
	edges, filled int
}

func sproutsOf(p *Plan, g Growth) (s sprouts, err error) {
	s.parent = -1
	if g.Cause != CauseAppend {
		i, ok := p.Index(g.Task)
		if !ok {
			return s, api.Errorf(api.CodeInvalid, "no task %.150q", g.Task)
		}
		s.parent = int32(i) //nolint:gosec // G115: below MaxRunTasks
	}
	if s.tasks, s.filled, err = offspring(p, g, s.parent); err != nil {
		return s, err
	}
	if n := len(p.Tasks) + len(s.tasks); n > mostTasks(&p.Plan) {
		return s, api.Errorf(api.CodeTooLarge, "the run would have %d tasks: its limit is %d", n, mostTasks(&p.Plan))
	}
	if s.deps, s.edges, err = depsOf(p, s.tasks, s.parent); err != nil {
		return s, err
	}
	if p.edges+s.edges > api.MaxRunEdges {
		return s, api.Errorf(api.CodeTooLarge, "the run would have %d dependencies: at most %d", p.edges+s.edges, api.MaxRunEdges)
	}
	return s, nil
}

// mostTasks is how many tasks the run may have.
func mostTasks(p *api.Plan) int {
	if p.Limits.Tasks > 0 {
		return p.Limits.Tasks
	}
	return api.MaxRunTasks
}

// atLeast is how many tasks the run of a plan has at least for one of its tasks, if all
// of them start.
func atLeast(t *api.PlanTask) int {
	switch {
	case t.When != nil:
		return 1
	case t.ForEach != nil:
		return 1 + len(t.ForEach.Values)
	case t.Gate != nil:
		return 2
	case t.Quorum != nil:
		return 1 + len(t.Quorum.Of)
	}
	return 1
}

// depsOf returns the sorted dependencies of tasks that are added, and their number.
// Each is on a task of the run, or on one before it that is added too.
func depsOf(p *Plan, tasks []api.PlanTask, parent int32) (all [][]int32, n int, err error) {
	all = make([][]int32, len(tasks))
	added := make(map[api.TaskID]int32, len(tasks))
	for k := range tasks {
		t := &tasks[k]
		_, twice := added[t.ID]
		if _, taken := p.index[t.ID]; taken || twice {
			return nil, 0, api.Errorf(api.CodeInvalid, "the run has a task %q already", t.ID)
		}
		for _, id := range Dependencies(t) {
			on, ok := added[id]
			if i, declared := p.index[id]; declared {
				on, ok = int32(i), true //nolint:gosec // G115: below MaxRunTasks
			}
			switch {
			case !ok:
				return nil, 0, api.Errorf(api.CodeInvalid, "task %q: no task %q", t.ID, id)
			case on != parent: // what it takes of the task that it grew from is there
				all[k] = append(all[k], on)
			}
		}
		slices.Sort(all[k])
		n += len(all[k])
		added[t.ID] = int32(len(p.Tasks) + k) //nolint:gosec // G115: likewise
	}
	return all, n, nil
}

// Dependencies are the distinct tasks that a task depends on, sorted.
func Dependencies(t *api.PlanTask) []api.TaskID {
	set := map[api.TaskID]bool{}
	for _, d := range t.DependsOn {
		set[d] = true
	}
	for _, n := range t.Needs {
		set[n.From] = true
	}
	if t.When != nil {
		set[t.When.Task] = true
	}
	if t.ForEach != nil && t.ForEach.From != "" {
		set[t.ForEach.From] = true
	}
	if t.Approval != nil {
		for _, s := range t.Approval.Show {
			set[s] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// offspring returns the tasks of a growth, and the bytes of the inputs that are made.
func offspring(p *Plan, g Growth, parent int32) ([]api.PlanTask, int, error) {
	if g.Cause == CauseAppend {
		tasks, err := appended(p, g)
		return tasks, 0, err
	}
	t, grown := &p.Tasks[parent], len(p.children[parent])
	switch {
	case len(g.Tasks) > 0 || g.Cause != CauseForEach && len(g.Items) > 0 || g.Cause != CauseGate && g.Round != 0:
	case g.Cause == CauseForEach && t.ForEach != nil && grown == 0:
		return instances(t, g.Items, api.MaxRunInput-p.filled)
	case g.Cause == CauseGate && t.Gate != nil && t.ForEach == nil && g.Round >= 1 && g.Round <= Fixes(t.Gate)+1 && grown == max(0, 2*g.Round-3):
		return gateRound(t, g.Round), 0, nil
	case g.Cause == CauseQuorum && t.Quorum != nil && grown == 0:
		return voters(t), 0, nil
	}
	return nil, 0, api.Errorf(api.CodeInvalid, "task %q does not grow by %.20q now", t.ID, g.Cause)
}

// Parent is the task that task i grew from; -1 for one that was declared or appended.
func (p *Plan) Parent(i int) int32 { return p.parent[i] }

// Children are the tasks that grew from task i, in order. The caller must not change
// them.
func (p *Plan) Children(i int) []int32 { return p.children[int32(i)] } //nolint:gosec // G115: below MaxRunTasks

// ItemName is the name of the item that task i grew for from a for_each.
func (p *Plan) ItemName(i int32) string {
	id, parent := p.Tasks[i].ID, p.Tasks[p.parent[i]].ID
	return string(id[len(parent)+1 : len(id)-1])
}

// ItemFrom is the task whose products gave the item that task i grew for; -1 if none did.
func (p *Plan) ItemFrom(i int) int {
	up := p.parent[i]
	if up < 0 || p.Tasks[up].ForEach == nil || p.Tasks[up].ForEach.From == "" {
		return -1
	}
	return p.index[p.Tasks[up].ForEach.From]
}

// Grows reports whether a task grows before it can start: it has no dispatch of its own.
func Grows(t *api.PlanTask) bool { return t.ForEach != nil || t.Quorum != nil }
