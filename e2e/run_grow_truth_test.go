package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// growth is what a replay knows of a task that grew, or that others grew from. What has
// to grow it derives from the plan and from what the subagents of a trial say, and not
// from any product.
type growth struct {
	parent   *replayed   // it grew from
	children []*replayed // that grew from it
	item     string      // of a for_each
	rounds   int         // of its gate
	passed   bool        // it was skipped by a condition, its own or that of one before it
	approval string      // what people were asked
	votes    map[string]bool
}

// declared is a task of a plan, or one that was appended.
func declared(t api.PlanTask) *replayed {
	o := &replayed{plan: t, after: slices.Clone(t.DependsOn), state: api.TaskPending}
	for _, n := range t.Needs {
		o.after = append(o.after, n.From)
	}
	if t.When != nil {
		o.after = append(o.after, t.When.Task)
	}
	if t.ForEach != nil && t.ForEach.From != "" {
		o.after = append(o.after, t.ForEach.From)
	}
	if t.Approval != nil {
		o.after = append(o.after, t.Approval.Show...)
	}
	return o
}

// offspring are the tasks that have to grow from t, with those before them among
// themselves.
func (t *replayed) offspring(cause string, round int) (list []*replayed) {
	add := func(id string, plan api.PlanTask, after ...string) {
		o := &replayed{plan: plan, state: api.TaskPending, growth: growth{parent: t, item: t.item}}
		o.plan.ID, o.plan.ForEach, o.plan.Quorum, o.plan.When, o.plan.After = api.TaskID(id), nil, nil, nil, ""
		for _, a := range after {
			o.after = append(o.after, api.TaskID(a))
		}
		list = append(list, o)
	}
	name := func(kind string, n int) string { return fmt.Sprintf("%s.%s%d", t.plan.ID, kind, n) }
	p := t.plan
	switch {
	case cause == "for_each" && p.ForEach != nil && len(t.children) == 0:
		for _, item := range itemsOfTrial() {
			add(fmt.Sprintf("%s[%s]", p.ID, item), p)
			list[len(list)-1].item = item
		}
	case cause == "quorum" && p.Quorum != nil && len(t.children) == 0:
		for n, of := range p.Quorum.Of {
			voter := p
			voter.Locks = nil
			if voter.Subagent = api.Name(of); strings.Contains(of, ":") {
				voter = api.PlanTask{Approval: &api.TaskApproval{By: []api.Principal{api.Principal(of)}}}
			}
			add(name("vote", n+1), voter)
		}
	case cause == "gate" && p.Gate != nil && round == t.rounds+1 && round <= max(1, p.Gate.Attempts)+1:
		check, fix := p, p
		check.Gate, check.Locks, check.Subagent = nil, nil, p.Gate.Verify.Subagent
		fix.Gate, fix.Locks, fix.Subagent = nil, nil, p.Gate.Fix.Subagent // its task holds the locks
		if round == 1 {
			add(name("gate", 1), check)
			break
		}
		add(name("fix", round-1), fix, name("gate", round-1))
		add(name("gate", round), check, name("fix", round-1))
	}
	return list
}

