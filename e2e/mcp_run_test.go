package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// mcpRun is a run as the tools return it.
type mcpRun struct {
	RunID   api.RunID
	State   api.RunState
	Settled bool
	Total   int
	Counts  map[api.TaskState]int
	Tasks   []struct {
		Task       api.TaskID
		State      api.TaskState
		DispatchID string
		After      []api.TaskID
		MoreAfter  int
		Cause      api.TaskID
		Message    string
		Asks       bool
	}
	Next, Advice string
}

func (r *mcpRun) states() string {
	var all []string
	for _, t := range r.Tasks {
		all = append(all, fmt.Sprintf("%s %s", t.Task, t.State))
	}
	return strings.Join(all, "; ")
}

// asPlan encodes a plan as a client submits it.
func asPlan(t testing.TB, p api.Plan) (plan members) {
	t.Helper()
	b, err := json.Marshal(p)
	must(t, err)
	decode(t, string(b), &plan)
	return plan
}

// watchRun follows a run until it settles, and returns its events.
func (s *mcpSession) watchRun(id api.RunID) (all []api.RunEvent) {
	s.t.Helper()
	for after := ""; ; {
		in := members{"runId": id, "timeoutSeconds": 50}
		if after != "" {
			in["after"] = after
		}
		r := s.call("bailiwick_orchestrator_watch", in, members{"_meta": members{"progressToken": "w"}})
		var page api.RunEvents
		if decode(s.t, string(r.Value), &page); r.IsError {
			s.t.Fatalf("watch of %s: %s", id, r.text())
		}
		if len(r.Value) > 200<<10 {
			s.t.Errorf("a page of events has %d bytes", len(r.Value))
		}
		all = append(all, page.Events...)
		if page.Done {
			return all
		}
		if page.Next == after {
			s.t.Fatalf("watch of %s does not advance beyond %q", id, after)
		}
		after = page.Next
	}
}

// An AI client submits a plan, watches it to the end without missing an event,
// and reads the state and results of its tasks, in each revision.
//
// proves R-O1, R-T8, R-T9
func TestClientSubmitsAndWatchesAPlan(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, clientSubmitsAndWatchesAPlan)
}

func clientSubmitsAndWatchesAPlan(t *testing.T, uid int) {
	w := orchestrated(t, uid)
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		id := api.RunID("plan-" + revision)
		plan := asPlan(t, planned("",
			shellTask("first", "echo ONE > a.txt"), shellTask("left", "cp inputs/change outputs/", needing("change", api.Need{From: "first", Patch: true})),
			shellTask("right", "echo TWO > b.txt", after("first")), shellTask("last", "true", after("left", "right")),
		))
		var run mcpRun
		s.ok("bailiwick_orchestrator_submit", members{"plan": plan, "runId": id}, &run)
		if !w.names(string(run.RunID), string(id)) || run.Total != 4 || len(run.Tasks) != 4 || run.Settled || !strings.Contains(run.Advice, "bailiwick_orchestrator_watch") {
			t.Fatalf("%s: after submission it is %+v", revision, run)
		}
		s.ok("bailiwick_orchestrator_submit", members{"plan": plan, "runId": id}, &run)
		s.refused(api.CodeConflict, []string{"bailiwick_orchestrator_status"}, "bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("", shellTask("other", "true"))), "runId": id})
		events := s.watchRun(id)
		if want := w.history(id); !slices.EqualFunc(events, want, func(a, b api.RunEvent) bool { return a.Seq == b.Seq && a.Event == b.Event }) {
			t.Errorf("%s: it saw %d events, want %d: %+v", revision, len(events), len(want), events)
		}
		if last := events[len(events)-1]; last.Event != "run.settled" || last.State != "done" {
			t.Errorf("%s: the last event is %+v", revision, last)
		}
		s.ok("bailiwick_orchestrator_status", members{"runId": id}, &run)
		if got := run.states(); run.State != api.RunDone || !run.Settled || got != "first done; left done; right done; last done" || run.Next != "" {
			t.Errorf("%s: it settled as %s: %s", revision, run.State, got)
		}
		var d mcpStanding
		s.ok("bailiwick_dispatch_describe", members{"dispatchId": run.Tasks[0].DispatchID, "include": "patch"}, &d)
		if d.Patch == nil || !strings.Contains(d.Patch.Text, "+ONE") {
			t.Errorf("%s: the patch of the first task is %+v", revision, d.Patch)
		}
		// Without an ID it is a new run with a generated one.
		var other mcpRun
		s.ok("bailiwick_orchestrator_submit", members{"plan": plan}, &other)
		if other.RunID == id || other.RunID == "" {
			t.Errorf("%s: without an id it is %q", revision, other.RunID)
		}
		s.watchRun(other.RunID)
		if n := len(w.entries("--kind", "run.submitted")); n != 2*(slices.Index(mcpRevisions(), revision)+1) {
			t.Errorf("%s: %d runs were submitted", revision, n)
		}
	}
}

