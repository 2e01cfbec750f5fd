package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// A schedule of the catalog submits its plan as its own principal, by its cron
// expression and on request. Its evidence verifies; pause, stop and a reserved id hold.
//
// proves R-O10
func TestASchedule(t *testing.T) {
	t.Parallel()
	asBoth(t, aSchedule)
	if !systemMode {
		t.Run(api.ModeSystem, func(t *testing.T) { aSchedule(t, machine.Alice) })
	}
}

func aSchedule(t *testing.T, uid int) {
	w := prepared(t, uid)
	w.write("project/nightly.yaml", "source: {name: repo}\ntasks:\n  - {id: a, subagent: sh, input: {do: 'echo x > a.txt'}}\n", 0o644)
	const schedule = `  - {principal: "ci:nightly", subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}
schedules:
  - {name: nightly, cron: "0 2 * * 1-5", zone: Europe/Rome, plan: nightly.yaml, principal: "ci:nightly"}
  - {name: often, cron: "* * * * *", zone: UTC, plan: nightly.yaml, principal: "ci:nobody"}
`
	w.replace(manifest, "ceiling: reversible}\n", "ceiling: reversible}\n"+schedule)
	plan := w.must("catalog", "plan", "-f", w.path(manifest))
	for _, want := range []string{`new schedule: "0 2 * * 1-5" in Europe/Rome submits a plan of 1 task (sh)`, "as ci:nightly", "no grant gives ci:nobody subagent sh"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan lacks %q:\n%s", want, plan)
		}
	}
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("principal", "add", "ci:nightly")
	w.must("ceiling", "set", "ci:nightly", "reversible")
	if d := w.try("schedule", "list"); d.status == 0 && !strings.Contains(d.stderr, "no orchestrator") {
		t.Errorf("without an orchestrator the list says nothing of it: %s%s", d.stdout, d.stderr)
	}
	w.try("down") // one without an orchestrator may run
	w.upRuns()
	w.downAtEnd()

	if out := w.must("schedule", "list"); !strings.Contains(out, "nightly") || !strings.Contains(out, "Europe/Rome") {
		t.Errorf("the list says %s", out)
	}
	if out := w.must("schedule", "next", "nightly", "-n", "3"); strings.Count(out, " 02:00 ") != 3 {
		t.Errorf("the next slots are\n%s", out)
	}
	var slot api.Slot
	must(t, json.Unmarshal([]byte(w.must("schedule", "run", "nightly", "-o", "json")), &slot))
	run := w.awaitSettled(slot.RunID)
	wantStates(t, run, "done; a done")
	if run.Principal != "ci:nightly" || !api.IsScheduleRun("nightly", slot.RunID) {
		t.Errorf("run %s of %s", slot.RunID, run.Principal)
	}
	if out := w.must("schedule", "history", "nightly"); !strings.Contains(out, string(slot.RunID)) || !strings.Contains(out, "done") {
		t.Errorf("the history says %s", out)
	}
	w.must("audit", "export", string(slot.RunID), "--out", w.path("slot.evidence"))
	w.write("trust.json", w.must("audit", "trust"), 0o644)
	w.must("audit", "verify", "--trust", w.path("trust.json"), w.path("slot.evidence"))

	// What may not be: an id of a slot for another run, a run of what is stopped.
	if w.on == nil { // on a machine, what people choose never is the id of a slot
		w.refused(1, []string{"reserved for schedule nightly"}, "run", "submit", w.path("project/nightly.yaml"), "--id", "nightly-20301123t0200z")
	}
	w.must("schedule", "pause", "nightly")
	kill(t, w.status().PID)
	w.upRuns()
	if out := w.must("schedule", "show", "nightly"); !strings.Contains(out, "paused by "+w.me()) {
		t.Errorf("after a kill the schedule is not paused:\n%s", out)
	}
	w.must("schedule", "resume", "nightly")
	w.must("stop", "--schedule", "nightly")
	w.refused(1, []string{"stopped by emergency stop s-1"}, "schedule", "run", "nightly")
	w.refused(1, []string{"no such schedule"}, "stop", "--schedule", "weekly")
	w.must("stop", "lift", "s-1")

	// A slot whose principal has no grant leaves its reason.
	w.refused(1, []string{"refused"}, "schedule", "run", "often")
	if out := w.must("schedule", "history", "often"); !strings.Contains(out, "skipped (refused)") || !strings.Contains(out, "ci:nobody") {
		t.Errorf("the history says %s", out)
	}
}