// grown replays the growth of a run.
func (r *replay) grown(e *entry, run *replayedRun, t *replayed) {
	want := api.TaskPending
	switch {
	case t.plan.Gate != nil && t.plan.ForEach == nil && e.Detail.Round == 1:
		want = api.TaskRunning
		if t.end == nil || *t.end != (end{api.EventFinished, ""}) {
			r.say(e, "UNTRUE: its dispatch ended with %v", t.end)
		}
	case t.plan.Gate != nil && t.plan.ForEach == nil:
		want = api.TaskGrowing
		if last := t.children[len(t.children)-1]; last.state != api.TaskDone || t.green() {
			r.say(e, "UNTRUE: %s is %s, and the verdict green: %v", last.plan.ID, last.state, t.green())
		}
	default:
		r.checkDependencies(e, run, t)
	}
	if t.state != want {
		r.say(e, "DOUBLED or UNTRUE: it grows by its %s while it is %s", e.Detail.Cause, t.state)
	}
	added := t.offspring(e.Detail.Cause, e.Detail.Round)
	if len(added) == 0 {
		r.say(e, "DOUBLED or UNTRUE: it does not grow by %s, round %d", e.Detail.Cause, e.Detail.Round)
	}
	for _, o := range added {
		run.tasks[o.plan.ID] = o
	}
	if t.children = append(t.children, added...); e.Detail.Cause == "gate" {
		t.rounds++
	}
	t.state = api.TaskGrowing // with a gate it holds its locks until it settles
	if e.Detail.Tasks != len(added) || e.Detail.Total != len(run.tasks) {
		r.say(e, "LOST or UNTRUE: it grows %d tasks, %d in all, and its plan gives %d, %d in all", e.Detail.Tasks, e.Detail.Total, len(added), len(run.tasks))
	}
}

// green is the verdict of the last check of a gate: its fix is the one that helps.
func (t *replayed) green() bool { return t.rounds > 1 && t.plan.Gate.Fix.Subagent == "fixes" }

// appended replays tasks that the caller of a run adds.
func (r *replay) appended(e *entry, run *replayedRun) {
	if run.appended++; run.appended > 1 || len(run.story.append) == 0 {
		r.say(e, "DOUBLED or UNTRUE: tasks were added %d times, its caller adds %d", run.appended, len(run.story.append))
		return
	}
	for _, t := range run.story.append {
		run.tasks[t.ID] = declared(t)
	}
	if e.Detail.Tasks != len(run.story.append) || e.Detail.Total != len(run.tasks) {
		r.say(e, "LOST or UNTRUE: it adds %d tasks, %d in all, want %d and %d", e.Detail.Tasks, e.Detail.Total, len(run.story.append), len(run.tasks))
	}
}

// satisfied reports whether the end of d lets t start.
func satisfied(t, d *replayed) bool {
	switch {
	case d.state == api.TaskDone:
		return true
	case d.state == api.TaskSkipped && d.passed:
		return t.plan.After == api.AfterAny
	case d.state != api.TaskFailed || d.plan.ForEach == nil || slices.Contains(t.plan.DependsOn, d.plan.ID):
		return false
	}
	for _, n := range t.plan.Needs {
		if n.From == d.plan.ID && !n.AllowFailed {
			return false
		}
	}
	return true
}

// holds is whether a condition of a trial holds: all are about the risk that the
// subagent lists says.
func holds(w *api.When) bool { return string(w.Is) == `"low"` }

// checkDependencies checks that a task may start, grow or be voted about.
func (r *replay) checkDependencies(e *entry, run *replayedRun, t *replayed) {
	for _, dep := range t.after {
		if d := run.tasks[dep]; d == nil || !satisfied(t, d) {
			r.say(e, "UNTRUE: it depends on %s, which is not done", dep)
		}
	}
	if t.plan.When != nil && !holds(t.plan.When) {
		r.say(e, "UNTRUE: its condition does not hold")
	}
	if t.parent != nil && t.parent.state != api.TaskGrowing {
		r.say(e, "UNTRUE: it grew from %s, which is %s", t.parent.plan.ID, t.parent.state)
	}
}

// waitsForPeople replays that a task begins to wait for an approval.
func (r *replay) waitsForPeople(e *entry, run *replayedRun, t *replayed) {
	if t.state != api.TaskPending {
		r.say(e, "DOUBLED or UNTRUE: it was %s", t.state)
	}
	r.checkDependencies(e, run, t)
	t.state = api.TaskWaiting
}

// asked replays that people are asked about a task.
func (r *replay) asked(e *entry, t *replayed) {
	if t.state != api.TaskWaiting || t.approval != "" || t.plan.Approval == nil {
		r.say(e, "DOUBLED or UNTRUE: it is %s, and people were asked %q", t.state, t.approval)
	}
	t.approval, t.votes = e.Detail.Approval, map[string]bool{}
	r.asks[t.approval] = t
}

