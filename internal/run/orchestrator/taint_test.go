package orchestrator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The engine passes on the dispatches whose content decided that a task runs: the one
// that a condition reads, the voters of a quorum and what they judged by, also to tasks
// further down. Order alone decides nothing. Package dispatch begins a dispatch with
// their taint.
func TestTheEngineNamesWhatDecidedThatATaskRuns(t *testing.T) {
	const text = `{"tasks":[{"id":"r","subagent":"work"},{"id":"if","subagent":"work","when":{"task":"r","result":"$.go","is":true}},
{"id":"below","subagent":"work","depends_on":["if"]},{"id":"order","subagent":"work","depends_on":["r"]},
{"id":"q","quorum":{"of":["work","work"],"approve":2}},{"id":"voted","subagent":"work","depends_on":["q"]}]}`
	for _, crash := range []bool{false, true} {
		inGrowing(t, func(g *growing) {
			g.crash = crash
			g.gives["r"] = `{"go":true}`
			g.gives["q.vote1"], g.gives["q.vote2"] = `{"verdict":"approve"}`, `{"verdict":"approve"}`
			r := g.run(text)
			if r.State != api.RunDone {
				g.t.Fatalf("%s", told(r))
			}
			for task, want := range map[api.TaskID]string{"if": "r", "below": "r", "order": "", "voted": "q.vote1 q.vote2", "r": "", "q.vote1": ""} {
				var got []string
				for _, j := range g.desk.sorted(func(j *job) bool { return j.order.Task == task }) {
					for _, by := range j.order.Influences {
						got = append(got, string(g.desk.jobs[by].order.Task))
					}
				}
				if slices.Sort(got); strings.Join(got, " ") != want {
					g.t.Fatalf("crash %v: %s is decided by %q, want %q", crash, task, got, want)
				}
			}
		})
	}
}
