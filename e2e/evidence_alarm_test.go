package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// refusals returns the entries about refused evidence.
func (w *world) refusals() (all []alarm) {
	w.t.Helper()
	for dec := json.NewDecoder(strings.NewReader(w.must("audit", "list", "--kind", "evidence.refused", "-o", "jsonl"))); dec.More(); {
		var line struct {
			Entry struct {
				Run, Dispatch string
				Detail        alarm
			}
		}
		must(w.t, dec.Decode(&line))
		if line.Entry.Run != "" || line.Entry.Dispatch != "" {
			w.t.Errorf("an alarm belongs to its subject, so it would be part of the evidence: %+v", line)
		}
		all = append(all, line.Entry.Detail)
	}
	return all
}

type alarm struct {
	Run, Dispatch, Message string
	Rows                   []string
}

// waitChecked waits until the service has checked the evidence of n subjects
// since its start.
func (w *world) waitChecked(n uint64) api.EvidenceStatus {
	w.t.Helper()
	for late := range polling(time.Minute) {
		if st := w.evidenceStatus(); st.Checked >= n {
			return st
		}
		if late {
			w.t.Fatalf("no evidence was checked: %+v", w.evidenceStatus())
		}
	}
	panic("unreachable")
}

// The service verifies the evidence about each run and dispatch that ends. If
// that fails, an entry names the subject, the status counts it, the service logs
// an error, and work continues. Controls: valid evidence before and after it.
//
// proves R-A7
func TestInvalidEvidenceRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	do := func(id api.RunID) {
		t.Helper()
		wantStates(t, w.awaitSettled(w.submit(planned(id, shellTask("a", "echo x > a.txt")))), "done; a done")
	}
	do("before")
	lone := w.dispatch("sh", "--source", "repo", "--input", `{"do":"true"}`)
	wantEnd(t, lone, api.EventFinished, "")
	if st := w.waitChecked(2); st.Refused != 0 || len(w.refusals()) != 0 {
		t.Fatalf("valid evidence was refused: %+v", st)
	}

	// The trust that an auditor would get now does not contain the operator whose
	// consent admitted the dispatch.
	roots := "data/bailiwick/operators.json"
	honest, err := os.ReadFile(w.path(roots))
	must(t, err)
	other := newWorld(t, 0)
	other.coldInit()
	foreign, err := os.ReadFile(other.path(roots))
	must(t, err)
	gated := w.submit(planned("refused", shellTask("a", awaitGate("go"))))
	w.begunTask(gated, "a")
	w.write(roots, string(foreign), 0o644)
	w.open("go")
	wantStates(t, w.awaitSettled(gated), "done; a done")
	if st := w.waitChecked(3); st.Refused != 1 || !strings.Contains(st.Last, "authorisation") {
		t.Errorf("status: %+v", st)
	}
	if all := w.refusals(); len(all) != 1 || !w.names(all[0].Run, "refused") || len(all[0].Rows) != 1 || all[0].Rows[0] != "authorisation" || all[0].Message == "" {
		t.Errorf("entries: %+v", all)
	}
	if log, err := os.ReadFile(w.path("state/bailiwick/service.log")); err != nil || !strings.Contains(string(log), "does not verify") || !strings.Contains(string(log), "level=ERROR") && !strings.Contains(string(log), `"level":"ERROR"`) {
		t.Errorf("the service did not log it: %v", err)
	}

	// It stops no work, and later evidence is valid once the cause is removed.
	w.write(roots, string(honest), 0o644)
	do("after")
	if st := w.waitChecked(4); st.Refused != 1 {
		t.Errorf("after: %+v", st)
	}
	w.verifyEvidence("refused") // for an auditor who trusts the right operators

	// The next service checks what the earlier one did not reach.
	kill(t, w.status().PID)
	w.upRuns()
	if st := w.waitChecked(1); st.Refused != 0 {
		t.Errorf("of the earlier service: %+v", st)
	}

	// Evidence that cannot be built raises an alarm with the reason.
	seen := w.evidenceStatus().Checked
	gated = w.submit(planned("unmade", shellTask("a", awaitGate("on"))))
	w.begunTask(gated, "a")
	deploy := "data/bailiwick/trust.json"
	root, err := os.ReadFile(w.path(deploy))
	must(t, err)
	if w.on == nil {
		must(t, os.Remove(w.path(deploy)))
	} else { // without it, commands take the machine for one in mode same-user
		w.write(deploy, "{", 0o644)
	}
	w.open("on")
	wantStates(t, w.awaitSettled(gated), "done; a done")
	for range polling(time.Minute) {
		if len(w.refusals()) >= 2 {
			break
		}
	}
	w.write(deploy, string(root), 0o644)
	if all := w.refusals(); len(all) != 2 || !w.names(all[1].Run, "unmade") || len(all[1].Rows) != 0 || all[1].Message == "" {
		t.Errorf("after %d: %+v", seen, all)
	}
}
