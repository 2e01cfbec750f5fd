package e2e

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// writing is a world whose owner's grant has writes, with a subagent "writer" that does
// what its input says and has the effect write. It runs a service with an orchestrator.
func writing(t *testing.T, rule string) *world {
	t.Helper()
	w := prepared(t, 0, subagent{name: "writer", script: "set -e\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\"", more: "    prompt: \"{{.do}}\"\n    effect: write\n"})
	w.replace(manifest, "principal: \""+w.me()+"\",", "principal: \""+w.me()+"\", writes: "+rule+",")
	w.must("catalog", "apply", "-f", w.path(manifest))
	for _, name := range []string{"bob", "eve"} {
		w.operator(name)
	}
	w.upRuns()
	w.downAtEnd()
	w.token("human:bob")
	w.token("human:eve")
	return w
}

// submitted submits a plan of tasks.
func (w *world) submitted(id, tasks string) api.RunID {
	w.t.Helper()
	w.write(id+".yaml", "id: "+id+"\nsource: {name: repo}\ntasks:\n"+tasks, 0o644)
	w.must("run", "submit", w.path(id+".yaml"), "-q")
	return api.RunID(id)
}

// A task whose subagent writes waits for people before its dispatch exists, with what
// they see in what they sign; a denial ends it, and time does. Control: what does not
// write waits for nobody. The evidence of each verifies.
//
// proves R-O12
func TestPeopleApproveATaskBeforeItWrites(t *testing.T) {
	t.Parallel()
	w := writing(t, `{by: ["human:bob", "human:eve"], count: 2}`)
	tasks := "  - {id: build, subagent: sh, input: {do: \"echo two >> a.txt; echo built > outputs/o\"}}\n" +
		"  - {id: ship, subagent: writer, needs: {change: {from: build, patch: true}}, input: {do: \"cp inputs/change outputs/shipped\"}}\n"
	run := w.submitted("two", tasks)
	id := w.awaitAsked(run, "ship")
	if n := len(w.entries("--kind", "dispatch.accepted", "--run", string(run))); n != 1 {
		t.Errorf("%d dispatches before anybody approved, want that of build", n)
	}
	shown := w.must(append([]string{"approval", "show", id}, w.person("bob")[:2]...)...)
	wantIn(t, "approval show", shown, "cp inputs/change outputs/shipped", "inputs/change is the patch of task build", "subagent writer", "repo at commit ", "bailiwick dispatch patch")
	wantIn(t, "run show", w.must("run", "show", string(run)), "human:bob, human:eve (0 of 2 have approved)", "bailiwick approval approve "+id)
	w.must(append([]string{"approval", "approve", id}, w.person("bob")...)...)
	w.must("down") // one of two has approved
	w.upRuns()
	if got := w.awaitAsked(run, "ship"); got != id {
		t.Errorf("after a restart people are asked %s, before %s", got, id)
	}
	w.must(append([]string{"approval", "approve", id}, w.person("eve")...)...)
	if got := w.awaitSettled(run); got.State != api.RunDone {
		t.Errorf("approved: %+v", got)
	}
	if out := w.must(append([]string{"approval", "show", id}, w.person("bob")[:2]...)...); !strings.Contains(out, "used") {
		t.Errorf("after it: %s", out)
	}
	w.verifyEvidence(string(run))

	denied := w.submitted("denied", tasks)
	id = w.awaitAsked(denied, "ship")
	w.must(append([]string{"approval", "deny", id, "--reason", "not on Fridays"}, w.person("bob")...)...)
	got := w.awaitSettled(denied)
	if task := got.Tasks[1]; got.State != api.RunFailed || task.State != api.TaskDenied || !strings.Contains(task.Message, "not on Fridays") {
		t.Errorf("denied: %+v", got)
	}
	w.verifyEvidence(string(denied))

	w.replace(manifest, "count: 2", "count: 2, timeout: 1s")
	w.must("catalog", "apply", "-f", w.path(manifest))
	late := w.submitted("late", tasks)
	got = w.awaitSettled(late)
	if task := got.Tasks[1]; got.State != api.RunFailed || task.Reason != api.ReasonTimeout || !strings.Contains(task.Message, "expired") {
		t.Errorf("after its time: %+v", got)
	}
	w.verifyEvidence(string(late))

	cancelled := w.submitted("cancelled", tasks)
	w.awaitAsked(cancelled, "ship")
	w.must("run", "cancel", string(cancelled))
	if got := w.awaitSettled(cancelled); got.State != api.RunCancelled {
		t.Errorf("cancelled: %+v", got)
	}
	w.verifyEvidence(string(cancelled))
}