// voted replays a decision of a person.
func (r *replay) voted(e *entry) {
	approve := e.Detail.Verb == "approval.approve"
	if t := r.asks[e.Detail.Approval]; t != nil && (approve || e.Detail.Verb == "approval.deny") {
		if _, twice := t.votes[e.By]; twice || !slices.Contains(t.plan.Approval.By, api.Principal(e.By)) || t.state != api.TaskWaiting {
			r.say(e, "DOUBLED or UNTRUE: %s votes about task %s, which is %s; votes before: %v", e.By, t.plan.ID, t.state, t.votes)
		}
		t.votes[e.By] = approve
	}
}

// controlEnded checks the end of a task that ends by others, or by people. It returns
// false for one that ends by its dispatch.
func (r *replay) controlEnded(e *entry, run *replayedRun, t *replayed, was api.TaskState) bool {
	count := map[api.TaskState]int{}
	approve, reject := 0, 0
	for _, c := range t.children {
		count[c.state]++
		switch yes := c.plan.Subagent == "approves" || c.plan.Approval != nil; {
		case c.state == api.TaskDone && yes:
			approve++
		case c.state.Settled():
			reject++
		}
	}
	done, all := e.Kind == "task.done", len(t.children)
	right := false
	switch {
	case t.plan.Approval != nil:
		yes := 0
		for _, v := range t.votes {
			if v {
				yes++
			}
		}
		right = was == api.TaskWaiting && done && yes >= max(1, t.plan.Approval.Count) && yes == len(t.votes)
	case t.plan.ForEach != nil:
		right = was == api.TaskGrowing && done == (count[api.TaskDone] == all) && count[api.TaskDone]+count[api.TaskFailed]+count[api.TaskDenied]+count[api.TaskSkipped]+count[api.TaskCancelled] == all
	case t.plan.Quorum != nil:
		need := t.plan.Quorum.Approve
		right = was == api.TaskGrowing && (done && approve >= need || !done && all-reject < need)
	case was == api.TaskGrowing:
		last := t.children[max(0, all-1)]
		spent := t.rounds > max(1, t.plan.Gate.Attempts)
		right = done && last.state == api.TaskDone && t.green() ||
			!done && (count[api.TaskDone] < all || spent && !t.green())
	case done && t.plan.Gate != nil:
		r.say(e, "UNTRUE: its gate has not been passed")
		return true
	default:
		return false
	}
	if !right {
		r.say(e, "UNTRUE: it was %s; what grew from it is %v, votes %v", was, count, t.votes)
	}
	return true
}

// denied checks that a task is denied by a person, or for want of budget.
func (r *replay) denied(e *entry, run *replayedRun, t *replayed, was api.TaskState) {
	if t.plan.Approval != nil {
		no := 0
		for _, approve := range t.votes {
			if !approve {
				no++
			}
		}
		if was != api.TaskWaiting || no == 0 {
			r.say(e, "UNTRUE: it was %s, the votes are %v", was, t.votes)
		}
		return
	}
	b := run.story.plan.Budget
	if was != api.TaskRunning || !run.story.barred && run.fired == 0 && (b == nil || run.dispatches < int64(b.Dispatches)) { // wrongSlots judges those of schedules
		r.say(e, "UNTRUE: it was %s, and its run has %d dispatches", was, run.dispatches)
	}
}

// spent counts a dispatch that was accepted.
func (r *replay) spent(e *entry, run *replayedRun) {
	run.dispatches++
	if b := run.story.plan.Budget; b != nil && run.dispatches > int64(b.Dispatches) {
		r.say(e, "DOUBLED: it is dispatch %d of a run that has a budget of %d", run.dispatches, b.Dispatches)
	}
}