// A model learns all problems of its plan at once, fixes them, and submits it
// under the same ID. A name that it may not dispatch refuses the whole plan,
// suggests an alternative, and gets the same response as an unknown name.
//
// proves R-O2, R-B6
func TestPlanProblemsLetAModelFixThePlan(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "hidden", script: "true"})
	w.replace(manifest, "checked,hidden]", "checked]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	s := w.mcp(mcpNovember)
	wrong := members{"source": members{"name": "repo"}, "colour": "red", "tasks": []any{
		members{"id": "a", "subagent": "sh", "input": members{"do": "true"}, "depends_on": []string{"nowhere"}},
		members{"id": "a", "subagent": "sh", "input": members{"do": "true"}, "retry": members{"attempts": 99}},
	}}
	e := s.refused(api.CodeInvalid, []string{"$.colour", "$.tasks[0].depends_on", "nowhere", "$.tasks[1].id", "attempts", "fix the arguments"}, "bailiwick_orchestrator_submit", members{"plan": wrong, "runId": "mended"})
	if len(e.Problems) < 4 {
		t.Errorf("the problems are %+v", e.Problems)
	}
	// It fixes exactly those problems.
	delete(wrong, "colour")
	wrong["tasks"] = []any{
		members{"id": "a", "subagent": "sh", "input": members{"do": "true"}},
		members{"id": "b", "subagent": "sh", "input": members{"do": "true"}, "retry": members{"attempts": 3}},
	}
	s.ok("bailiwick_orchestrator_submit", members{"plan": wrong, "runId": "mended"}, new(mcpRun))
	s.watchRun("mended")
	denied := func(subagent string) api.Error {
		plan := asPlan(t, planned("", shellTask("fine", "true"), shellTask("not", "true", as(api.Name(subagent)))))
		return s.refused(api.CodeDenied, []string{"do not retry", "bailiwick_subagents_list", "$.tasks[1]"}, "bailiwick_orchestrator_submit", members{"plan": plan, "runId": "denied"})
	}
	hidden, nothing := denied("hidden"), denied("nothing")
	if hidden.AuditEntry == nil || len(hidden.Problems) != 1 || strings.ReplaceAll(fmt.Sprint(hidden.Problems), "hidden", "nothing") != fmt.Sprint(nothing.Problems) {
		t.Errorf("the responses for ungranted and unknown names differ: %+v, %+v", hidden, nothing)
	}
	s.refused(api.CodeNotFound, nil, "bailiwick_orchestrator_status", members{"runId": "denied"})
	if n := len(w.entries("--kind", "run.denied")); n != 2 {
		t.Errorf("%d denials are in the log", n)
	}
}

// A run is private to its principal: another sees neither it nor whether it
// exists. A caller with a token can read its own runs but not steer them: only
// a person answers a task's question. The account's own client counts as that
// person, and its answer reaches the run.
//
// takeover both modes, AI client: no read work
//
// proves R-T4, R-D6
func TestRunsArePrivateAndTokensCannotSteer(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, runsArePrivateAndTokensCannotSteer)
}

