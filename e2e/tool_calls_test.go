package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The calls of a dispatch, its agent's reports and what gave it text from outside are
// shown while it runs and afterwards, in the dispatch, in its run, and in the log by role
// and tool.
//
// proves R-G4
func TestTheCallsOfADispatchAreShown(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := prepared(t, uid)
		w.write("project/capabilities/run/echo.sh", "#!/bin/sh\ncat\n", 0o755)
		w.replace(manifest, "capabilities:\n", "capabilities:\n  - {name: run, from: capabilities/run}\n")
		w.replace(manifest, "roles: [transform, quality]", `tools:
  - {command: web, description: Reads a page., run: [./echo.sh], capability: run, input: {type: object}, roles: [transform], tier: observe}
  - {command: drop-table, description: Drops., run: [./echo.sh], capability: run, input: {type: object}, roles: [quality], tier: irreversible, approval: true}
roles: [transform, quality]`)
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
		w.upRuns()
		w.downAtEnd()
		const calls = `bailiwick-tool report 'halfway: \x1b[31m
row other'
bailiwick-tool call drop-table '{"table": "all"}' || true
bailiwick-tool call web '{"page": "bailiwick-secret-page"}'
`
		run := w.submit(planned("calls", shellTask("a", calls+awaitGate("go"))))
		w.awaitEvent(run, func(e api.RunEvent) bool { return e.Event == "tool.returned" && e.Tool == "web" })
		id := string(task(t, w.run(run), "a").DispatchID)

		for _, when := range []string{"running", "ended"} {
			if when == "ended" {
				w.open("go")
				w.must("run", "wait", string(run))
			}
			list := w.must("dispatch", "tools", id)
			lines := strings.Split(list, "\n")
			for i, want := range []string{"NUMBER  AT", "1       ", "2       ", "3       "} {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%s: line %d is not %q: %s", when, i, want, list)
				}
			}
			for line, words := range map[int]string{1: "report observe returned", 2: `drop-table - denied role "transform" has no tool "drop-table"`, 3: "web observe returned"} {
				if got := strings.Join(strings.Fields(lines[line]), " "); !containsAll(got, strings.Fields(words)) {
					t.Errorf("%s: %q lacks words of %q", when, got, words)
				}
			}
			if denied := w.must("dispatch", "tools", id, "--denied", "-o", "name"); denied != "2\n" {
				t.Errorf("%s: denied %q", when, denied)
			}
			one := w.must("dispatch", "tools", id, "3")
			for _, want := range []string{"call        3 of attempt 1 of dispatch " + id, "tool        web, tier observe", "decision    allow", "policies    tool:web:transform", "bailiwick-secret-page", "arguments   | {", "answer      | {", "state       returned after "} {
				if !strings.Contains(one, want) {
					t.Errorf("%s: one call lacks %q:\n%s", when, want, one)
				}
			}
			show := w.must("dispatch", "show", id)
			for _, want := range []string{"tools       calls allowed: 2, denied: 1; see: bailiwick dispatch tools " + id, "tainted     call 3 of attempt 1 returned untrusted text from web", "| halfway: ", "reports     at "} {
				if !strings.Contains(show, want) {
					t.Errorf("%s: dispatch show lacks %q:\n%s", when, want, show)
				}
			}
			if strings.Contains(show+list+one, "\x1b") || strings.Contains(show, "\nrow other") {
				t.Errorf("%s: the agent's words are not escaped:\n%s", when, show)
			}
			if text := w.must("run", "show", string(run)); !strings.Contains(text, "tainted     a: text from outside was read\n") || when == "running" && !strings.Contains(text, "reports: halfway: ") {
				t.Errorf("%s: run show:\n%s", when, text)
			}
		}
		w.wantLoggedCalls(id, run)
		w.refused(1, []string{"attempt 1 of dispatch " + id + " has no call 4"}, "dispatch", "tools", id, "4")
		w.refused(1, []string{"want its number"}, "dispatch", "tools", id, "0")
		if watched := w.must("run", "watch", string(run)); !strings.Contains(watched, "task a reports | halfway: ") {
			t.Errorf("run watch: %s", watched)
		}
		metrics := w.metrics()
		for name, want := range map[string]float64{
			`bailiwick_tool_calls_total{outcome="returned",role="transform",tool="web"}`: 1, `bailiwick_tool_calls_total{outcome="denied",role="unknown",tool="unknown"}`: 1,
			`bailiwick_tool_call_seconds_count{tool="web"}`: 1, "bailiwick_tool_calls_out": 0,
		} {
			if got, ok := metrics[name]; !ok || got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// wantLoggedCalls fails the test unless the log has the calls of the dispatch, found by
// role and by patterns of tools, each in one line that says who called what.
func (w *world) wantLoggedCalls(id string, run api.RunID) {
	w.t.Helper()
	for flags, want := range map[string]string{
		"--tool web --kind tool.called":              fmt.Sprintf("agent sh (role transform) of dispatch %s of task a of run %s for %s called web, tier observe, allowed by tool:web:transform", id, run, w.me()),
		"--role transform --tool drop-*":             fmt.Sprintf("agent sh (role transform) of dispatch %s of task a of run %s for %s may not call drop-table", id, run, w.me()),
		"--tool w*b --kind tool.returned":            "call 3 of web by dispatch " + id + " of task a of run " + string(run) + " returned ",
		"--dispatch " + id + " --decision deny":      "may not call drop-table",
		"--tool * --kind tool.called --role quality": "",
	} {
		text := w.must(append([]string{"audit", "list"}, strings.Fields(flags)...)...)
		if lines := strings.Count(text, "\n"); !strings.Contains(text, want) || want == "" && lines != 0 || want != "" && lines != 1 {
			w.t.Errorf("audit list %s: want one line with %q:\n%s", flags, want, text)
		}
	}
	// A call names its return, and the return its call.
	for kind, other := range map[string]string{"tool.called": "return ", "tool.returned": "call "} {
		n := strings.TrimSpace(w.must("audit", "list", "--dispatch", id, "--tool", "web", "--kind", kind, "-o", "name"))
		if text := w.must("audit", "show", n); !strings.Contains(text, "\n"+other) {
			w.t.Errorf("audit show of %s lacks its %s:\n%s", kind, other, text)
		}
	}
}
