package e2e

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A run and a grant start as much as their budgets allow, and say what is left.
//
// proves R-O11
func TestBudgets(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, budgets)
}

func budgets(t *testing.T, uid int) {
	w := orchestrated(t, uid)
	p := planned("spends", shellTask("a", "true"), shellTask("b", "true", after("a")), shellTask("c", "true", after("b")))
	p.Budget = &api.Budget{Dispatches: 2}
	run := w.awaitSettled(w.submit(p))
	wantStates(t, run, "failed; a done; b done; c denied denied")
	if message := task(t, run, "c").Message; !strings.Contains(message, "dispatches: 2 of 2 spent, 0 left") || !strings.Contains(message, "budget.dispatches") {
		t.Errorf("task c was denied with %q", message)
	}
	if out := w.must("run", "show", "spends"); !strings.Contains(out, "0 dispatches of 2 dispatches left, of its plan") {
		t.Errorf("run show lacks the budget:\n%s", out)
	}
	w.verifyEvidence("spends")

	w.replace(manifest, "ceiling: reversible}", "ceiling: reversible, budget: {dispatches: 1, wall: 2h}}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	first := w.must("dispatch", "run", "sh", "--set", "do=true", "-o", "name")
	w.refused(3, []string{"1 of 1 spent, 0 left", "new again at", "(UTC)", "in bailiwick.yaml"}, "dispatch", "run", "sh", "--set", "do=true")
	if out := w.must("budget", "list"); !strings.Contains(out, "1 dispatches, 2h0m0s") || !strings.Contains(out, "run/spends") {
		t.Errorf("budget list:\n%s", out)
	}
	w.refused(1, []string{"budget", "nothing"}, "budget", "show", "none")
	if out := w.must("budget", "show", "spends"); !strings.Contains(out, "2 dispatches") {
		t.Errorf("budget show:\n%s", out)
	}
	w.verifyEvidence(strings.TrimSpace(first), "--dispatch")
	if out := w.must("audit", "list", "--dispatch", strings.TrimSpace(first), "-o", "json"); !strings.Contains(out, `"budgets"`) {
		t.Errorf("no entry says what was reserved:\n%s", out)
	}
}