func runsArePrivateAndTokensCannotSteer(t *testing.T, uid int) {
	w := orchestrated(t, uid)
	w.replace(manifest, "grants:\n", "grants:\n  - {principal: \"agent:claude\", subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("principal", "add", "agent:claude")
	w.consent("agent:claude", "reversible")
	w.must("token", "create", "agent:claude", "--out", w.path("claude.token"))
	agent := w.mcp(mcpNovember, "--principal-token-file", w.path("claude.token"))
	own := w.mcp(mcpNovember)
	const asksOnce = `[ -f inputs/resume.json ] || echo '{"question": "Which?", "options": ["red", "blue"]}' > .bailiwick/question.json`
	own.ok("bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("", shellTask("a", asksOnce), shellTask("b", "true", after("a")))), "runId": "of-root"}, new(mcpRun))
	agent.ok("bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("", shellTask("a", asksOnce))), "runId": "of-claude"}, new(mcpRun))
	w.awaitEvent("of-root", event("task.waiting", "a"))
	for late := range polling(time.Minute) { // the person of a machine sees no run of others
		var run mcpRun
		if agent.ok("bailiwick_orchestrator_status", members{"runId": "of-claude"}, &run); run.Tasks[0].Asks || late {
			break
		}
	}
	for _, tool := range []string{"bailiwick_orchestrator_status", "bailiwick_orchestrator_watch"} {
		foreign, unknown := agent.refused(api.CodeNotFound, nil, tool, members{"runId": "of-root"}), agent.refused(api.CodeNotFound, nil, tool, members{"runId": "of-none"})
		if strings.ReplaceAll(foreign.Message, "of-root", "of-none") != unknown.Message {
			t.Errorf("%s: the responses for another's run and an unknown one differ: %q, %q", tool, foreign.Message, unknown.Message)
		}
		agent.ok(tool, members{"runId": "of-claude"}, new(any)) // the control
	}
	var run mcpRun
	agent.ok("bailiwick_orchestrator_status", members{"runId": "of-claude"}, &run)
	if run.State != api.RunWaiting || !run.Tasks[0].Asks || !strings.Contains(run.Advice, "bailiwick run answer "+string(run.RunID)+" --task a") {
		t.Fatalf("the asking run is %+v", run)
	}
	var d mcpStanding
	agent.ok("bailiwick_dispatch_describe", members{"dispatchId": run.Tasks[0].DispatchID, "include": "question"}, &d)
	if d.Question == nil || d.Question.Question != "Which?" {
		t.Errorf("it asks %+v", d.Question)
	}
	agent.refused(api.CodeConflict, []string{"bailiwick run answer"}, "bailiwick_dispatch", members{"resume": run.Tasks[0].DispatchID, "answer": members{"option": 1}})
	if e := agent.refused(api.CodeDenied, []string{"do not retry", "only people steer runs"}, "bailiwick_dispatch_cancel", members{"dispatchId": run.Tasks[0].DispatchID}); e.AuditEntry == nil {
		t.Error("the log lacks the token's attempt to steer")
	}
	// At the account's own client the answer counts as the person's, and the
	// run continues.
	own.ok("bailiwick_orchestrator_status", members{"runId": "of-root"}, &run)
	asks := run.Tasks[0].DispatchID
	agent.refused(api.CodeNotFound, nil, "bailiwick_dispatch_cancel", members{"dispatchId": asks})
	own.refused(api.CodeInvalid, nil, "bailiwick_dispatch", members{"resume": asks, "answer": members{"option": 3}})
	own.refused(api.CodeConflict, nil, "bailiwick_dispatch", members{"resume": asks, "answer": members{"option": 1, "attempt": 2}})
	own.ok("bailiwick_dispatch", members{"resume": asks, "answer": members{"option": 2, "attempt": 1}}, &d)
	own.watchRun("of-root")
	own.ok("bailiwick_orchestrator_status", members{"runId": "of-root"}, &run)
	if got := run.states(); got != "a done; b done" {
		t.Errorf("after the answer: %s", got)
	}
	// The control: a token may cancel a dispatch without a task; only its
	// person may cancel a task's dispatch.
	agent.ok("bailiwick_dispatch", members{"subagent": "sh", "input": members{"do": "sleep 300"}}, &d)
	agent.ok("bailiwick_dispatch_cancel", members{"dispatchId": d.DispatchID}, &d)
	own.ok("bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("", shellTask("a", awaitGate("never")))), "runId": "ended"}, new(mcpRun))
	own.ok("bailiwick_dispatch_cancel", members{"dispatchId": w.begunTask("ended", "a")}, &d)
	own.watchRun("ended")
	own.ok("bailiwick_orchestrator_status", members{"runId": "ended"}, &run)
	if got := run.states(); got != "a cancelled" {
		t.Errorf("after its dispatch was cancelled: %s", got)
	}
	if n := len(w.entries("--kind", "task.answered")); n != 1 {
		t.Errorf("%d answers are in the log", n)
	}
}

// The tasks and events of a large run come in pages that fit a model's context,
// and nothing is left out.
//
// proves R-T8
func TestLongRunsArePaged(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	s := w.mcp(mcpJuly)
	const many = 350
	tasks := []api.PlanTask{shellTask("first", "exit 1")}
	for i := range many {
		deps := []api.TaskID{"first"}
		for j := range i {
			if j%4 == 0 {
				deps = append(deps, api.TaskID(fmt.Sprintf("task-with-a-name-of-some-length-%03d", j)))
			}
		}
		tasks = append(tasks, shellTask(api.TaskID(fmt.Sprintf("task-with-a-name-of-some-length-%03d", i)), "true", after(deps...)))
	}
	var run mcpRun
	s.ok("bailiwick_orchestrator_submit", members{"plan": asPlan(t, planned("many", tasks...))}, &run)
	if !w.names(string(run.RunID), "many") || run.Total != many+1 || run.Next == "" {
		t.Fatalf("after submission it has %d tasks, next %q", run.Total, run.Next)
	}
	events := s.watchRun("many")
	skipped := 0
	for i, e := range events {
		if e.Event == "task.skipped" {
			skipped++
		}
		if i > 0 && e.Seq <= events[i-1].Seq {
			t.Errorf("event %d comes after %d", e.Seq, events[i-1].Seq)
		}
	}
	if skipped != many || events[len(events)-1].Event != "run.settled" || len(events) != len(w.history("many")) {
		t.Errorf("%d events, %d of them about skipped tasks", len(events), skipped)
	}
	var seen []api.TaskID
	pages := 0
	for in := (members{"runId": "many"}); ; pages++ {
		r := s.call("bailiwick_orchestrator_status", in)
		var page mcpRun
		decode(t, string(r.Value), &page)
		if r.IsError || len(page.Tasks) == 0 || len(page.Tasks) > 100 || len(r.Value) > 64<<10 {
			t.Fatalf("a page of %d tasks and %d bytes: %.300s", len(page.Tasks), len(r.Value), r.text())
		}
		for _, o := range page.Tasks {
			if seen = append(seen, o.Task); o.Task != "first" && (o.State != api.TaskSkipped || o.Cause != "first") {
				t.Errorf("%s is %s because of %q", o.Task, o.State, o.Cause)
			}
			if n := len(o.After) + o.MoreAfter; o.Task != "first" && n != len(tasks[len(seen)-1].DependsOn) {
				t.Errorf("%s follows %d", o.Task, n)
			}
		}
		if page.Next == "" {
			break
		}
		in["after"] = page.Next
	}
	if len(seen) != many+1 || pages < 3 || !slices.EqualFunc(seen, tasks, func(id api.TaskID, p api.PlanTask) bool { return id == p.ID }) {
		t.Errorf("%d pages have %d tasks", pages+1, len(seen))
	}
	s.refused(api.CodeInvalid, []string{"after"}, "bailiwick_orchestrator_status", members{"runId": "many", "after": "x"})
	s.refused(api.CodeInvalid, []string{"after"}, "bailiwick_orchestrator_watch", members{"runId": "many", "after": "-1"})
}
