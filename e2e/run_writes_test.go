package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
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

	w.replace(manifest, "timeout: 1s", "timeout: 1h")
	w.must("catalog", "apply", "-f", w.path(manifest))
	cancelled := w.submitted("cancelled", tasks)
	w.awaitAsked(cancelled, "ship")
	w.must("run", "cancel", string(cancelled))
	if got := w.awaitSettled(cancelled); got.State != api.RunCancelled {
		t.Errorf("cancelled: %+v", got)
	}
	w.verifyEvidence(string(cancelled))
}

// admitted counts the dispatches of a subagent.
func (w *world) admitted(subagent api.Name) (n int) {
	w.t.Helper()
	for _, d := range w.list() {
		if d.Subagent == subagent {
			n++
		}
	}
	return n
}

// Neither an AI nor the person who submits gets anything written without the approval of
// another person: not by a dispatch, a vote, an append, a growth or a retry. Control: once
// another person approves, each writes.
//
// takeover both modes, AI client: no approve
//
// proves R-O12
func TestNoAIGetsAroundTheApprovalOfWrites(t *testing.T) {
	t.Parallel()
	w := writing(t, `{by: ["human:bob", "human:eve"]}`)
	token, _ := w.token("agent:claude")
	const mine = `writes: {by: ["human:bob", "human:eve"]}, `
	grant := "sources: [repo], targets: [local, looking], ceiling: reversible}\n"
	w.replace(manifest, grant, grant+`  - {principal: "agent:claude", append: true, `+mine+`subagents: [sh, writer], sources: [repo], targets: [local], ceiling: reversible}
  - {principal: "human:bob", `+mine+`subagents: [writer], sources: [repo], targets: [local], ceiling: reversible}
`)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("ceiling", "set", "agent:claude", "reversible")
	w.must("ceiling", "set", "human:bob", "reversible")
	ai := w.runtime(token, nil)
	ctx := t.Context()

	_, err := ai.Dispatch(ctx, api.DispatchRequest{Subagent: "writer", Input: json.RawMessage(`{"do":"true"}`)})
	if api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "only a run waits for that") {
		t.Errorf("the AI dispatches it: %v", err)
	}
	w.refused(3, []string{"has the effect write", "bailiwick run submit"}, "dispatch", "run", "writer", "--input", `{"do":"true"}`)

	submit := func(r client.Runtime, id string, tasks ...api.PlanTask) api.RunID {
		t.Helper()
		plan, err := json.Marshal(planned(api.RunID(id), tasks...))
		must(t, err)
		run, err := r.Submit(ctx, api.RunRequest{Plan: plan})
		must(t, err)
		return run.RunID
	}
	write := func(id api.TaskID, more ...func(*api.PlanTask)) api.PlanTask {
		return shellTask(id, "true", append([]func(*api.PlanTask){as("writer")}, more...)...)
	}
	run := submit(ai, "of-claude", write("first"))
	first := w.awaitAsked(run, "first")
	seen, err := ai.Approval(ctx, api.ApprovalID(first))
	if err != nil || seen.Head != nil || !strings.Contains(seen.WhyNot, "only people") {
		t.Errorf("the AI sees %+v %v", seen, err)
	}
	if _, err := ai.Vote(ctx, api.ApprovalID(first), json.RawMessage(`{}`)); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("the AI votes: %v", err)
	}
	w.refused(3, []string{"do not list"}, "approval", "approve", first) // the operator

	more, err := json.Marshal([]api.PlanTask{write("more")})
	must(t, err)
	_, err = ai.Append(ctx, run, api.RunAppend{Tasks: more})
	must(t, err)
	appendix := w.awaitAsked(run, "more")

	bob, err := os.ReadFile(w.tokenFile("human:bob"))
	must(t, err)
	own := submit(w.runtime(strings.TrimSpace(string(bob)), nil), "of-bob", write("his"))
	his := w.awaitAsked(own, "his")
	w.refused(3, []string{"submitted run of-bob"}, append([]string{"approval", "approve", his}, w.person("bob")...)...)

	grown := submit(ai, "grown", shellTask("before", "true"), api.PlanTask{ID: "part", Subagent: "writer", DependsOn: []api.TaskID{"before"}, ForEach: &api.ForEach{Values: []json.RawMessage{json.RawMessage(`"x"`)}}, Source: &api.SourceRequest{Name: "repo"}, Input: json.RawMessage(`{"do":"true"}`)})
	part := w.awaitAsked(grown, "part[x]")

	w.must(append([]string{"approval", "deny", part}, w.person("bob")...)...)
	w.awaitSettled(grown)
	if n := w.admitted("writer"); n != 0 {
		t.Fatalf("%d writes before anybody approved", n)
	}
	for _, id := range []string{first, appendix} {
		w.must(append([]string{"approval", "approve", id}, w.person("bob")...)...)
	}
	w.must(append([]string{"approval", "approve", his}, w.person("eve")...)...)
	for _, run := range []api.RunID{run, own} {
		if got := w.awaitSettled(run); got.State != api.RunDone {
			t.Errorf("approved: %+v", got)
		}
		w.verifyEvidence(string(run))
	}
	w.verifyEvidence(string(grown))
	if n := w.admitted("writer"); n != 3 {
		t.Errorf("%d writes after three approvals", n)
	}
}

