package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// The subagents of gates and quorums: each waits for the test to end it, as work does.
const (
	checker api.Name = "checker"
	fixer   api.Name = "fixer"
	voter   api.Name = "voter"
)

// product is what the structured result of a dispatch says in these tests.
type product struct {
	List    []string `json:"f,omitempty"`
	Risk    string   `json:"risk,omitempty"`
	Verdict string   `json:"verdict,omitempty"`
}

// happy is what a subagent returns unless the test draws something else.
func happy(subagent api.Name) product {
	switch subagent { //nolint:exhaustive // the others are the same
	case checker:
		return product{Verdict: "green"}
	case voter:
		return product{Verdict: "approve"}
	}
	return product{List: []string{"x", "y"}, Risk: "high"}
}

func drawProduct(rt *rapid.T, subagent api.Name) product {
	p := happy(subagent)
	switch subagent {
	case checker:
		p.Verdict = rapid.SampledFrom([]string{"green", "red", "red", "grey"}).Draw(rt, "verdict")
	case voter:
		p.Verdict = rapid.SampledFrom([]string{"approve", "approve", "reject", ""}).Draw(rt, "verdict")
	default:
		p.List = rapid.SampledFrom([][]string{{"x", "y"}, {"x"}, {"x", "y", "z"}, {}, {"x", "x"}, {"../x"}, {"x", "y", "z", "u", "v"}}).Draw(rt, "list")
		p.Risk = rapid.SampledFrom([]string{"high", "low", ""}).Draw(rt, "risk")
	}
	return p
}

// constructs gives the last task of a plan a construct, if the tasks before it allow one.
func constructs(rt *rapid.T, tasks []api.PlanTask) {
	t := &tasks[len(tasks)-1]
	byID := map[api.TaskID]*api.PlanTask{}
	for i := range tasks {
		byID[tasks[i].ID] = &tasks[i]
	}
	for name, n := range t.Needs {
		if byID[n.From].Quorum != nil || byID[n.From].Approval != nil { // it has no products
			delete(t.Needs, name)
			t.DependsOn = append(t.DependsOn, n.From)
		} else if byID[n.From].ForEach != nil {
			n.AllowFailed = len(name)%2 == 0 || n.From < "t3"
			t.Needs[name] = n
		}
	}
	ups := slices.DeleteFunc(upstream(*t), func(id api.TaskID) bool { return undispatched(byID[id]) })
	construct(rt, t, ups)
}

// forbid gives a task the subagent that no grant allows.
func forbid(t *api.PlanTask) {
	switch {
	case t.Approval != nil:
		*t = api.PlanTask{ID: t.ID, Subagent: secret}
	case t.Quorum != nil:
		t.Quorum.Of[0] = string(secret)
	case t.Gate != nil:
		t.Gate.Fix.Subagent = secret
	default:
		t.Subagent = secret
	}
}

