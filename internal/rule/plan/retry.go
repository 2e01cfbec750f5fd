package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// MaxChanges bounds the tasks to run again and the changes of a retry: the log
// lists all of them.
const MaxChanges = 30

// Edited returns the plan for a retry under another id: every task that starts
// from one of the sources starts from that commit of it, and each input replaces
// that of its task. Both must exist in the plan.
func (p *Plan) Edited(id api.RunID, sources []api.SourceRequest, inputs map[api.TaskID]json.RawMessage) (*Plan, error) {
	if len(sources) == 0 && len(inputs) == 0 {
		return p.WithID(id)
	}
	a := p.Plan
	a.ID, a.Tasks = id, slices.Clone(a.Tasks[:p.declared])
	for _, s := range sources {
		used := false
		for i := range a.Tasks {
			if t := &a.Tasks[i]; t.Source != nil && t.Source.Name == s.Name {
				t.Source, used = &s, true
			}
		}
		if !used {
			return nil, api.Errorf(api.CodeInvalid, "source %q: no task of run %s starts from it", s.Name, p.ID)
		}
	}
	for task, input := range inputs {
		i, ok := p.Index(task)
		if !ok {
			return nil, NoTask(p.ID, task)
		}
		if i >= p.declared {
			return nil, api.Errorf(api.CodeInvalid, "task %q of run %s is not in its plan: only inputs in the plan can change", task, p.ID)
		}
		a.Tasks[i].Input = input
	}
	raw, err := canon.Marshal(a)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	edited, problems := Parse(raw)
	if len(problems) > 0 {
		return nil, Error(problems)
	}
	return edited, nil
}

// NoTask refuses a request about a task that a run does not have.
func NoTask(id api.RunID, task api.TaskID) *api.Error {
	return api.Errorf(api.CodeNotFound, "run %s has no task %q", id, task).WithHint("see: bailiwick run show %s", id)
}

// Retry is what a retry of a run does, derived from both plans: the service logs
// it, and the verifier derives it again.
type Retry struct {
	Taken   []bool   // by index, of the plan with Growths: the task is taken over
	Changed []string // how the plan differs from the earlier one
	Growths []Growth // of the earlier run, that the new one begins with
}

// RetryOf compares a plan with that of the settled run that it retries, and adds those
// growths to it that the run begins with. It takes over each task that is done there,
// has the same definition, is not in from and depends only on tasks that are taken
// over, or were skipped by a condition for the same reason. The plans may differ in
// their ids, in the commits of sources and in inputs.
//
// Appended tasks are part of the run. The tasks of a for_each are, if it has the same
// definition and all that it depends on is taken over: then only those run again that
// are not done. Those of a gate are if it is green; else the task starts over. What
// people approved is not taken over: they approved it for the earlier run.
//
// growths are all of the earlier run, in order, and old has them.
func (p *Plan) RetryOf(old *Plan, growths []Growth, end func(i int) End, from []api.TaskID) (Retry, error) {
	r := Retry{Taken: make([]bool, p.declared)}
	if p.Queue != old.Queue || p.Limits != old.Limits || !maps.Equal(p.Labels, old.Labels) || p.declared != old.declared {
		return r, fmt.Errorf("it retries run %s with another plan", old.ID)
	}
	k := &retrying{
		plan: p, old: old, end: end, again: map[api.TaskID]bool{}, partly: map[api.TaskID]bool{}, commits: map[api.SourceRequest]string{},
		unchanged: make([]bool, p.declared), kept: make([]bool, p.declared),
	}
	if err := k.runAgain(from); err != nil {
		return r, err
	}
	said := map[string]bool{}
	for _, i := range p.order {
		changes, err := k.changes(int(i))
		if err != nil {
			return r, err
		}
		for _, c := range changes {
			if !said[c] {
				said[c], r.Changed = true, append(r.Changed, c)
			}
		}
		k.unchanged[i] = len(changes) == 0
		r.Taken[i] = k.take(int(i))
	}
	for _, g := range growths {
		if !k.begins(g) {
			continue
		}
		g, changed := k.moved(g)
		first, err := p.Grow(g)
		if err != nil {
			return r, fmt.Errorf("it retries run %s: %w", old.ID, err)
		}
		r.Growths = append(r.Growths, g)
		for i := first; i < len(p.Tasks); i++ {
			k.unchanged, k.kept = append(k.unchanged, !changed[p.Tasks[i].ID]), append(k.kept, false)
			r.Taken = append(r.Taken, k.take(i))
		}
	}
	slices.Sort(r.Changed)
	if n := len(r.Changed) + len(from); n > MaxChanges {
		return r, api.Errorf(api.CodeTooLarge, "the retry of run %s names %d changes and tasks to run again, more than %d", old.ID, n, MaxChanges)
	}
	return r, nil
}

