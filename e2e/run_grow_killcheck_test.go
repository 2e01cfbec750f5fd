package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// undisturbedGrowth returns the stories of undisturbed runs, one for each construct by
// its name, with the whole log.
func undisturbedGrowth(t *testing.T) (map[string]*runStory, []entry) {
	t.Helper()
	k := newTrial(t, 0, *seedFlag)
	k.flags = []string{"--orchestrator"}
	k.withGrowth()
	var jobs []*runJob
	var callers sync.WaitGroup
	hows := map[string]string{}
	for _, how := range []string{"list", "gate", "quorum", "approval", "denial", "when", "append", "budget"} {
		id := k.id("r", how)
		j := &runJob{id: id, plan: api.Plan{ID: api.RunID(id), Source: &api.SourceRequest{Name: "repo"}}}
		k.construct(j, how)
		j.plan.Tasks = append(j.plan.Tasks, api.PlanTask{ID: "first", Subagent: "edits"}, api.PlanTask{ID: "second", Subagent: "edits", DependsOn: []api.TaskID{"first"}}, api.PlanTask{ID: "third", Subagent: "edits", DependsOn: []api.TaskID{"second"}})
		if how == "list" {
			j.plan.Tasks[1].Subagent = "edits"
		}
		if how == "budget" {
			j.plan.Budget.Dispatches = 2
		}
		j.appendAt, hows[id] = 0, how
		jobs = append(jobs, j)
		callers.Go(func() { k.carryOut(j) })
	}
	callers.Wait()
	log := k.log(-1)
	stories := map[string]*runStory{}
	var bad []string
	for _, j := range jobs {
		must(t, j.err)
		s := k.runStory(j.id)
		s.answered, s.seen, s.append, s.added = true, j.seen, j.append, j.added
		stories[hows[j.id]] = s
		bad = append(bad, wrongRuns(log, []*runStory{s})...)
		bad = append(bad, k.wrongEvidence(j.id)...)
	}
	if bad = append(bad, wrongSlots(log)...); len(bad) > 0 {
		t.Fatalf("undisturbed runs: %q\n%s", bad, brief(log))
	}
	return stories, log
}