// ends counts how the tasks of a run ended that decide about it: those of its plan and
// those that were appended.
func (run *replayedRun) ends() map[api.TaskState]int {
	counts := map[api.TaskState]int{}
	for _, t := range run.tasks {
		switch {
		case t.parent != nil:
		case t.passed:
			counts[api.TaskDone]++
		default:
			counts[t.state]++
		}
	}
	return counts
}

// wrongSlots checks the slots of the schedules in a whole log: each fires once or is
// skipped, and submits one run; each that was requested is decided; no minute is
// missing; and their principal has no more dispatches than its budget.
func wrongSlots(log []entry) (bad []string) {
	say := func(e *entry, format string, args ...any) {
		bad = append(bad, fmt.Sprintf("slot %s of %s at entry %d, %s %s: ", e.Detail.Slot, e.Detail.Schedule, e.Seq, e.Kind, e.Run)+fmt.Sprintf(format, args...))
	}
	decided := map[string]int{}   // slots by schedule and time: how often one fired or was skipped
	requested := map[string]int{} // likewise
	runs := map[string]int{}      // how often each run of a slot was submitted
	days := map[string]int64{}    // dispatches
	var minutes []time.Time
	for i := range log {
		e := &log[i]
		slot := e.Detail.Schedule + " " + e.Detail.Slot
		day := e.At.UTC().Format(time.DateOnly)
		_, ofSlot := runs[e.Run]
		switch e.Kind {
		case "schedule.run":
			requested[slot]++
		case "schedule.fired":
			if at, err := time.Parse(time.RFC3339, e.Detail.Slot); err != nil || e.Run != string(api.ScheduleRun(api.Name(e.Detail.Schedule), at)) || ofSlot {
				say(e, "DOUBLED or UNTRUE: %v", err)
			}
			runs[e.Run] = 0
			if decided[slot]++; decided[slot] > 1 {
				say(e, "DOUBLED: it is decided %d times", decided[slot])
			}
		case "schedule.skipped":
			if decided[slot]++; decided[slot] > 1 && e.Detail.Reason != api.SkipRefused {
				say(e, "DOUBLED: it is decided %d times", decided[slot])
			}
		case "run.submitted":
			if runs[e.Run]++; ofSlot && runs[e.Run] > 1 {
				say(e, "DOUBLED: it is submitted %d times", runs[e.Run])
			}
			if !ofSlot {
				delete(runs, e.Run)
			}
		case "dispatch.accepted":
			if days[day]++; !ofSlot {
				days[day]--
			} else if days[day] > slotBudget {
				say(e, "DOUBLED: dispatch %d of a budget of %d", days[day], slotBudget)
			}
		case "task.denied":
			if ofSlot && days[day] < slotBudget {
				say(e, "UNTRUE: denied after %d dispatches of %d", days[day], slotBudget)
			}
		}
		if strings.HasPrefix(e.Kind, "schedule.") && e.Detail.Schedule == "minutely" && e.Detail.Reason != api.SkipRefused {
			first, _ := time.Parse(time.RFC3339, e.Detail.Slot)
			for n := range max(1, e.Detail.Count) {
				minutes = append(minutes, first.Add(time.Duration(n)*time.Minute))
			}
		}
	}
	for slot, n := range requested {
		if n != 1 || decided[slot] == 0 {
			bad = append(bad, fmt.Sprintf("LOST or DOUBLED: slot %s is requested %d times and decided %d times", slot, n, decided[slot]))
		}
	}
	for run, n := range runs {
		if n == 0 {
			bad = append(bad, fmt.Sprintf("LOST: the run %s of a slot is not submitted", run))
		}
	}
	slices.SortFunc(minutes, time.Time.Compare)
	for i, m := range minutes {
		if i > 0 && !m.Equal(minutes[i-1].Add(time.Minute)) {
			bad = append(bad, fmt.Sprintf("LOST or DOUBLED: slot %s follows %s", m, minutes[i-1]))
		}
	}
	if n := len(minutes); n > 0 && log[len(log)-1].At.Sub(minutes[n-1]) > 3*time.Minute {
		bad = append(bad, fmt.Sprintf("LOST: the last slot is %s", minutes[n-1]))
	}
	return bad
}

