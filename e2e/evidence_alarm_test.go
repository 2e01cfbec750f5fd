package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// refusals are the entries that say that evidence was refused.
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
			w.t.Errorf("an alarm is of what it is about, and so would be a part of its evidence: %+v", line)
		}
		all = append(all, line.Entry.Detail)
	}
	return all
}

type alarm struct {
	Run, Dispatch, Message string
	Rows                   []string
}

// looks waits until the service has looked at n things since its start, and
// says how many of them it refused.
func (w *world) looks(n uint64) api.EvidenceStatus {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if st := w.checked(); st.Checked >= n {
			return st
		}
		if time.Now().After(end) {
			w.t.Fatalf("it looks at nothing: %+v", w.checked())
		}
	}
}

// What the service would hand out is verified once it is over. Where that fails
// an entry says so and of what, the status counts it, and its log has an error;
// what was done is done, and work goes on. The controls: the same before and
// after, of which none is refused.
//
// proves R-A7
func TestInvalidEvidenceRaisesAnAlarm(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	do := func(id api.RunID) {
		t.Helper()
		states(t, w.settles(w.submit(planned(id, doing("a", "echo x > a.txt")))), "done; a done")
	}
	do("before")
	lone := w.dispatch("sh", "--source", "repo", "--input", `{"do":"true"}`)
	ended(t, lone, api.EventFinished, "")
	if st := w.looks(2); st.Refused != 0 || len(w.refusals()) != 0 {
		t.Fatalf("what is honest is refused: %+v", st)
	}

	// Whose decisions count is not who decided: what an auditor would be given
	// now does not vouch for the consent by which it was admitted.
	roots := "data/bailiwick/operators.json"
	honest, err := os.ReadFile(w.path(roots))
	must(t, err)
	other := newWorld(t, 0)
	other.coldInit()
	foreign, err := os.ReadFile(other.path(roots))
	must(t, err)
	gated := w.submit(planned("refused", doing("a", awaitGate("go"))))
	w.begunTask(gated, "a")
	w.write(roots, string(foreign), 0o644)
	w.open("go")
	states(t, w.settles(gated), "done; a done")
	if st := w.looks(3); st.Refused != 1 || !strings.Contains(st.Last, "authorisation") {
		t.Errorf("the status says %+v", st)
	}
	if all := w.refusals(); len(all) != 1 || all[0].Run != "refused" || len(all[0].Rows) != 1 || all[0].Rows[0] != "authorisation" || all[0].Message == "" {
		t.Errorf("the log says %+v", all)
	}
	if log, err := os.ReadFile(w.path("state/bailiwick/service.log")); err != nil || !strings.Contains(string(log), "does not verify") || !strings.Contains(string(log), "level=ERROR") && !strings.Contains(string(log), `"level":"ERROR"`) {
		t.Errorf("the service's own log says nothing of it: %v", err)
	}

	// It stops no work, and what comes when the reason has gone is not refused.
	w.write(roots, string(honest), 0o644)
	do("after")
	if st := w.looks(4); st.Refused != 1 {
		t.Errorf("after: %+v", st)
	}
	w.provesItself("refused") // by an auditor who knows whose decisions count

	// What a service did not come to is looked at by the next.
	kill(t, w.status().PID)
	w.upRuns()
	if st := w.looks(1); st.Refused != 0 {
		t.Errorf("of the one before: %+v", st)
	}

	// Evidence that cannot even be made is an alarm, too, and says why.
	seen := w.checked().Checked
	gated = w.submit(planned("unmade", doing("a", awaitGate("on"))))
	w.begunTask(gated, "a")
	deploy := "data/bailiwick/trust.json"
	root, err := os.ReadFile(w.path(deploy))
	must(t, err)
	must(t, os.Remove(w.path(deploy)))
	w.open("on")
	states(t, w.settles(gated), "done; a done")
	for end := time.Now().Add(time.Minute); len(w.refusals()) < 2 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	w.write(deploy, string(root), 0o644)
	if all := w.refusals(); len(all) != 2 || all[1].Run != "unmade" || len(all[1].Rows) != 0 || all[1].Message == "" {
		t.Errorf("after %d: %+v", seen, all)
	}
}
