package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A person with a token approves a task of a run by what it shows, and another run's is
// denied; who submitted it may not vote, and the evidence of both verifies.
//
// proves R-O9
func TestAPersonApprovesATaskOfARun(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.token("human:bob")
	_, public := w.operatorKey("bob")
	w.must("operators", "add", public, "--principal", "human:bob")
	bob := []string{"--principal-token-file", w.tokenFile("human:bob")}
	for verb, want := range map[string]api.RunState{"approve": api.RunDone, "deny": api.RunFailed} {
		run := "people-" + verb
		w.write("plan.yaml", `id: `+run+`
source: {name: repo}
tasks:
  - {id: build, subagent: sh, input: {do: "echo built > outputs/o; echo two >> a.txt"}}
  - {id: ship, approval: {by: ["human:bob"], show: [build]}}
  - {id: after, subagent: sh, depends_on: [ship], input: {do: "true"}}
`, 0o644)
		w.must("run", "submit", w.path("plan.yaml"))
		id := ""
		for range polling(time.Minute) {
			if id != "" {
				break
			}
			id = strings.TrimSpace(w.must(append([]string{"approval", "list", "-o", "name"}, bob...)...))
		}
		shown := w.must(append([]string{"approval", "show", id}, bob...)...)
		for _, part := range []string{"task", "ship", run, "build", "bailiwick dispatch patch", "output o"} {
			if !strings.Contains(shown, part) {
				t.Errorf("show lacks %q:\n%s", part, shown)
			}
		}
		for _, line := range []string{"waiting", "run show " + run} {
			wantIn(t, line, w.must(strings.Fields(line)...), "human:bob", "expires", "bailiwick approval show "+id, "bailiwick approval approve "+id)
		}
		waits := w.try("run", "wait", run, "--timeout", "1ms")
		wantIn(t, "run wait", w.chosen(waits.stderr), "task ship of run "+run+" waits for approval by human:bob until", "bailiwick approval approve "+id)
		w.refused(3, []string{"submitted run"}, "approval", verb, id)
		w.must(append([]string{"approval", verb, id, "--reason", "ticket 12", "--key", w.path("home/bob.key")}, bob...)...)
		w.try("run", "wait", run)
		got := w.run(api.RunID(run))
		if got.State != want {
			t.Errorf("%s: run is %s, want %s", verb, got.State, want)
		}
		w.verifyEvidence(run)
	}
}