// pending lists the slots in a log that are not decided, and the runs of slots that have
// not settled.
func pending(log []entry) (list []string) {
	open := map[string]bool{}
	for i := range log {
		e := &log[i]
		slot := e.Detail.Schedule + " " + e.Detail.Slot
		switch e.Kind {
		case "schedule.run":
			open[slot] = true
		case "schedule.fired":
			delete(open, slot)
			open[e.Run] = true
		case "schedule.skipped":
			delete(open, slot)
			if at, err := time.Parse(time.RFC3339, e.Detail.Slot); err == nil {
				delete(open, string(api.ScheduleRun(api.Name(e.Detail.Schedule), at)))
			}
		case "run.settled":
			delete(open, e.Run)
		}
	}
	return slices.Sorted(maps.Keys(open))
}

// needsOf is before the task that a pure task needs the output of.
const needsOf = "needs "

// made is what a trial knows of the results of pure tasks: those with the same inputs
// have the same origin, or are reuses of it.
type made struct {
	key    map[string]string // by dispatch
	origin map[string]string // by dispatch: the one that ran
	latest map[string]uint64 // by key: the entry of its latest end
}

// wrongReuse checks the pure tasks of a round: what is reused has the same inputs, and
// what could be reused does not run again. fresh is the first entry whose result cannot
// have been removed.
func (m *made) wrongReuse(log []entry, inputs map[string]string, fresh uint64) (bad []string) {
	given := map[string]string{} // by run and task: the origin of its result
	starts := map[string]uint64{}
	for i := range log {
		e := &log[i]
		input, pure := inputs[e.Run+"/"+e.Task]
		if !pure {
			continue
		}
		if from, needs := strings.CutPrefix(input, needsOf); needs {
			input = "of " + given[e.Run+"/"+from]
		}
		switch e.Kind {
		case "task.started":
			m.key[e.Dispatch] = input
			starts[e.Dispatch] = e.Seq
		case "dispatch.accepted":
			if seq, ok := m.latest[input]; ok && seq >= fresh && seq < starts[e.Dispatch] {
				bad = append(bad, fmt.Sprintf("DOUBLED: %s/%s runs again at entry %d, and its result is that of entry %d", e.Run, e.Task, e.Seq, seq))
			}
		case "task.reused":
			of := e.Detail.Of
			if m.key[of] != input || m.origin[of] == "" {
				bad = append(bad, fmt.Sprintf("UNTRUE: %s/%s reuses at entry %d dispatch %s of other inputs: %q, want %q", e.Run, e.Task, e.Seq, of, m.key[of], input))
			}
			m.origin[e.Dispatch] = m.origin[of]
		case "dispatch.finished":
			m.origin[e.Dispatch], m.latest[input] = e.Dispatch, e.Seq
		case "task.done":
			given[e.Run+"/"+e.Task] = m.origin[e.Dispatch]
		}
	}
	return bad
}

// growTally counts what a log says of growth, approvals, slots, reuse and budgets.
func growTally(log []entry) string {
	count := map[string]int{}
	for _, e := range log {
		switch e.Kind {
		case "run.grown":
			count["growths by "+e.Detail.Cause]++
			count["grown tasks"] += e.Detail.Tasks
		case "run.appended":
			count["appends"]++
			count["appended tasks"] += e.Detail.Tasks
		case "operator.recorded":
			if strings.HasPrefix(e.Detail.Verb, "approval.") {
				count[e.Detail.Verb]++
			}
		case "approval.requested", "schedule.run", "schedule.fired", "schedule.skipped", "task.reused", "task.denied", "evidence.refused":
			count[e.Kind]++
		}
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, count[what]))
	}
	return strings.Join(parts, ", ")
}
