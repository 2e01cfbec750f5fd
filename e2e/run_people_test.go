package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// person votes with a token and a key of their own.
func (w *world) person(name string) []string {
	return []string{"--principal-token-file", w.tokenFile("human:" + name), "--key", w.path("home/" + name + ".key")}
}

// awaitAsked returns the open request about a task of a run.
func (w *world) awaitAsked(run api.RunID, task api.TaskID) string {
	w.t.Helper()
	for range polling(time.Minute) {
		for _, a := range w.run(run).Approvals {
			if a.Task == task {
				return string(a.ID)
			}
		}
	}
	w.t.Fatalf("task %s of run %s waits for nobody", task, run)
	return ""
}

// Two people with tokens and keys of their own approve a task, before and after a restart;
// one with the other's key does not count. A person denies, a request expires, a person
// votes in a quorum either way. What a worker leaves is shown escaped. The evidence of
// each verifies.
//
// proves R-O9
func TestPeopleDecideAboutTasks(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "yes", script: "mkdir -p outputs\necho '{\"verdict\": \"approve\"}' > outputs/result.json\n", more: "    output: {type: object}\n"})
	w.operator("bob")
	w.operator("eve")
	w.upRuns()
	w.downAtEnd()
	w.token("human:bob")
	w.token("human:eve")
	submit := func(id, tasks string) api.RunID {
		t.Helper()
		w.write(id+".yaml", "id: "+id+"\nsource: {name: repo}\ntasks:\n"+tasks, 0o644)
		w.must("run", "submit", w.path(id+".yaml"), "-q")
		return api.RunID(id)
	}
	ends := func(run api.RunID, want api.RunState) api.Run {
		t.Helper()
		got := w.awaitSettled(run)
		if got.State != want {
			t.Errorf("run %s is %s, want %s: %+v", run, got.State, want, got.Tasks)
		}
		w.verifyEvidence(string(run))
		return got
	}
	hostile := `printf 'x' > 'outputs/a\u202eb'; printf 'x' > "$(printf 'two\nvote        y\033[2J')"; echo built > outputs/o`
	two := submit("two", "  - {id: build, subagent: sh, input: {do: "+fmt.Sprintf("%q", hostile)+"}}\n"+
		"  - {id: ship, approval: {by: [\"human:bob\", \"human:eve\"], count: 2, show: [build]}}\n")
	late := submit("late", "  - {id: build, subagent: sh, input: {do: \"true\"}}\n  - {id: ship, approval: {by: [\"human:bob\"], show: [build], timeout: 1s}}\n")
	id := w.awaitAsked(two, "ship")
	shown := w.must(append([]string{"approval", "show", id}, w.person("bob")[:2]...)...)
	if strings.ContainsAny(shown, "\x1b\u202e") || strings.Contains(shown, "\nvote        y") {
		t.Errorf("show lets hostile text through: %q", shown)
	}
	w.must(append([]string{"approval", "approve", id}, w.person("bob")...)...)
	w.refused(1, []string{"belongs to human:bob, not to human:eve"}, "approval", "approve", id, "--principal-token-file", w.tokenFile("human:eve"), "--key", w.path("home/bob.key"))
	w.must("down")
	w.upRuns()
	wantIn(t, "run show after a restart", w.must("run", "show", string(two)), "1 of 2 have approved", "bailiwick approval approve "+id)
	w.must(append([]string{"approval", "approve", id}, w.person("eve")...)...)
	ends(two, api.RunDone)
	if task := ends(late, api.RunFailed).Tasks[1]; task.Reason != api.ReasonTimeout || !strings.Contains(task.Message, "expired") {
		t.Errorf("after its time: %+v", task)
	}
	for verb, want := range map[string]api.RunState{"approve": api.RunDone, "deny": api.RunFailed} {
		run := submit("poll-"+verb, "  - {id: build, subagent: sh, input: {do: \"echo two >> a.txt\"}}\n"+
			"  - {id: review, quorum: {of: [\"yes\", \"human:bob\"], approve: 2}, needs: {change: {from: build, patch: true}}}\n")
		id := w.awaitAsked(run, "review.vote2")
		w.must(append([]string{"approval", verb, id}, w.person("bob")...)...)
		ends(run, want)
	}
}
