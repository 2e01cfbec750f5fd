package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// appended is a file of tasks for run append.
func appended(t testing.TB, tasks ...api.PlanTask) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"tasks": tasks})
	must(t, err)
	return string(b)
}

// The owner of an open run adds tasks to it, which begin as if the plan had them. What
// does not fit is refused whole, and says why.
//
// proves R-O9
func TestAppendToARun(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := orchestrated(t, uid)
		plan := planned("open", shellTask("a", "echo ONE > a.txt; "+awaitGate("a")), shellTask("lost", "exit 3"))
		plan.Limits.Tasks = 6
		id := w.submit(plan)
		w.begunTask(id, "a")
		w.awaitEvent(id, event("task.failed", "lost"))
		w.write("more.json", appended(t,
			shellTask("c", "cat inputs/one > c.txt", needing("one", api.Need{From: "b", Patch: true})), // out of order
			shellTask("b", "git apply inputs/change", needing("change", api.Need{From: "a", Patch: true})),
			shellTask("behind", "true", after("lost")),
		), 0o644)
		if dry := w.chosen(w.must("run", "append", string(id), w.path("more.json"), "--dry-run")); !strings.Contains(dry, "run open would have 5 tasks; nothing was appended") || w.run(id).Total != 2 {
			t.Errorf("dry run: %s, %d tasks", dry, w.run(id).Total)
		}
		w.must("run", "append", string(id), w.path("more.json"), "--key", "once")
		w.must("run", "append", string(id), w.path("more.json"), "--key", "once") // idempotent
		wantStates(t, w.run(id), "running; a running; lost failed agent; b pending; c pending; behind skipped")
		w.refusesAppends(id)
		w.open("a")
		run := w.awaitSettled(id)
		wantStates(t, run, "failed; a done; lost failed agent; b done; c done; behind skipped")
		if d := w.show(string(task(t, run, "b").DispatchID)); d.Run != id {
			t.Errorf("the appended task is %+v", d)
		}
		w.refused(1, []string{"run open is failed: only a run that has not ended takes more tasks"}, "run", "append", string(id), w.path("more.json"))
		if n := len(w.entries("--kind", "run.appended")); n != 1 {
			t.Errorf("%d appends in the log", n)
		}
	})
}

// refusesAppends appends what is refused to an open run of six tasks at most, that has
// five.
func (w *world) refusesAppends(id api.RunID) {
	w.t.Helper()
	for _, c := range []struct {
		tasks  string
		status int
		words  []string
	}{
		{appended(w.t, shellTask("a", "true")), 1, []string{"bad.json:1:", "$.tasks[0].id (task a)", `task "a"`}},
		{appended(w.t, shellTask("x", "true", after("y")), shellTask("y", "true", after("x"))), 1, []string{"dependency cycle: x -> y -> x"}},
		{appended(w.t, shellTask("x", "true", after("gone"))), 1, []string{"no such task"}},
		{appended(w.t, shellTask("x", "true", as("secret"))), 3, []string{"$.tasks[0] (task x)", `subagent "secret"`}},
		{appended(w.t, shellTask("x", "true"), shellTask("y", "true")), 1, []string{"would have at least 7: its limit is 6"}},
		{`{"tasks":[],"queue":"other"}`, 1, []string{"unknown key: the file has tasks only"}},
		{`{"tasks":[]}`, 1, []string{"$.tasks"}},
		{`[]`, 1, []string{"want an object with the key tasks"}},
	} {
		w.write("bad.json", c.tasks, 0o644)
		w.refused(c.status, c.words, "run", "append", string(id), w.path("bad.json"))
	}
	w.refused(1, []string{"not found"}, "run", "append", "none", w.path("more.json"))
	if n := w.run(id).Total; n != 5 {
		w.t.Errorf("refused appends left %d tasks", n)
	}
}