// An attempt that fails after people approved it is approved again before the next one
// writes, and so is the task of a run that is retried.
//
// proves R-O12
func TestARetryOfAnApprovedWriteAsksAgain(t *testing.T) {
	t.Parallel()
	w := writing(t, `{by: ["human:bob"]}`)
	run := w.submitted("again", "  - {id: build, subagent: sh, input: {do: \"true\"}}\n  - {id: ship, subagent: writer, retry: {attempts: 2, on: [agent], backoff: 1ms..2ms}, input: {do: \"exit 3\"}}\n")
	approve := func(id string) { w.must(append([]string{"approval", "approve", id}, w.person("bob")...)...) }
	first := w.awaitAsked(run, "ship")
	approve(first)
	second := ""
	for range polling(time.Minute) {
		if second = w.awaitAsked(run, "ship"); second != "" && second != first {
			break
		}
	}
	if second == first {
		t.Fatal("the second attempt has the approval of the first")
	}
	if n := w.admitted("writer"); n != 1 {
		t.Errorf("%d attempts admitted by one approval", n)
	}
	approve(second)
	if got := w.awaitSettled(run); got.State != api.RunFailed || got.Tasks[1].Attempt != 2 {
		t.Errorf("after both: %+v", got)
	}
	w.verifyEvidence(string(run))
	w.must("run", "retry", string(run), "--id", "once-more")
	third := w.awaitAsked("once-more", "ship")
	if n := w.admitted("writer"); third == second || n != 2 {
		t.Errorf("the retry of the run asks %s, after %s; %d admitted", third, second, n)
	}
	w.must("run", "cancel", "once-more")
	w.awaitSettled("once-more")
	w.verifyEvidence("once-more")
}

// A service killed while a task waits for people to approve what it writes, or as its
// dispatch is admitted, asks once more or continues: the task writes once, with one
// approval.
//
// proves R-O6, R-O12
func TestKillsLoseNoApprovalOfAWrite(t *testing.T) {
	for at, asked := range map[failpoint.Name]bool{
		failpoint.TaskAsk: false, failpoint.TaskVoted: false, failpoint.AcceptCommit: true, failpoint.AcceptCommitted: true, failpoint.RunRequested: true,
	} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 13)
			must(t, os.Chmod(k.dir, 0o755))
			k.mkdir("gate")
			k.runManifest(subagent{name: "writer", script: "true", more: "    effect: write\n"})
			k.replace(manifest, "principal: \""+k.me()+"\",", "principal: \""+k.me()+"\", writes: {by: [\"human:bob\"]},")
			k.flags = []string{"--orchestrator"}
			k.must("catalog", "apply", "-f", k.path(manifest))
			k.operator("bob")
			k.up(func() {})
			k.token("human:bob")
			// The service may end before it answers.
			kill := func(do func() error) error {
				k.arm(string(at) + " 1 kill")
				answered := make(chan error, 1)
				go func() { answered <- do() }()
				<-k.current().ended
				k.arm()
				k.up(func() {})
				return <-answered
			}
			raw, err := json.Marshal(planned("killed", shellTask("ship", "true", as("writer"))))
			must(t, err)
			submit := func() error {
				return k.insist(http.MethodPost, "/v1/runtime/runs", api.RunRequest{Plan: raw, Key: "k"}, new(api.Run))
			}
			approve := func(id string) error {
				// With --socket it starts no service.
				d := k.try(append([]string{"--socket", k.path("run/bailiwick/api.sock"), "approval", "approve", id}, k.person("bob")...)...)
				if d.status != 0 {
					return errors.New(d.String())
				}
				return nil
			}
			if asked {
				must(t, submit())
				id := k.awaitAsked("killed", "ship") // the attempt before it passed these points, too
				if kill(func() error { return approve(id) }) != nil {
					_ = approve(id) // the first vote may count already
				}
			} else {
				must(t, kill(submit))
				must(t, approve(k.awaitAsked("killed", "ship")))
			}
			wantStates(t, k.awaitSettled("killed"), "done; ship done")
			if n := k.admitted("writer"); n != 1 {
				t.Errorf("%d writes", n)
			}
			if n := len(k.entries("--kind", "approval.requested")); n != 1 {
				t.Errorf("people were asked %d times", n)
			}
			k.verifyEvidence("killed")
		})
	}
}