// construct gives a task of a plan a way to grow, or a condition.
func construct(rt *rapid.T, t *api.PlanTask, ups []api.TaskID) {
	if len(ups) > 0 {
		up := rapid.SampledFrom(ups).Draw(rt, "of")
		switch rapid.IntRange(0, 9).Draw(rt, "condition") {
		case 0, 1:
			t.When = &api.When{Task: up, Result: "$.risk", Is: json.RawMessage(`"high"`)}
		case 2:
			t.After = api.AfterAny
		case 3:
			t.When, t.After = &api.When{Task: up, Result: "$.risk", Is: json.RawMessage(`"high"`)}, api.AfterAny
		}
	}
	switch rapid.IntRange(0, 19).Draw(rt, "construct") {
	case 0, 1:
		if len(ups) > 0 {
			t.ForEach = &api.ForEach{From: rapid.SampledFrom(ups).Draw(rt, "from"), Items: "$.f[*]", Max: 4}
		}
	case 2:
		t.ForEach = &api.ForEach{Values: []json.RawMessage{json.RawMessage(`"x"`), json.RawMessage(`"y"`)}}
	case 3, 4:
		t.Gate = &api.Gate{Verify: api.GateStep{Subagent: checker}, Fix: api.GateStep{Subagent: fixer}, Attempts: rapid.IntRange(1, 2).Draw(rt, "fixes")}
	case 5:
		t.ForEach = &api.ForEach{Values: []json.RawMessage{json.RawMessage(`"x"`)}}
		t.Gate = &api.Gate{Verify: api.GateStep{Subagent: checker}, Fix: api.GateStep{Subagent: fixer}}
	case 6, 7:
		t.Quorum = &api.Quorum{Of: slices.Repeat([]string{string(voter)}, rapid.IntRange(1, 3).Draw(rt, "voters"))}
		t.Quorum.Approve = rapid.IntRange(1, len(t.Quorum.Of)).Draw(rt, "approve")
		t.Subagent, t.Locks = "", nil
		if rapid.Bool().Draw(rt, "person") {
			t.Quorum.Of[0] = string(rapid.SampledFrom(voters[:6]).Draw(rt, "voter"))
		}
	case 8, 9:
		on := upstream(*t)
		*t = api.PlanTask{ID: t.ID, DependsOn: on, When: t.When, After: t.After, Approval: approved(rt)}
	}
}

// undispatched reports whether a task never starts.
func undispatched(t *api.PlanTask) bool { return grows(t) || t.Approval != nil }

// grows reports whether a task has no dispatch of its own.
func grows(t *api.PlanTask) bool { return t.ForEach != nil || t.Quorum != nil }

// byCondition reports whether a task was skipped because a condition does not hold: that
// is about a task which is done, or was skipped so itself.
func (t *replayTask) byCondition() bool {
	if t.state != api.TaskSkipped {
		return false
	}
	cause := t.run.tasks[t.cause]
	return cause.state == api.TaskDone || cause.byCondition()
}

// isFor reports whether a task is for the result of another: without that it does nothing.
func (t *replayTask) isFor(up api.TaskID) bool {
	return t.plan.When != nil && t.plan.When.Task == up || t.plan.ForEach != nil && t.plan.ForEach.From == up
}

// satisfies reports whether the end of up lets t start; settled only where up has ended.
func (t *replayTask) satisfied(up *replayTask) bool {
	switch {
	case t.parent != nil && !slices.Contains(t.parent.children, up): // it had ended when t grew
		return true
	case up.state == api.TaskDone:
		return true
	case up.byCondition():
		return t.plan.After == api.AfterAny && !t.isFor(up.plan.ID)
	case up.state != api.TaskFailed || up.plan.ForEach == nil:
		return false
	}
	some := false
	for _, n := range t.plan.Needs {
		if n.From == up.plan.ID {
			if !n.AllowFailed {
				return false
			}
			some = true
		}
	}
	return some && !slices.Contains(t.plan.DependsOn, up.plan.ID)
}

// condition evaluates the condition of a task whose dependencies have ended: whether it
// holds, and why it cannot be told.
func (m *replay) condition(t *replayTask) (holds bool, fault bool) {
	w := t.plan.When
	if w == nil {
		return true, false
	}
	up := t.run.tasks[w.Task]
	if up.state != api.TaskDone { // skipped by its condition: it has no result
		return false, true
	}
	p, ok := m.productOf(up)
	return p.Risk == "high", !ok || p.Risk == ""
}

// productOf is what the dispatch of a task returned.
func (m *replay) productOf(t *replayTask) (product, bool) {
	if t.dispatch == "" {
		return product{}, false
	}
	var p product
	raw := m.products(t.dispatch)
	return p, len(raw) > 0 && json.Unmarshal(raw, &p) == nil
}

// items are those of a task with a for_each, and false if it cannot grow.
func (m *replay) items(t *replayTask) ([]string, bool) {
	f := t.plan.ForEach
	if f.Values != nil {
		var list []string
		for _, v := range f.Values {
			list = append(list, strings.Trim(string(v), `"`))
		}
		return list, true
	}
	from := t.run.tasks[f.From]
	if from.state != api.TaskDone { // skipped by its condition
		return nil, false
	}
	p, ok := m.productOf(from)
	seen := map[string]bool{}
	for _, name := range p.List {
		if seen[name] || strings.Contains(name, "/") {
			return nil, false
		}
		seen[name] = true
	}
	return p.List, ok && p.List != nil && len(p.List) <= f.Max
}