// An AI appends only where a grant of its principal says so, and to its own runs only;
// bailiwick-mcp at the account of the owner needs the grant too. The controls are the
// same calls with the grant, and the owner at the command line.
//
// takeover both modes, AI client: no widen
//
// proves R-O9, R-B7
func TestOnlyAGrantLetsAnAIAppend(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	const grant = "  - {principal: \"agent:claude\", subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}\n"
	w.replace(manifest, "grants:\n", "grants:\n"+grant)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("principal", "add", "agent:claude")
	w.consent("agent:claude", "reversible")
	w.must("token", "create", "agent:claude", "--out", w.path("claude.token"))
	agent, own := w.mcp(mcpNovember, "--principal-token-file", w.path("claude.token")), w.mcp(mcpNovember)
	begun := func(s *mcpSession, id string) string {
		var run mcpRun
		s.ok("bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("", shellTask("a", awaitGate("a")))), "runId": id}, &run)
		return string(run.RunID)
	}
	ofClaude, ofOwner := begun(agent, "of-claude"), begun(own, "of-owner")
	more := func(id string) members {
		return members{"appendTo": id, "plan": members{"tasks": []api.PlanTask{shellTask("b", "true", after("a"))}}}
	}
	agent.refused(api.CodeDenied, []string{"no grant lets agent:claude append", "append: true"}, "bailiwick_orchestrator_submit", more(ofClaude))
	own.refused(api.CodeDenied, []string{"no grant lets " + w.me() + " append"}, "bailiwick_orchestrator_submit", more(ofOwner))
	agent.refused(api.CodeNotFound, nil, "bailiwick_orchestrator_submit", more(ofOwner))
	w.refused(3, []string{"no: agent:claude may not append tasks to its runs"}, "can", "agent:claude", "append")
	w.replace(manifest, grant, strings.Replace(grant, "ceiling", "append: true, ceiling", 1))
	if out := w.must("catalog", "plan", "-f", w.path(manifest)); !strings.Contains(out, "agent:claude may append tasks to its open runs, also as an AI") {
		t.Errorf("the widening is %s", out)
	}
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("can", "agent:claude", "append")
	agent.refused(api.CodeNotFound, nil, "bailiwick_orchestrator_submit", more(ofOwner))
	own.refused(api.CodeDenied, nil, "bailiwick_orchestrator_submit", more(ofOwner))
	w.write("more.json", appended(t, shellTask("b", "true", after("a"))), 0o644)
	w.refused(3, []string{"belongs to agent:claude: only its owner may append"}, "run", "append", ofClaude, w.path("more.json")) // the operator
	w.must("run", "append", ofOwner, w.path("more.json"))
	for _, bad := range []members{
		{"appendTo": ofClaude, "plan": members{"id": "x", "tasks": []api.PlanTask{}}},
		{"appendTo": ofClaude, "runId": "x", "plan": members{"tasks": []api.PlanTask{}}},
	} {
		agent.refused(api.CodeInvalid, []string{"nothing else"}, "bailiwick_orchestrator_submit", bad)
	}
	low := members{"_meta": members{"io.bailiwick/consentCeiling": "observe"}}
	w.mcp(mcpNovember, "--principal-token-file", w.path("claude.token")).refused(api.CodeDenied, []string{"declared the ceiling observe"}, "bailiwick_orchestrator_submit", more(ofClaude), low)
	var run mcpRun
	agent.ok("bailiwick_orchestrator_submit", more(ofClaude), &run)
	if run.Total != 2 {
		t.Errorf("after the append: %+v", run)
	}
	agent.refused(api.CodeInvalid, []string{`task "b"`}, "bailiwick_orchestrator_submit", more(ofClaude)) // repeated: nothing twice
	w.open("a")
	for _, id := range []api.RunID{run.RunID, api.RunID(ofOwner)} {
		wantStates(t, w.awaitSettled(id), "done; a done; b done")
	}
}

// A service killed around the commit of an append has added all tasks or none, and the
// restarted one runs what it added; repeating the command with its key adds nothing twice.
//
// proves R-O6, R-O9
func TestAppendsSurviveKills(t *testing.T) {
	for at, want := range map[failpoint.Name]int{failpoint.RunSteerCommit: 1, failpoint.RunSteerCommitted: 3} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 12)
			must(t, os.Chmod(k.dir, 0o755))
			k.mkdir("gate")
			k.runManifest()
			k.flags = []string{"--orchestrator"}
			k.must("catalog", "apply", "-f", k.path(manifest))
			k.up(func() {})
			plan := planned("open", shellTask("a", awaitGate("a")))
			raw, err := json.Marshal(plan)
			must(t, err)
			must(t, k.insist(http.MethodPost, "/v1/runtime/runs", api.RunRequest{Plan: raw}, new(api.Run)))
			k.write("more.json", appended(t, shellTask("b", "true"), shellTask("c", "true", after("b"))), 0o644)
			k.arm(string(at) + " 1 kill")
			if d := k.try("run", "append", "open", k.path("more.json"), "--key", "k"); d.status == 0 {
				t.Errorf("the service was not killed: %s", d)
			}
			<-k.current().ended
			k.arm()
			k.up(func() {})
			if n := k.world.run("open").Total; n != want {
				t.Errorf("after the kill the run has %d tasks, want %d", n, want)
			}
			k.must("run", "append", "open", k.path("more.json"), "--key", "k")
			k.open("a")
			wantStates(t, k.awaitSettled("open"), "done; a done; b done; c done")
			if n := len(k.entries("--kind", "run.appended")); n != 1 {
				t.Errorf("%d appends in the log", n)
			}
		})
	}
}
