package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// undisturbedRuns returns the stories of undisturbed runs, with the whole log.
func undisturbedRuns(t *testing.T) ([]*runStory, []entry, []hit) {
	t.Helper()
	k := newTrial(t, 0, *seedFlag)
	k.flags = []string{"--orchestrator"}
	k.up(func() {})
	var stories []*runStory
	id := k.id("r", "good")
	p := api.Plan{ID: api.RunID(id), Source: &api.SourceRequest{Name: "repo"}, Tasks: []api.PlanTask{
		{ID: "one", Subagent: "edits", Locks: []api.Lock{{Key: "k"}}},
		{ID: "two", Subagent: "edits", Locks: []api.Lock{{Key: "k"}}},
		{ID: "asks.3", Subagent: "asks", DependsOn: []api.TaskID{"one"}},
		{ID: "four", Subagent: "fails", Retry: api.Retry{Attempts: 2, Backoff: api.Backoff{Min: api.Duration(time.Millisecond), Max: api.Duration(time.Second)}}},
		{ID: "five", Subagent: "edits", DependsOn: []api.TaskID{"four"}},
	}}
	j := &runJob{id: id, plan: p}
	k.carryOut(j)
	must(t, j.err)
	s := k.runStory(id)
	s.answered, s.seen = true, j.seen
	stories = append(stories, s)
	hits, _ := k.hits(0)
	log := k.log(-1)
	if bad := slices.Concat(wrongRuns(log, stories), overlaps(log, hits), gaps(log)); len(bad) > 0 {
		t.Fatalf("an undisturbed run: %q", bad)
	}
	return stories, log, hits
}

// The positive control of the kill harness for runs: its checks report each
// single fault planted in a good log.
func TestRunChecksDetectPlantedFaults(t *testing.T) {
	t.Parallel()
	genuine, log, hits := undisturbedRuns(t)
	// at is the n-th entry of a kind about a task.
	at := func(log []entry, kind, task string, n int) int {
		for i, e := range log {
			if e.Kind == kind && e.Task == task {
				if n--; n == 0 {
					return i
				}
			}
		}
		t.Fatalf("the log has no %s of %q", kind, task)
		return -1
	}
	twice := func(kind, task string, n int) func([]entry, *runStory) []entry {
		return func(log []entry, _ *runStory) []entry {
			i := at(log, kind, task, n)
			return slices.Insert(log, i+1, log[i])
		}
	}
	without := func(kind, task string, n int) func([]entry, *runStory) []entry {
		return func(log []entry, _ *runStory) []entry {
			i := at(log, kind, task, n)
			return slices.Delete(log, i, i+1)
		}
	}
	moved := func(kind, task, behind, of string) func([]entry, *runStory) []entry {
		return func(log []entry, _ *runStory) []entry {
			i := at(log, kind, task, 1)
			e := log[i]
			log = slices.Delete(log, i, i+1)
			return slices.Insert(log, at(log, behind, of, 1)+1, e)
		}
	}
	story := func(change func(*runStory)) func([]entry, *runStory) []entry {
		return func(log []entry, s *runStory) []entry { change(s); return log }
	}
	for name, c := range map[string]struct {
		plant func([]entry, *runStory) []entry
		want  string
	}{
		"no run":                        {story(func(s *runStory) { s.run = nil }), "LOST: it was submitted"},
		"submitted twice":               {twice("run.submitted", "", 1), "DOUBLED: it is submitted 2 times"},
		"settled twice":                 {twice("run.settled", "", 1), "the run has settled before it"},
		"never settled":                 {without("run.settled", "", 1), "LOST: settled in the log: false"},
		"a task started twice":          {twice("task.started", "one", 1), "DOUBLED or UNTRUE: it was running"},
		"a dispatch accepted twice":     {twice("dispatch.accepted", "one", 1), "is accepted 2 times"},
		"a task done twice":             {twice("task.done", "one", 1), "it is done already"},
		"a done task without its entry": {without("task.done", "two", 1), "LOST: task two is running"},
		"done without an end":           {without("dispatch.finished", "two", 1), "its dispatch ended with"},
		"restarted without a reason":    {without("task.waiting", "four", 1), "DOUBLED or UNTRUE: it was running"},
		"not retried": {func(log []entry, _ *runStory) []entry {
			i := at(log, "task.waiting", "four", 1)
			log[i].Kind = "task.failed"
			return log
		}, "it was not retried"},
		"a dependent not skipped":   {without("task.skipped", "five", 1), "LOST: task five is"},
		"a dependent started early": {moved("task.started", "asks.3", "run.submitted", ""), "it depends on one, which is not done"},
		"a duplicate answer":        {twice("task.answered", "asks.3", 1), "answered 2 times"},
		"no answer":                 {without("task.answered", "asks.3", 1), "0 answers"},
		"a lock with two holders": {func(log []entry, _ *runStory) []entry {
			first, second := at(log, "task.started", "one", 1), at(log, "task.started", "two", 1)
			e := log[max(first, second)]
			log = slices.Delete(log, max(first, second), max(first, second)+1)
			return slices.Insert(log, min(first, second)+1, e)
		}, "DOUBLED: lock k is held by"},
		"a fencing token that decreases": {func(log []entry, _ *runStory) []entry {
			log[max(at(log, "task.started", "one", 1), at(log, "task.started", "two", 1))].Detail.Fence = 0
			return log
		}, "fencing token 0"},
		"a lock not taken": {func(log []entry, _ *runStory) []entry {
			log[at(log, "task.started", "two", 1)].Detail.Locks = nil
			return log
		}, "the plan says"},
		"a different cause": {func(log []entry, _ *runStory) []entry {
			log[at(log, "task.skipped", "five", 1)].Detail.Cause = "one"
			return log
		}, `skipped because of "one"`},
		"a different state":   {story(func(s *runStory) { s.run.Tasks[0].State = api.TaskFailed }), "UNTRUE: task one is failed"},
		"a different outcome": {story(func(s *runStory) { s.run.State = api.RunDone }), "UNTRUE: it is done"},
		"a different count":   {story(func(s *runStory) { s.run.Counts = map[api.TaskState]int{api.TaskDone: 1} }), "UNTRUE: it counts 1 done"},
		"a missing task":      {story(func(s *runStory) { s.run.Tasks = s.run.Tasks[1:] }), "LOST: it has 4 tasks"},
		"a missing event":     {story(func(s *runStory) { s.seen = s.seen[1:] }), "its follower"},
	} {
		s := *genuine[0]
		run := *s.run
		run.Tasks, run.Counts = slices.Clone(run.Tasks), maps.Clone(run.Counts)
		s.run = &run
		planted := c.plant(slices.Clone(log), &s)
		if bad := strings.Join(wrongRuns(planted, []*runStory{&s}), "\n"); !strings.Contains(bad, c.want) {
			t.Errorf("%s: the check says %q, want %q", name, bad, c.want)
		}
	}
	// Workers that ran at the same time under one exclusive lock.
	var together []hit
	for _, name := range []failpoint.Name{failpoint.WorkerAgent, failpoint.WorkerAgentEnded} {
		for _, h := range hits {
			if h.name == name {
				together = append(together, h)
			}
		}
	}
	if bad := strings.Join(overlaps(log, together), "\n"); !strings.Contains(bad, "both need lock k") {
		t.Errorf("two holders at the same time are not reported: %q", bad)
	}
	if bad := wrongRuns(log, genuine); len(bad) > 0 {
		t.Errorf("faults planted in copies changed the story itself: %q", bad)
	}
}
