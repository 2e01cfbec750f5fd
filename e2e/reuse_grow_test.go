package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A run that grows is reused task by task: the items of a for_each, the checks and fixes
// of a gate, and what reviewers judge. The reviewers themselves always run. Evidence of
// the reuse verifies also when the content of the earlier dispatches has been removed.
//
// proves R-O12, R-O9, R-B7
func TestRunsThatGrowAreReused(t *testing.T) {
	t.Parallel()
	const pure = "    effect: pure\n"
	lists := `    output: {type: object, properties: {files: {type: array}, verdict: {type: string}}}` + "\n"
	script := func(result string) string { return "mkdir -p outputs\necho '" + result + "' > outputs/result.json\n" }
	w := prepared(t, 0,
		subagent{name: "lists", script: script(`{"files": ["x", "y", "z"]}`), more: lists + pure},
		subagent{name: "part", script: "cat inputs/prompt.md > part.txt\n", more: "    prompt: \"{{.of}}\"\n" + pure},
		subagent{name: "verifier", script: "mkdir -p outputs\nif grep -q '^+fixed' inputs/change; then v=green; else v=red; fi\necho '{\"verdict\": \"'$v'\"}' > outputs/result.json\n", more: lists + pure},
		subagent{name: "fixer", script: "cat inputs/change > fixed.txt\necho fixed >> fixed.txt\n", more: pure},
		subagent{name: "yes", script: script(`{"verdict": "approve"}`), more: lists + pure},
	)
	w.retention("{content: {age: 1ns}}")
	w.upCollected("--orchestrator")
	plan := func(id, of string) (p api.Plan) {
		must(t, json.Unmarshal([]byte(`{"id": "`+id+`", "source": {"name": "repo"}, "tasks": [
			{"id": "list", "subagent": "lists"},
			{"id": "each", "subagent": "part", "input": {"of": "{{each.value}}", "more": "`+of+`"}, "for_each": {"from": "list", "items": "$.files[*]"}, "gate": {"verify": "verifier", "fix": "fixer"}},
			{"id": "vote", "quorum": {"of": ["yes", "yes"], "approve": 2}, "needs": {"in": {"from": "each", "patch": true}}},
			{"id": "all", "subagent": "part", "input": {"of": "all"}, "needs": {"in": {"from": "each", "patch": true}}, "depends_on": ["vote"]}]}`), &p))
		return p
	}
	settle := func(id, of string, workers int) api.Run {
		t.Helper()
		run := w.awaitSettled(w.submit(plan(id, of)))
		if n := w.started(api.RunID(id)); run.State != api.RunDone || n != workers {
			t.Errorf("run %s is %s with %d workers, want %d: %+v", id, run.State, n, workers, run.Tasks)
		}
		return run
	}
	// list, three items with a check, a fix and a check each, two reviewers, and all.
	first := settle("grown", "", 1+3*4+2+1)
	again := settle("grown-again", "", 2)
	for _, o := range again.Tasks {
		ran := strings.HasPrefix(string(o.Task), "vote[") || strings.HasPrefix(string(o.Task), "vote.")
		if dispatched := o.DispatchID != ""; dispatched && (o.Reused == nil) != ran {
			t.Errorf("task %s: reused %+v", o.Task, o.Reused)
		}
		if o.Reused != nil && o.Reused.DispatchID != task(t, first, o.Task).DispatchID {
			t.Errorf("task %s has the result of %s, want %s", o.Task, o.Reused.DispatchID, task(t, first, o.Task).DispatchID)
		}
	}
	// With another input each item runs; what follows does not, since their patches are the same.
	settle("grown-other", "!", 3+2)
	id := string(task(t, again, "all").DispatchID)
	w.must("gc")
	w.refused(1, []string{"was removed at"}, "dispatch", "patch", string(task(t, first, "all").DispatchID))
	for _, name := range []string{"grown", "grown-again", "grown-other", id} {
		w.verifyEvidence(name)
	}
	w.must("audit", "verify", "--log")
}