// grown takes that a task grew.
func (m *replay) grown(c *audit.Committed, t *replayTask) {
	d, _ := c.Entry.Detail.(record.RunGrowth)
	var want []api.PlanTask
	wrong := ""
	switch {
	case t.plan.ForEach != nil:
		items, ok := m.items(t)
		if holds, _ := m.condition(t); !ok || !holds || t.state != api.TaskPending || !t.settledUps() {
			wrong = "cannot grow"
		}
		for _, name := range items {
			one := t.plan
			one.ID, one.ForEach, one.When, one.After = api.TaskID(fmt.Sprintf("%s[%s]", t.plan.ID, name)), nil, nil, ""
			want = append(want, one)
		}
	case t.plan.Quorum != nil:
		if holds, _ := m.condition(t); !holds || t.state != api.TaskPending || !t.settledUps() {
			wrong = "cannot grow"
		}
		for n := range t.plan.Quorum.Of {
			one := t.plan
			one.ID, one.Subagent, one.Quorum, one.When, one.After = api.TaskID(fmt.Sprintf("%s.vote%d", t.plan.ID, n+1)), voter, nil, nil, ""
			if of := t.plan.Quorum.Of[n]; strings.Contains(of, ":") {
				one = api.PlanTask{ID: one.ID, DependsOn: upstream(t.plan), Approval: &api.TaskApproval{By: []api.Principal{api.Principal(of)}}}
			}
			want = append(want, one)
		}
	case t.plan.Gate != nil:
		wrong = m.gateGrew(t, int(d.Round))
		want = gateTasks(t, int(d.Round))
	default:
		wrong = "has no way to grow"
	}
	if wrong != "" || d.Tasks != int64(len(want)) || d.Total != int64(len(t.run.plan.Tasks)+len(want)) {
		m.object(c.Seq, "task %s, %s, grows %d tasks to %d in round %d, want %d: %s", t.name(), t.state, d.Tasks, d.Total, d.Round, len(want), wrong)
	}
	t.state = api.TaskGrowing
	t.run.plan.Tasks = slices.Clip(t.run.plan.Tasks)
	for _, p := range want {
		one := &replayTask{run: t.run, plan: p, state: api.TaskPending, freed: c.Entry.At, parent: t}
		t.children = append(t.children, one)
		t.run.plan.Tasks = append(t.run.plan.Tasks, p)
		t.run.tasks[p.ID] = one
	}
}

// settledUps reports whether all that a task depends on lets it start.
func (t *replayTask) settledUps() bool {
	for _, up := range upstream(t.plan) {
		if !t.satisfied(t.run.tasks[up]) {
			return false
		}
	}
	return true
}

func (m *replay) gateGrew(t *replayTask, round int) string {
	if round == 1 {
		if t.state != api.TaskRunning || len(t.children) > 0 {
			return "its first check"
		}
		return ""
	}
	last := t.children[len(t.children)-1]
	p, ok := m.productOf(last)
	if t.state != api.TaskGrowing || last.state != api.TaskDone || !ok || p.Verdict != "red" || len(t.children) != 2*round-3 || round-1 > max(1, t.plan.Gate.Attempts) {
		return "a fix"
	}
	return ""
}

func gateTasks(t *replayTask, round int) (list []api.PlanTask) {
	one := t.plan
	one.Gate, one.When, one.After, one.Needs, one.DependsOn = nil, nil, "", nil, nil
	name := func(kind string, n int) api.TaskID { return api.TaskID(fmt.Sprintf("%s.%s%d", t.plan.ID, kind, n)) }
	if round > 1 {
		fix := one
		fix.ID, fix.Subagent, fix.Locks = name("fix", round-1), fixer, nil // its task holds them
		list = append(list, fix)
		one.DependsOn = []api.TaskID{fix.ID}
	}
	one.ID, one.Subagent, one.Locks = name("gate", round), checker, nil
	return append(list, one)
}

