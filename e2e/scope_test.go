package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// An id that another principal uses tells nothing: submitted, asked about,
// cancelled, answered or listed, it reads like a free one, over HTTP
// with a token. The same id is free for each principal, repeats find their own,
// and the chosen spelling keeps working. The control: to the operator, who sees
// all, the same requests tell that the id is in use.
//
// takeover both modes, AI client: no read work
//
// proves R-B2, R-O8
func TestIDsOfAnotherPrincipalTellNothing(t *testing.T) {
	t.Parallel()
	w := &webWorld{world: orchestrated(t, 0, subagent{name: "edit", script: "echo two > a.txt"}, subagent{name: "looks", script: "true", tier: "observe"})}
	w.addPrincipals()
	s := w.http("--rate", "10000")
	w.dispatch("edit", "--source", "repo", "--id", "night-work")
	w.submit(planned("night-run", shellTask("a", "true")))
	w.must("run", "wait", "night-run")
	tool := func(token, name string, arguments members) string {
		a := callOf(name, encoded(arguments), "")
		a.token = token
		return s.send(a).body
	}
	source := members{"name": "repo"}
	dispatch := func(token, id string) string {
		return tool(token, "bailiwick_dispatch", members{"subagent": "edit", "source": source, "dispatchId": id, "wait": 50})
	}
	run := func(token, id string) string {
		return tool(token, "bailiwick_orchestrator_submit", members{"plan": members{"id": id, "source": source, "tasks": []members{{"id": "a", "subagent": "edit"}}}})
	}
	// Ann's dispatch and run have the same chosen ids as the operator's.
	if got := dispatch(w.ann, "night-work"); !strings.Contains(got, `"state\":\"finished`) && !strings.Contains(got, `"state":"finished"`) {
		t.Fatalf("ann dispatches: %s", got)
	}
	run(w.ann, "night-run")
	numbers := regexp.MustCompile(`-[0-9a-v]{20}|sha256:[0-9a-f]+|[0-9]+`)
	plain := func(text string, names ...string) string {
		for _, name := range names {
			text = strings.ReplaceAll(text, name, "NAME")
		}
		return numbers.ReplaceAllString(text, "N")
	}
	annWork := strings.TrimSpace(w.must("dispatch", "list", "--principal", "agent:ann", "-o", "name"))
	if list := strings.Fields(annWork); len(list) < 1 || !strings.HasPrefix(annWork, "night-") && !strings.Contains(annWork, "night-work-") {
		t.Fatalf("the operator lists %q", annWork)
	}
	stored := regexp.MustCompile(`night-work-[0-9a-v]{20}`).FindString(annWork)
	for what, pair := range map[string][2]string{
		"a chosen id":      {"night-work", "free-work1"},
		"a stored id":      {stored, "night-work-" + strings.Repeat("0", 20)},
		"a chosen run id":  {"night-run", "free-run1"},
		"an old-style one": {"one", "two"},
	} {
		taken, free := pair[0], pair[1]
		for _, c := range []struct {
			name string
			args func(id string) members
		}{
			{"bailiwick_dispatch_describe", func(id string) members { return members{"dispatchId": id} }},
			{"bailiwick_dispatch_describe", func(id string) members { return members{"dispatchId": id, "include": "patch"} }},
			{"bailiwick_dispatch_describe", func(id string) members { return members{"dispatchId": id, "include": "logs"} }},
			{"bailiwick_dispatch_cancel", func(id string) members { return members{"dispatchId": id} }},
			{"bailiwick_dispatch", func(id string) members { return members{"resume": id, "answer": members{"text": "x", "attempt": 1}} }},
			{"bailiwick_orchestrator_status", func(id string) members { return members{"runId": id} }},
			{"bailiwick_orchestrator_watch", func(id string) members { return members{"runId": id} }},
			{"bailiwick_dispatch", func(id string) members { return members{"subagent": "nobody", "dispatchId": id} }},
		} {
			a, b := plain(tool(w.ben, c.name, c.args(taken)), taken), plain(tool(w.ben, c.name, c.args(free)), free)
			if a != b {
				t.Errorf("%s: %s: an id of another principal and a free one differ:\n%s\n%s", what, c.name, a, b)
			}
		}
	}
	// Ben takes the same ids.
	for _, pair := range [][2]string{{"night-work", "free-work2"}, {stored, "night-work-" + strings.Repeat("1", 20)}} {
		if a, b := dispatch(w.ben, pair[0]), dispatch(w.ben, pair[1]); strings.Contains(a, "conflict") || strings.Contains(a, `"isError":true`) != strings.Contains(b, `"isError":true`) {
			t.Errorf("ben dispatches as %s:\n%s\nand as %s:\n%s", pair[0], a, pair[1], b)
		}
	}
	if a, b := run(w.ben, "night-run"), run(w.ben, "free-run2"); strings.Contains(a, "conflict") || strings.Contains(a, `"isError":true`) != strings.Contains(b, `"isError":true`) {
		t.Errorf("ben submits:\n%s\n%s", a, b)
	}
	for id := range strings.FieldsSeq(w.must("run", "list", "-o", "name")) {
		w.try("run", "wait", id)
	}
	// Each repeat finds its own, by either spelling.
	count := len(w.list())
	dispatch(w.ann, "night-work")
	dispatch(w.ann, stored)
	dispatch(w.ben, "night-work")
	if n := len(w.list()); n != count {
		t.Errorf("repeats started %d dispatches", n-count)
	}
	for _, id := range []string{"night-work", stored} {
		if got := tool(w.ann, "bailiwick_dispatch_describe", members{"dispatchId": id}); !strings.Contains(got, stored) || strings.Contains(got, `"isError":true`) {
			t.Errorf("ann reads %s: %s", id, got)
		}
	}
	if got := tool(w.ann, "bailiwick_orchestrator_status", members{"runId": "night-run"}); strings.Contains(got, `"isError":true`) {
		t.Errorf("ann reads her run: %s", got)
	}
	// Another request by the same id is refused, by either spelling of either.
	for _, id := range []string{"night-work", stored} {
		if got := tool(w.ann, "bailiwick_dispatch", members{"subagent": "looks", "dispatchId": id}); !strings.Contains(got, "in use for another request") {
			t.Errorf("ann dispatches another request as %s: %s", id, got)
		}
	}
	annRun := regexp.MustCompile(`night-run-[0-9a-v]{20}`).FindString(tool(w.ann, "bailiwick_orchestrator_status", members{"runId": "night-run"}))
	for _, id := range []string{"night-run", annRun} {
		for subagent, want := range map[string]string{"edit": `existing\":true`, "looks": "in use for another"} {
			plan := members{"id": "night-run", "source": members{"name": "repo"}, "tasks": []members{{"id": "a", "subagent": subagent}}}
			if got := tool(w.ann, "bailiwick_orchestrator_submit", members{"runId": id, "plan": plan}); !strings.Contains(got, want) && !strings.Contains(got, strings.ReplaceAll(want, `\"`, `"`)) {
				t.Errorf("ann submits with %s as %s: %s, want %s", subagent, id, got, want)
			}
		}
	}
	// The operator's verbs find what ann or ben named, and refuse an id of both.
	run(w.ben, "bens-run")
	dispatch(w.ben, "bens-work")
	w.must("run", "wait", "bens-run")
	w.must("audit", "export", "bens-run", "--out", w.path("run.evidence"))
	w.must("audit", "export", "bens-work", "--out", w.path("work.evidence"))
	for _, args := range [][]string{
		{"audit", "list", "--run", "bens-run"},
		{"audit", "list", "--dispatch", "bens-work"},
		{"dispatch", "list", "--run", "bens-run"},
		{"run", "list", "--after", "bens-run"},
		{"dispatch", "list", "--after", "bens-work"},
	} {
		if strings.Count(w.must(args...), "\n") < 2 {
			t.Errorf("%q finds nothing", args)
		}
	}
	for _, flag := range []string{"--run=bens-run", "--dispatch=bens-work"} {
		if got := w.must("stop", flag); !strings.Contains(got, flag[strings.Index(flag, "=")+1:]+"-") {
			t.Errorf("stop %s: %s", flag, got)
		}
	}
	dispatch(w.ann, "of-both1")
	dispatch(w.ben, "of-both1")
	w.refused(1, []string{"2 principals use the id \"of-both1\"", "name one of them as it is listed: of-both1-"}, "dispatch", "show", "of-both1")
	w.refused(1, []string{"2 principals use the id \"of-both1\""}, "stop", "--dispatch", "of-both1")
	// The controls.
	if w.unit == nil {
		w.refused(1, []string{"in use for another request"}, "dispatch", "run", "edit", "-q", "--source", "repo", "--id", stored)
	} else if d := w.show(stored); d.Principal != "agent:ann" { // a person's choice never meets another's
		t.Errorf("the operator finds what is listed: %+v", d)
	}
	w.refused(1, []string{"in use for another request"}, "dispatch", "run", "looks", "-q", "--id", "night-work")
	dispatch(w.ben, "only-bens")
	if d := w.show("only-bens"); d.Principal != "agent:ben" {
		t.Errorf("the operator finds what ben named: %+v", d)
	}
	if d := w.show("night-work"); d.Principal != api.Principal(w.me()) {
		t.Errorf("the operator's own: %+v", d)
	}
}