// The positive control of the kill harness for runs that grow: its checks report each
// single fault planted in a good log.
func TestGrowthChecksDetectPlantedFaults(t *testing.T) {
	t.Parallel()
	stories, log := undisturbedGrowth(t)
	// at is the n-th entry of a kind about the task of a run whose name begins so.
	at := func(log []entry, s *runStory, kind, task string, n int) int {
		for i, e := range log {
			if e.Kind == kind && e.Run == s.id && strings.HasPrefix(e.Task, task) {
				if n--; n == 0 {
					return i
				}
			}
		}
		t.Fatalf("the log of run %s has no %s of %q:\n%s", s.id, kind, task, brief(log))
		return -1
	}
	type plant func([]entry, *runStory) []entry
	twice := func(kind, task string, n int) plant {
		return func(log []entry, s *runStory) []entry {
			i := at(log, s, kind, task, n)
			return slices.Insert(log, i+1, log[i])
		}
	}
	without := func(kind, task string, n int) plant {
		return func(log []entry, s *runStory) []entry {
			i := at(log, s, kind, task, n)
			return slices.Delete(log, i, i+1)
		}
	}
	changed := func(kind, task string, n int, change func(*entry)) plant {
		return func(log []entry, s *runStory) []entry { change(&log[at(log, s, kind, task, n)]); return log }
	}
	// votes changes the entry of the vote about the task of a run that asks people.
	votes := func(change func([]entry, int) []entry) plant {
		return func(log []entry, s *runStory) []entry {
			asked := log[at(log, s, "approval.requested", "", 1)].Detail.Approval
			return change(log, slices.IndexFunc(log, func(e entry) bool { return e.Kind == "operator.recorded" && e.Detail.Approval == asked }))
		}
	}
	story := func(change func(*runStory)) plant {
		return func(log []entry, s *runStory) []entry { change(s); return log }
	}
	for name, c := range map[string]struct {
		of    string
		plant plant
		want  string
	}{
		"grown twice":             {"list", twice("run.grown", "part", 1), "DOUBLED or UNTRUE: it does not grow"},
		"never grown":             {"list", without("run.grown", "part", 1), "no such task"},
		"grown too few":           {"list", changed("run.grown", "part", 1, func(e *entry) { e.Detail.Tasks-- }), "LOST or UNTRUE: it grows 2 tasks"},
		"a grown task lost":       {"list", without("task.done", "part.1[y]", 1), "LOST: task part.1[y] is running"},
		"a grown task done twice": {"list", twice("task.done", "part.1[y]", 1), "it is done already"},
		"done before its children": {"list", func(log []entry, s *runStory) []entry {
			i := at(log, s, "task.done", "part.1", 4)
			e := log[i]
			return slices.Insert(slices.Delete(log, i, i+1), at(log, s, "run.grown", "part", 1)+1, e)
		}, "UNTRUE: it was growing"},
		"a round of a gate twice":      {"gate", twice("run.grown", "work", 2), "DOUBLED or UNTRUE"},
		"a gate passed while red":      {"gate", without("run.grown", "work", 2), "no such task"},
		"a gate without its work":      {"gate", without("dispatch.finished", "work.0", 1), "its dispatch ended with"},
		"a finding that was not fixed": {"gate", without("task.done", "work.0.fix1", 1), "UNTRUE"},
		"a quorum not reached":         {"quorum", without("task.done", "vote.1.vote1", 1), "UNTRUE: it was growing"},
		"approved without a vote": {"approval", votes(func(log []entry, i int) []entry {
			return slices.Delete(log, i, i+1)
		}), "UNTRUE: it was waiting"},
		"a vote twice": {"approval", votes(func(log []entry, i int) []entry {
			return slices.Insert(log, i, log[i])
		}), "DOUBLED or UNTRUE: " + approver + " votes"},
		"a vote of another": {"approval", votes(func(log []entry, i int) []entry {
			log[i].By = "human:eve"
			return log
		}), "human:eve votes"},
		"a denial approved": {"approval", votes(func(log []entry, i int) []entry {
			log[i].Detail.Verb = "approval.deny"
			return log
		}), "UNTRUE: it was waiting"},
		"an approval denied": {"denial", votes(func(log []entry, i int) []entry {
			log[i].Detail.Verb = "approval.approve"
			return log
		}), "UNTRUE: it was waiting, the votes are"},
		"asked twice":              {"approval", twice("approval.requested", "ship", 1), "DOUBLED or UNTRUE"},
		"waited twice":             {"approval", twice("task.waiting", "ship", 1), "DOUBLED or UNTRUE"},
		"a condition that holds":   {"when", story(func(s *runStory) { s.plan.Tasks[1].When.Is = s.plan.Tasks[2].When.Is }), "UNTRUE: it was pending and is skipped"},
		"a condition that fails":   {"when", story(func(s *runStory) { s.plan.Tasks[2].When.Is = []byte(`"high"`) }), "its condition does not hold"},
		"a skip that was not done": {"when", without("task.skipped", "edits.1", 1), "it depends on edits.1, which is not done"},
		"appended twice":           {"append", twice("run.appended", "", 1), "DOUBLED or UNTRUE: tasks were added 2 times"},
		"an append lost":           {"append", without("run.appended", "", 1), "LOST: its caller got a response that tasks were added"},
		"an append of too few":     {"append", changed("run.appended", "", 1, func(e *entry) { e.Detail.Tasks = 1 }), "LOST or UNTRUE: it adds 1 tasks"},
		"beyond the budget":        {"budget", story(func(s *runStory) { s.plan.Budget.Dispatches = 1 }), "DOUBLED: it is dispatch 2 of a run that has a budget of 1"},
		"denied within the budget": {"budget", story(func(s *runStory) { s.plan.Budget.Dispatches = 3 }), "UNTRUE: it was running, and its run has 2 dispatches"},
	} {
		s := *stories[c.of]
		s.plan.Tasks = slices.Clone(s.plan.Tasks)
		for i := range s.plan.Tasks {
			if w := s.plan.Tasks[i].When; w != nil {
				s.plan.Tasks[i].When = &api.When{Task: w.Task, Result: w.Result, Is: w.Is}
			}
		}
		if b := s.plan.Budget; b != nil {
			s.plan.Budget = &api.Budget{Dispatches: b.Dispatches}
		}
		planted := c.plant(slices.Clone(log), &s)
		if bad := strings.Join(wrongRuns(planted, []*runStory{&s}), "\n"); !strings.Contains(bad, c.want) {
			t.Errorf("%s: the check says %q, want %q", name, bad, c.want)
		}
	}
	for how, s := range stories {
		if bad := wrongRuns(log, []*runStory{s}); len(bad) > 0 {
			t.Errorf("faults planted in copies changed the story of %s itself: %q", how, bad)
		}
	}
}

