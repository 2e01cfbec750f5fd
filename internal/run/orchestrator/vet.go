package orchestrator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// place is where a request comes from in a list of tasks.
type place struct {
	task   int
	member string // of the task: "", "gate.verify", "gate.fix" or "quorum.of[N]"
}

// vetting is every request that tasks can lead to: their own, and those of what grows
// from them. A worker's output decides how many there are, and never which.
type vetting struct {
	tasks  []api.PlanTask
	counts []int // of tasks
	reqs   []api.DispatchRequest
	places []place
	dispatch.Validation
}

// vettingOf returns the requests of the tasks that counts.
func vettingOf(tasks []api.PlanTask, counts func(i int) bool) *vetting {
	v := &vetting{tasks: tasks}
	for i := range tasks {
		t := &tasks[i]
		if !counts(i) {
			continue
		}
		v.counts = append(v.counts, i)
		if t.Subagent != "" {
			v.add(i, "", t, t.Subagent, t.Input)
		}
		if g := t.Gate; g != nil {
			v.add(i, "gate.verify", t, g.Verify.Subagent, g.Verify.Input)
			v.add(i, "gate.fix", t, g.Fix.Subagent, g.Fix.Input)
		}
		if t.Quorum != nil {
			for n, of := range t.Quorum.Of {
				if !plan.IsPerson(of) {
					v.add(i, fmt.Sprintf("quorum.of[%d]", n), t, api.Name(of), t.Input)
				}
			}
		}
	}
	return v
}

func (v *vetting) add(i int, member string, t *api.PlanTask, subagent api.Name, input []byte) {
	if subagent == "" {
		return // reported as a problem of shape
	}
	one := *t
	one.Subagent, one.Input = subagent, input
	v.reqs, v.places = append(v.reqs, requestOf(&one)), append(v.places, place{i, member})
}

// validate decides about every request as if it were submitted now.
func (v *vetting) validate(ctx context.Context, by Validator, caller dispatch.Caller) (err error) {
	v.Validation, err = by.Validate(ctx, caller, v.reqs)
	return err
}

// problems returns those of the requests with their paths.
func (v *vetting) problems() (list []api.Problem) {
	seen := map[api.Problem]bool{}
	for _, p := range v.Problems {
		at := v.places[p.Index]
		if p.Member == "input" && strings.Contains(string(v.reqs[p.Index].Input), "{{each.") {
			continue // it is checked when the task grows, with the values of each item
		}
		path := fmt.Sprintf("$.tasks[%d]", at.task)
		own := at.member != "" && (p.Member == "" || p.Member == "input" && !strings.HasPrefix(at.member, "quorum."))
		if own {
			path += "." + at.member
		}
		if p.Member != "" {
			path += "." + p.Member
		}
		if one := (api.Problem{Path: path, Message: p.Message}); !seen[one] {
			seen[one], list = true, append(list, one)
		}
	}
	return list
}

// gives is what a task returns, by its subagent. It is not known of a task that is
// denied, or that was not validated.
type gives struct {
	known, result, patch, verify bool
	subagent                     api.Name
}

// products returns what the tasks return, by their ids.
func (v *vetting) products() map[api.TaskID]gives {
	all := map[api.TaskID]gives{}
	for n, at := range v.places {
		if at.member == "" {
			all[v.tasks[at.task].ID] = v.gives(n)
		}
	}
	return all
}

func (v *vetting) gives(n int) gives {
	return gives{v.Allowed[n], v.HasResult[n], v.HasPatch[n], v.HasVerify[n], v.reqs[n].Subagent}
}

// missingProducts refuses what reads a structured result or a patch that a subagent
// does not return. of also has tasks that are not vetted.
func (v *vetting) missingProducts(of map[api.TaskID]gives) (list []api.Problem) {
	add := func(path, format string, args ...any) {
		list = append(list, api.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	result := func(path string, from api.TaskID) {
		if g := of[from]; g.known && !g.result {
			add(path, "task %q has no structured result: its subagent %q declares no output schema", from, g.subagent)
		}
	}
	for n, at := range v.places {
		path := fmt.Sprintf("$.tasks[%d]", at.task)
		switch g := v.gives(n); {
		case !g.known:
		case at.member != "" && at.member != "gate.fix" && !g.result:
			add(path+"."+at.member, "subagent %q declares no output schema, so it has no verdict", v.reqs[n].Subagent)
		case at.member == "gate.fix" && !g.patch:
			add(path+"."+at.member, "subagent %q is of tier %s and returns no patch", v.reqs[n].Subagent, api.Observe)
		case at.member == "" && v.tasks[at.task].Gate != nil && !g.patch:
			add(path+".gate", "subagent %q is of tier %s and returns no patch that a gate could check", v.reqs[n].Subagent, api.Observe)
		case (at.member == "" || at.member == "gate.fix") && v.tasks[at.task].Gate != nil && v.tasks[at.task].Gate.Protected && !g.verify:
			add(path+".gate.protected", "subagent %q has no verify command, so nothing says whether its patch changes what verify runs", v.reqs[n].Subagent)
		}
	}
	for _, i := range v.counts {
		t, path := &v.tasks[i], fmt.Sprintf("$.tasks[%d]", i)
		for _, name := range slices.Sorted(maps.Keys(t.Needs)) {
			need, at := t.Needs[name], plan.Member(path+".needs", string(name))
			if need.Result {
				result(at+".result", need.From)
			}
			if g := of[need.From]; need.Patch && g.known && !g.patch {
				add(at+".patch", "task %q returns no patch: its subagent %q is of tier %s", need.From, g.subagent, api.Observe)
			}
		}
		if t.When != nil {
			result(path+".when.task", t.When.Task)
		}
		if t.ForEach != nil && t.ForEach.Items != "" {
			result(path+".for_each.from", t.ForEach.From)
		}
	}
	return list
}
