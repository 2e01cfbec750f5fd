package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Rows and plans of settled runs are removed by their rule, except for a run with
// a pinned dispatch and one that is open. The log keeps their entries, and every
// way to a removed run says that it expired.
//
// proves R-A2 (the removal is logged), R-O8 (its id is not used again)
func TestSettledRunsExpire(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.retention("{runs: {age: 1ns}}")
	w.must("down")
	w.upCollected("--orchestrator")
	for _, id := range []api.RunID{"gone", "pinned"} {
		w.submit(planned(id, shellTask("one", "echo 1 > a.txt")))
		if run := w.awaitSettled(id); run.State != api.RunDone {
			t.Fatalf("%+v", run)
		}
	}
	d := string(task(t, w.run("gone"), "one").DispatchID)
	w.admit("agent:ann")
	token, err := os.ReadFile(w.tokenFile("agent:ann"))
	must(t, err)
	ann := w.runtime(strings.TrimSpace(string(token)), nil)
	hers, err := ann.Submit(t.Context(), request(t, planned("hers", shellTask("one", "true"))))
	must(t, err)
	w.awaitSettled(hers.RunID)
	w.must("dispatch", "pin", string(task(t, w.run("pinned"), "one").DispatchID))
	w.submit(planned("open", shellTask("waits", awaitGate("go"))))
	w.begunTask("open", "waits")
	dry := w.chosen(w.must("gc", "--dry-run"))
	for _, want := range []string{"runs      gone:", "would remove rows and plans of 2 settled runs", "runs.age 1ns", "1 expired run with a pinned dispatch, or with a retry"} {
		if !strings.Contains(dry, want) {
			t.Errorf("the dry run lacks %q:\n%s", want, dry)
		}
	}
	w.must("run", "show", "gone") // the control
	if out := w.must("gc"); !strings.Contains(out, "removed rows and plans of 2 settled runs") {
		t.Errorf("gc prints:\n%s", out)
	}
	if list := w.must("run", "list", "-o", "name"); strings.Contains(list, "gone") || !strings.Contains(list, "pinned") || !strings.Contains(list, "open") {
		t.Errorf("the runs are:\n%s", list)
	}
	for _, args := range [][]string{{"run", "show", "gone"}, {"run", "retry", "gone"}, {"audit", "export", "gone", "--out", w.path("e")}} {
		w.refused(1, []string{`run "gone" of 20`, "has expired", "by rule runs.age 1ns", "audit list --run gone"}, args...)
	}
	if log := w.must("audit", "list", "--run", "gone"); !strings.Contains(log, "settled") {
		t.Errorf("the log of the run is:\n%s", log)
	}
	if log := w.must("audit", "list", "--kind", "retention.removed"); !strings.Contains(log, "removes rows and plan of 2 settled runs") || !strings.Contains(log, "gone") {
		t.Errorf("the log is:\n%s", log)
	}
	w.must("dispatch", "show", d)                // records of dispatches stay
	_, err = ann.Run(t.Context(), "hers", "", 1) // as she named it
	wantCode(t, "the run of another principal", err, api.CodeNotFound, "has expired")
	_, err = w.conn().Runtime().Submit(t.Context(), request(t, planned("gone", shellTask("one", "true"))))
	wantCode(t, "the id again", err, api.CodeConflict, "has expired")
	w.open("go")
	w.awaitSettled("open")
	w.must("audit", "verify", "--log")
	if s := w.status(); s.Evidence == nil || s.Evidence.Refused != 0 {
		t.Errorf("evidence: %+v", s.Evidence)
	}
}
