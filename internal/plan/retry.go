package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
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
	a.ID, a.Tasks = id, slices.Clone(a.Tasks)
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
	Taken   []bool   // by index: the task is taken over
	Changed []string // how the plan differs from the earlier one
}

// RetryOf compares a plan with that of the settled run that it retries. It takes
// over each task that is done there, has the same definition, is not in from and
// depends only on tasks that are taken over. The plans may differ in their ids, in
// the commits of sources and in inputs.
func (p *Plan) RetryOf(old *Plan, done func(i int) bool, from []api.TaskID) (Retry, error) {
	r := Retry{Taken: make([]bool, len(p.Tasks))}
	if p.Queue != old.Queue || p.Limits != old.Limits || !maps.Equal(p.Labels, old.Labels) || len(p.Tasks) != len(old.Tasks) {
		return r, fmt.Errorf("it retries run %s with another plan", old.ID)
	}
	for _, t := range from {
		if _, ok := p.Index(t); !ok {
			return r, NoTask(old.ID, t)
		}
	}
	said := map[string]bool{}
	for _, i := range p.order {
		t, was := p.Tasks[i], old.Tasks[i]
		changes := changesOf(&t, &was)
		for _, c := range changes {
			if !said[c] {
				said[c], r.Changed = true, append(r.Changed, c)
			}
		}
		if t.Source != nil && was.Source != nil { // the commit may differ, not the source
			t.Source = &api.SourceRequest{Name: t.Source.Name, Commit: was.Source.Commit}
		}
		t.Input = was.Input
		if !same(t, was) {
			return r, fmt.Errorf("it retries run %s with another definition of task %s", old.ID, t.ID)
		}
		r.Taken[i] = len(changes) == 0 && done(int(i)) && !slices.Contains(from, t.ID) &&
			!slices.ContainsFunc(p.Deps(int(i)), func(d int32) bool { return !r.Taken[d] })
	}
	slices.Sort(r.Changed)
	if n := len(r.Changed) + len(from); n > MaxChanges {
		return r, api.Errorf(api.CodeTooLarge, "the retry of run %s names %d changes and tasks to run again, more than %d", old.ID, n, MaxChanges)
	}
	return r, nil
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
