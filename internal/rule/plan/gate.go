package plan

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Fixes is how many fixes a gate has at most.
func Fixes(g *api.Gate) int { return max(1, g.Attempts) }

// HoldsForGate reports whether task i, once it is growing, holds its locks until its
// gate is settled, under the rules of its run. Before Rules 5 it gave them back when
// its dispatch ended, so another task could change what a fix was about.
func (p *Plan) HoldsForGate(i int, rules int64) bool {
	return rules >= 5 && p.Tasks[i].Gate != nil && p.Tasks[i].ForEach == nil
}

// LocksOf returns the locks that task i takes when it starts. A fix takes none of its
// own where the task that it is for still holds them.
func (p *Plan) LocksOf(i int, rules int64) []api.Lock {
	if rules < 5 {
		return p.Tasks[i].Locks
	}
	if up := p.parent[i]; up >= 0 && p.HoldsForGate(int(up), rules) {
		return nil
	}
	return p.Tasks[i].Locks
}

// Subject is the task whose patch a check of a gate judges.
func (p *Plan) Subject(check int32) int32 {
	i, _ := p.Index(p.Tasks[check].Needs[NeedChange].From) // gateRound sets it
	return int32(i)                                        //nolint:gosec // G115: bounded by api.MaxRunTasks
}

// CheckProtected refuses the patch of task id, with this result, for a gate that protects
// what verify runs.
func CheckProtected(g *api.Gate, id api.TaskID, sum *api.ResultSummary) error {
	switch {
	case !g.Protected:
		return nil
	case sum.Verify == nil:
		return fmt.Errorf("no verify command ran on the patch of task %s, and its gate is protected: give its subagent one, or remove protected from the gate", id)
	case len(sum.Verify.Changed) > 0:
		return fmt.Errorf("%s, and the gate of task %s is protected: have a person change that file in the source, or have the check come from a capability", sum.Verify.ChangedText(strconv.Quote), id)
	}
	return nil
}

// gateName is the id of a task that grows from a gate or a quorum.
func gateName(t *api.PlanTask, kind string, n int) api.TaskID {
	return api.TaskID(fmt.Sprintf("%s.%s%d", t.ID, kind, n))
}

// childNames are the ids of all tasks that can grow from a gate or a quorum.
func childNames(t *api.PlanTask) (ids []api.TaskID) {
	if t.Gate != nil && t.ForEach == nil {
		for n := range Fixes(t.Gate) + 1 {
			ids = append(ids, gateName(t, "gate", n+1), gateName(t, "fix", n+1))
		}
	}
	if t.Quorum != nil {
		for n := range t.Quorum.Of {
			ids = append(ids, gateName(t, "vote", n+1))
		}
	}
	return ids
}

// gateRound returns the check of a round, and the fix before it.
func gateRound(t *api.PlanTask, round int) []api.PlanTask {
	name := func(kind string, n int) api.TaskID { return gateName(t, kind, n) }
	subject := t.ID
	if round > 2 {
		subject = name("fix", round-2)
	}
	like := *t
	like.Needs, like.DependsOn, like.When, like.After, like.Gate = nil, nil, nil, "", nil
	var out []api.PlanTask
	if round > 1 {
		fix := like
		fix.ID, fix.Subagent, fix.Input = name("fix", round-1), t.Gate.Fix.Subagent, t.Gate.Fix.Input
		fix.Needs = maps.Clone(t.Needs)
		if fix.Needs == nil {
			fix.Needs = map[api.Name]api.Need{}
		}
		fix.Needs[NeedChange] = api.Need{From: subject, Patch: true}
		fix.Needs[NeedVerdict] = api.Need{From: name("gate", round-1), Result: true}
		out, subject = append(out, fix), fix.ID
	}
	check := like
	check.ID, check.Subagent, check.Input = name("gate", round), t.Gate.Verify.Subagent, t.Gate.Verify.Input
	check.Locks = nil
	check.Needs = map[api.Name]api.Need{NeedChange: {From: subject, Patch: true}}
	return append(out, check)
}

// The names of needs that a gate gives its tasks.
const (
	NeedChange  api.Name = "change"
	NeedVerdict api.Name = "verdict"
)

func voters(t *api.PlanTask) (out []api.PlanTask) {
	for n, of := range t.Quorum.Of {
		v := *t
		v.ID, v.Quorum, v.When, v.After, v.Locks = gateName(t, "vote", n+1), nil, nil, "", nil
		if IsPerson(of) {
			v = api.PlanTask{ID: v.ID, DependsOn: Dependencies(t), Approval: &api.TaskApproval{By: []api.Principal{api.Principal(of)}, Count: 1, Show: Dependencies(t)}}
		} else {
			v.Subagent = api.Name(of)
		}
		out = append(out, v)
	}
	return out
}

// IsPerson reports whether a voter is a person rather than a subagent.
func IsPerson(voter string) bool { return strings.Contains(voter, ":") }

// Giver is the task whose dispatch gives task i the patch of task from: the last fix of
// a task that has a gate, and otherwise from itself.
func (p *Plan) Giver(i, from int32) int32 {
	if p.Tasks[from].Gate == nil || p.parent[i] == from {
		return from
	}
	of := p.children[from]
	if len(of) < 3 { // a check, then pairs of a fix and a check
		return from
	}
	return of[len(of)-2]
}