// ended looks at how a task that grows has ended: by what its children say.
func (m *replay) grewEnd(c *audit.Committed, t *replayTask, to api.TaskState) {
	done, lost, cancelled, open := 0, 0, 0, 0
	for _, k := range t.children {
		switch {
		case k.state == api.TaskDone:
			done++
		case k.state == api.TaskCancelled:
			cancelled++
		case k.state.Settled():
			lost++
		default:
			open++
		}
	}
	stopped := t.run.ending(c.Entry.At) || t.stopped()
	fine := false
	switch {
	case stopped && to == api.TaskCancelled:
		fine = open == 0
	case t.plan.ForEach != nil:
		fine = open == 0 && to == map[bool]api.TaskState{true: api.TaskDone, false: api.TaskFailed}[lost == 0] || open == 0 && lost == 0 && cancelled > 0 && to == api.TaskCancelled
		if to == api.TaskDone && cancelled > 0 {
			fine = false
		}
	case t.plan.Quorum != nil:
		yes, no := m.tally(t)
		n, need := len(t.children), t.plan.Quorum.Approve
		fine = to == api.TaskDone && yes >= need || to == api.TaskFailed && n-no < need
	default:
		last := t.children[len(t.children)-1]
		p, _ := m.productOf(last)
		spent := len(t.children) == 2*max(1, t.plan.Gate.Attempts)+1
		bad := lost+cancelled > 0 || p.Verdict != "green" && p.Verdict != "red" || p.Verdict == "red" && spent
		fine = open == 0 && to == api.TaskDone && last.state == api.TaskDone && p.Verdict == "green" || to == api.TaskFailed && bad
	}
	if !fine {
		m.object(c.Seq, "task %s is %s with %d children done, %d cancelled, %d lost and %d open", t.name(), to, done, cancelled, lost, open)
	}
}

// tally counts those that are in: a voter who is not done, or has no verdict, does not
// approve.
func (m *replay) tally(t *replayTask) (yes, no int) {
	for _, k := range t.children {
		p, _ := m.productOf(k)
		switch {
		case k.state == api.TaskDone && (p.Verdict == "approve" || k.plan.Approval != nil):
			yes++
		case k.state.Settled():
			no++
		}
	}
	return yes, no
}

// stopped reports whether a task was asked to end, or one that it grew from, or what it
// grew from is known.
func (t *replayTask) stopped() bool {
	for k := t; k != nil; k = k.parent {
		if k.stopAsk || k != t && k.state.Settled() {
			return true
		}
	}
	return false
}

// cannotGrow takes that a pending task failed: its products do not say what it grows to,
// or whether its condition holds.
func (m *replay) cannotGrow(c *audit.Committed, t *replayTask, reason api.Reason) {
	_, fault := m.condition(t)
	if !fault && t.plan.ForEach != nil {
		_, ok := m.items(t)
		fault = !ok
	}
	if !fault || reason != api.ReasonOutput || !t.settledUps() {
		m.object(c.Seq, "task %s failed before it started, for %q", t.name(), reason)
	}
}

// skippedByCondition takes that a task was skipped because of one that is done: its own
// condition does not hold, or that of a task that it comes after.
func (m *replay) skippedByCondition(c *audit.Committed, t, cause *replayTask) {
	if w := t.plan.When; w != nil && w.Task == cause.plan.ID && t.settledUps() {
		if holds, fault := m.condition(t); !holds && !fault {
			return
		}
	}
	for _, up := range upstream(t.plan) {
		if t.run.tasks[up].byCondition() && cause.byCondition() && (t.plan.After != api.AfterAny || t.isFor(up)) {
			return
		}
	}
	m.object(c.Seq, "task %s is skipped because of task %s, which is %s", t.name(), cause.name(), cause.state)
}