// The positive control of the checks of slots and of reuse.
func TestSlotAndReuseChecksDetectPlantedFaults(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	slot := func(kind string, minute int, schedule string) entry {
		e := entry{Kind: kind, At: start.Add(time.Duration(minute) * time.Minute)}
		if kind == "schedule.fired" || kind == "run.submitted" || kind == "dispatch.accepted" {
			e.Run = string(api.ScheduleRun(api.Name(schedule), e.At))
		}
		if strings.HasPrefix(kind, "schedule.") {
			e.Detail.Schedule, e.Detail.Slot = schedule, e.At.Format(time.RFC3339)
		}
		return e
	}
	var good []entry
	for n := range 3 {
		good = append(good, slot("schedule.fired", n, "minutely"), slot("run.submitted", n, "minutely"), slot("dispatch.accepted", n, "minutely"))
	}
	good = append(good, slot("schedule.run", 2, "asked"), slot("schedule.fired", 2, "asked"), slot("run.submitted", 2, "asked"))
	for name, c := range map[string]struct {
		plant func(log []entry) []entry
		want  string
	}{
		"good":                {func(log []entry) []entry { return log }, ""},
		"fired twice":         {func(log []entry) []entry { return append(log, log[0]) }, "DOUBLED: it is decided 2 times"},
		"submitted twice":     {func(log []entry) []entry { return append(log, log[1]) }, "DOUBLED: it is submitted 2 times"},
		"not submitted":       {func(log []entry) []entry { return slices.Delete(log, 4, 5) }, "LOST: the run"},
		"a slot lost":         {func(log []entry) []entry { return slices.Delete(log, 3, 6) }, "LOST or DOUBLED: slot"},
		"the last slots lost": {func(log []entry) []entry { return append(log, slot("dispatch.accepted", 9, "x")) }, "LOST: the last slot"},
		"a request lost":      {func(log []entry) []entry { return slices.Delete(log, 10, 12) }, "is requested 1 times and decided 0 times"},
		"another run":         {func(log []entry) []entry { log[3].Run = "other"; return log }, "DOUBLED or UNTRUE"},
		"beyond the budget": {func(log []entry) []entry {
			for range slotBudget {
				log = append(log, log[2])
			}
			return log
		}, fmt.Sprintf("DOUBLED: dispatch %d of a budget", slotBudget+1)},
		"denied within the budget": {func(log []entry) []entry {
			denied := slot("dispatch.accepted", 2, "minutely")
			denied.Kind = "task.denied"
			return append(log, denied)
		}, "UNTRUE: denied after 3 dispatches"},
	} {
		if bad := strings.Join(wrongSlots(c.plant(slices.Clone(good))), "\n"); !strings.Contains(bad, c.want) || c.want == "" && bad != "" {
			t.Errorf("%s: the check says %q, want %q", name, bad, c.want)
		}
	}

	inputs := map[string]string{"one/a": "1", "two/a": "1", "two/b": needsOf + "a", "two/c": "2", "three/a": "2"}
	at := func(seq uint64, kind, run, task, dispatch, of string) entry {
		e := entry{Seq: seq, Kind: kind, Run: run, Task: task, Dispatch: dispatch}
		e.Detail.Of = of
		return e
	}
	ran := []entry{at(1, "task.started", "one", "a", "d1", ""), at(2, "dispatch.accepted", "one", "a", "d1", ""), at(3, "dispatch.finished", "one", "a", "d1", ""), at(4, "task.done", "one", "a", "d1", "")}
	for name, c := range map[string]struct {
		log  []entry
		want string
	}{
		"good":         {[]entry{at(5, "task.started", "two", "a", "d2", ""), at(6, "task.reused", "two", "a", "d2", "d1")}, ""},
		"runs again":   {[]entry{at(5, "task.started", "two", "a", "d2", ""), at(6, "dispatch.accepted", "two", "a", "d2", "")}, "DOUBLED: two/a runs again"},
		"other inputs": {[]entry{at(5, "task.started", "three", "a", "d2", ""), at(6, "task.reused", "three", "a", "d2", "d1")}, "UNTRUE: three/a reuses"},
		"a need": {[]entry{
			at(5, "task.started", "two", "a", "d2", ""), at(6, "task.reused", "two", "a", "d2", "d1"), at(7, "task.done", "two", "a", "d2", ""), at(8, "task.started", "two", "c", "d3", ""), at(9, "dispatch.finished", "two", "c", "d3", ""), at(10, "task.done", "two", "c", "d3", ""),
			at(11, "task.started", "two", "b", "d4", ""), at(12, "dispatch.finished", "two", "b", "d4", ""), at(13, "task.started", "two", "b", "d5", ""), at(14, "task.reused", "two", "b", "d5", "d4"),
		}, ""},
		"another need": {[]entry{
			at(5, "task.started", "two", "b", "d4", ""), at(6, "dispatch.finished", "two", "b", "d4", ""), at(7, "task.started", "two", "a", "d2", ""), at(8, "dispatch.finished", "two", "a", "d2", ""), at(9, "task.done", "two", "a", "d2", ""),
			at(10, "task.started", "two", "b", "d5", ""), at(11, "task.reused", "two", "b", "d5", "d4"),
		}, "UNTRUE: two/b reuses"},
		"no result": {[]entry{at(5, "task.started", "two", "a", "d2", ""), at(6, "task.reused", "two", "a", "d2", "d9")}, "UNTRUE: two/a reuses"},
	} {
		m := &made{map[string]string{}, map[string]string{}, map[string]uint64{}}
		if bad := strings.Join(m.wrongReuse(slices.Concat(ran, c.log), inputs, 0), "\n"); !strings.Contains(bad, c.want) || c.want == "" && bad != "" {
			t.Errorf("%s: the check says %q, want %q", name, bad, c.want)
		}
	}
}
