package e2e

import (
	"strings"
	"testing"
)

// Without an orchestrator runs stay readable, and every place where a user looks
// says that nothing continues the open one, with the command that does. What
// would start or change a run is refused with it. Then that command works.
//
// proves R-O1
func TestRunsStayReadableWithoutAnOrchestrator(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.submit(planned("old", shellTask("a", "echo said; echo new > new.txt")))
	w.awaitSettled("old")
	w.submit(planned("open", shellTask("a", awaitGate("go")), shellTask("b", "true", after("a"))))
	w.begunTask("open", "a")
	w.must("down")
	if up := w.must("up"); w.unit == nil && (!strings.Contains(up, "nothing continues 1 open run") || !strings.Contains(up, "bailiwick up --orchestrator")) {
		t.Errorf("up: %s", up)
	}
	stalled := "open running (stalled)"
	for verb, wants := range map[string][]string{
		"status":               {"STALLED", "nothing continues 1 open run", w.startsRuns()},
		"doctor":               {"note service runs", "nothing continues 1 open run", w.startsRuns()},
		"run list":             {stalled, "old", "done"},
		"run show open":        {"STALLED", w.startsRuns()},
		"run show old":         {"old done"},
		"run patch old a":      {"+new"},
		"run logs old a":       {"said"},
		"run wait old":         {"old done"},
		"audit list --run old": {"settled"},
	} {
		d := w.try(strings.Fields(verb)...)
		text := strings.Join(strings.Fields(w.chosen(d.stdout)), " ")
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q: %s", verb, want, d)
			}
		}
		if strings.Contains(d.stdout, "STALLED") && strings.Contains(verb, "old") {
			t.Errorf("positive control: %s: %s", verb, d)
		}
	}
	if d := w.try("run", "list"); !strings.Contains(d.stderr, w.startsRuns()) {
		t.Errorf("run list: %s", d)
	}
	w.must("audit", "export", "old", "--out", w.path("old.evidence"))
	w.write("plan.yaml", "id: new\ntasks: [{id: a, subagent: sh, input: {do: 'true'}}]\n", 0o644)
	for _, verb := range []string{"run cancel open", "run retry old", "run pause open", "run submit " + w.path("plan.yaml")} {
		w.refused(1, []string{"no orchestrator", w.startsRuns()}, strings.Fields(verb)...)
	}
	w.open("go")
	w.must("up", "--orchestrator")
	wantStates(t, w.awaitSettled("open"), "done; a done; b done")
	if s := w.status(); s.UndrivenRuns != 0 || s.Orchestrator == nil {
		t.Errorf("the status is %+v", s)
	}
}