// retrying is a RetryOf under way.
type retrying struct {
	plan, old *Plan
	end       func(i int) End              // of the earlier run
	again     map[api.TaskID]bool          // tasks to run again, though they may be done
	partly    map[api.TaskID]bool          // tasks with a for_each, some of whose tasks are
	commits   map[api.SourceRequest]string // that tasks start from instead
	unchanged []bool                       // by index of plan
	kept      []bool                       // likewise: it is taken over, or will be skipped as before
}

// runAgain reads the tasks to run again. A task that grew from a gate or a quorum stands
// for the one that it grew from, and one of a for_each implies that.
func (k *retrying) runAgain(from []api.TaskID) error {
	for _, id := range from {
		i, ok := k.old.Index(id)
		if !ok {
			return NoTask(k.old.ID, id)
		}
		for up := int(k.old.parent[i]); up >= 0; up = int(k.old.parent[i]) {
			if k.old.Tasks[up].ForEach != nil {
				break
			}
			i = up
		}
		k.again[k.old.Tasks[i].ID] = true
		if up := k.old.parent[i]; up >= 0 {
			k.partly[k.old.Tasks[up].ID] = true
		}
	}
	return nil
}

// changes says how a declared task differs from the earlier one, and refuses other
// differences than those of a retry.
func (k *retrying) changes(i int) ([]string, error) {
	t, was := k.plan.Tasks[i], k.old.Tasks[i]
	changes := changesOf(&t, &was)
	if t.Source != nil && was.Source != nil { // the commit may differ, not the source
		if t.Source.Name == was.Source.Name && t.Source.Commit != was.Source.Commit {
			k.commits[*was.Source] = t.Source.Commit
		}
		t.Source = &api.SourceRequest{Name: t.Source.Name, Commit: was.Source.Commit}
	}
	t.Input = was.Input
	if !same(t, was) {
		return nil, fmt.Errorf("it retries run %s with another definition of task %s", k.old.ID, t.ID)
	}
	return changes, nil
}

// take reports whether a task of the plan is taken over.
func (k *retrying) take(i int) bool {
	t := &k.plan.Tasks[i]
	j, ok := k.old.Index(t.ID)
	if !ok || !k.unchanged[i] || k.again[t.ID] || k.partly[t.ID] || !k.depsKept(i) {
		return false
	}
	end := k.end(j)
	k.kept[i] = end.State == api.TaskDone && !people(t) || end.ByCondition
	return k.kept[i] && end.State == api.TaskDone
}

func (k *retrying) depsKept(i int) bool {
	return !slices.ContainsFunc(k.plan.Deps(i), func(d int32) bool { return !k.kept[d] })
}

// begins reports whether the new run begins with a growth of the earlier one.
func (k *retrying) begins(g Growth) bool {
	if g.Cause == CauseAppend {
		return true
	}
	i, ok := k.plan.Index(g.Task)
	switch {
	case !ok || g.Cause == CauseQuorum: // nothing depends on a voter
		return false
	case g.Cause == CauseGate:
		return k.kept[i]
	}
	return k.unchanged[i] && k.depsKept(i) && !k.again[g.Task]
}

// moved returns a growth whose appended tasks start from the commits of the new run, and
// those tasks that this changes.
func (k *retrying) moved(g Growth) (Growth, map[api.TaskID]bool) {
	changed := map[api.TaskID]bool{}
	g.Tasks = slices.Clone(g.Tasks)
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if t.Source == nil {
			continue
		}
		if commit, ok := k.commits[*t.Source]; ok {
			t.Source, changed[t.ID] = &api.SourceRequest{Name: t.Source.Name, Commit: commit}, true
		}
	}
	return g, changed
}

// people reports whether people decide a task.
func people(t *api.PlanTask) bool {
	return t.Approval != nil || t.Quorum != nil && slices.ContainsFunc(t.Quorum.Of, IsPerson)
}

// changesOf says how the source and the input of a task differ from the earlier
// ones.
func changesOf(t, was *api.PlanTask) (list []string) {
	if !same(t.Source, was.Source) && t.Source != nil {
		list = append(list, fmt.Sprintf("source %s at %s", t.Source.Name, t.Source.Commit))
	}
	if !bytes.Equal(t.Input, was.Input) {
		list = append(list, fmt.Sprintf("input of task %s", t.ID))
	}
	return list
}

func same(a, b any) bool {
	x, err := canon.Marshal(a)
	y, errB := canon.Marshal(b)
	return err == nil && errB == nil && bytes.Equal(x, y)
}
