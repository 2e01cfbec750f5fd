package e2e

import (
	"database/sql"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the state is changed behind the service's back

	"github.com/bailiwick-dev/bailiwick/api"
)

// alter changes a table of the state database as somebody does who can write the
// file, and returns what undoes it.
func (w *world) alter(table, statement string) (undo func()) {
	w.t.Helper()
	do := func(statements ...string) {
		w.t.Helper()
		db, err := sql.Open("sqlite", "file:"+w.path("state/bailiwick/store/state.db")+"?_pragma=busy_timeout(5000)")
		must(w.t, err)
		defer db.Close()
		tx, err := db.Begin()
		must(w.t, err)
		for _, s := range statements {
			if _, err := tx.Exec(s); err != nil {
				w.t.Fatalf("%s: %v", s, err)
			}
		}
		must(w.t, tx.Commit())
	}
	do("CREATE TABLE kept AS SELECT * FROM "+table, statement)
	return func() { do("DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM kept", "DROP TABLE kept") }
}

// Rows of the state that do not follow from the log refuse the start: a revision
// forgotten, a dispatch, run or task put back, ended, removed, invented or given
// to another principal, a queue resumed, a fencing token taken back. The controls:
// the same state untouched, and a change of a row that decides nothing, start.
//
// takeover both modes, backup: no define
// takeover both modes, database: no define, replay, start
//
// proves R-A1, R-B5, R-O6
func TestStatePutBackRefusesTheStart(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "edit", script: "echo x > x.txt"})
	work := string(w.dispatch("edit", "--source", "repo", "--id", "work").ID)
	old := string(w.submit(planned("old", shellTask("a", "true"), shellTask("b", "false"))))
	w.try("run", "wait", old)
	asks := w.submit(planned("asks", shellTask("a", `test -f inputs/resume.json || echo '{"question": "Which?"}' > .bailiwick/question.json`), shellTask("b", "true", after("a"))))
	w.awaitEvent(asks, event("task.waiting", "a"))
	w.must("queue", "pause", "default")
	w.try("run", "cancel", "nobody")
	w.must("down")
	start := func(what string) done {
		w.must("up", "--orchestrator")
		d := w.try("audit", "verify", "--log")
		if d.status != 0 {
			t.Errorf("%s: %s", what, d)
		}
		w.must("down")
		return d
	}
	start("the control: untouched")
	stored := strings.NewReplacer("dispatch work", "dispatch "+work, "run old", "run "+old, "run asks", "run "+string(asks), "'work'", "'"+work+"'", "'old'", "'"+old+"'", "'asks'", "'"+string(asks)+"'")
	set := func(path, value string) string { return "json_set(record, '$." + path + "', " + value + ")" }
	for _, c := range []struct{ words, table, sql string }{
		{"highest catalog revision", "catalog_seen", "DELETE FROM catalog_seen"},
		{"highest catalog revision", "catalog_seen", "UPDATE catalog_seen SET number = 7"},
		{"dispatch work", "dispatch", "DELETE FROM dispatch WHERE id = 'work'"},
		{"dispatch work", "dispatch", "UPDATE dispatch SET state = 'failed', record = " + set("state", "'failed'") + " WHERE id = 'work'"},
		{"dispatch work", "dispatch", "UPDATE dispatch SET state = 'started', record = " + set("state", "'started'") + " WHERE id = 'work'"},
		{"dispatch work", "dispatch", "UPDATE dispatch SET state = 'failed' WHERE id = 'work'"},
		{"dispatch work", "dispatch", "UPDATE dispatch SET principal = 'agent:x', record = " + set("principal", "'agent:x'") + " WHERE id = 'work'"},
		{"its patch", "dispatch", "UPDATE dispatch SET record = " + set("outcome.patch.digest", "'sha256:"+strings.Repeat("0", 64)+"'") + " WHERE id = 'work'"},
		{"its manifest", "dispatch", "UPDATE dispatch SET record = " + set("manifest", "'sha256:"+strings.Repeat("0", 64)+"'") + " WHERE id = 'work'"},
		{"its worker key", "dispatch", "UPDATE dispatch SET worker_key = 'x' WHERE id = 'work'"},
		{"its number of refused requests", "dispatch", "UPDATE dispatch SET record = " + set("outcome.refusals", "json('{\"count\":1,\"digest\":\"x\"}')") + " WHERE id = 'work'"},
		{"its tier", "dispatch", "UPDATE dispatch SET record = " + set("tier", "'irreversible'") + " WHERE id = 'work'"},
		{"2 are finished, the state says 3", "dispatch", "INSERT INTO dispatch (id, accepted, state, principal, request, worker_key, record, attempt, answer_by) SELECT 'forged', accepted, state, principal, request, worker_key, " + set("dispatchId", "'forged'") + ", attempt, answer_by FROM dispatch WHERE id = 'work'"},
		{"needs_input", "dispatch", "UPDATE dispatch SET state = 'finished', record = " + set("state", "'finished'") + " WHERE state = 'needs_input'"},
		{"run old", "run", "DELETE FROM run WHERE id = 'old'"},
		{"run old", "run", "UPDATE run SET state = 'done' WHERE id = 'old'"},
		{"run old", "run", "UPDATE run SET settled = NULL, state = '', counts = '' WHERE id = 'old'"},
		{"run asks", "run", "UPDATE run SET settled = 1, state = 'done', counts = '{}' WHERE id = 'asks'"},
		{"its principal", "run", "UPDATE run SET principal = 'agent:x' WHERE id = 'asks'"},
		{"its cancel request", "run", "UPDATE run SET cancel_by = 'service' WHERE id = 'asks'"},
		{"its pause", "run", "UPDATE run SET paused_by = 'local:root' WHERE id = 'asks'"},
		{"run old", "run", "UPDATE run SET plan = replace(plan, 'false', 'true') WHERE id = 'old'"},
		{"task b", "run_task", "UPDATE run_task SET state = 'done' WHERE state = 'failed'"},
		{"task a", "run_task", "UPDATE run_task SET state = 'done' WHERE state = 'waiting'"},
		{"task a", "run_task", "UPDATE run_task SET attempt = attempt + 1 WHERE state = 'waiting'"},
		{"task a", "run_task", "DELETE FROM run_task WHERE state = 'waiting'"},
		{"taken over", "run_task", "UPDATE run_task SET taken_over = 1, state = 'done' WHERE state = 'waiting'"},
		{"paused queues", "run_queue", "DELETE FROM run_queue"},
		{"fencing token", "run_fence", "UPDATE run_fence SET value = 0"},
	} {
		c.words, c.sql = stored.Replace(c.words), stored.Replace(c.sql)
		undo := w.alter(c.table, c.sql)
		if d := w.try("up", "--orchestrator"); d.status != 1 || !strings.Contains(d.stderr, "the state differs from the log") || !strings.Contains(d.stderr, c.words) || !strings.Contains(d.stderr, "restore") {
			t.Errorf("%s: want a refusal that says %q: %s", c.sql, c.words, d)
			w.try("down")
		}
		undo()
	}
	undo := w.alter("run_seen", "DELETE FROM run_seen")
	start("the control: a row that decides nothing")
	undo()
	w.must("up", "--orchestrator")
	w.must("run", "cancel", string(asks))
	w.must("queue", "resume", "default")
}

// A row that is changed under a running service is found by the next comparison
// with the log. From then on the service is not ready and admits nothing; it
// still shows what it has.
//
// takeover both modes, database: no replay, start
//
// proves R-A1, R-A2
func TestStateChangedWhileRunningAdmitsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo x > x.txt"})
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "work"), api.EventFinished, "")
	eventually(t, "its statement is in the row", func() bool { return w.show("work").Statement != "" })
	w.must("audit", "verify", "--log") // the control
	undo := w.alter("dispatch", "UPDATE dispatch SET state = 'failed', record = json_set(record, '$.state', 'failed')")
	w.refused(1, []string{"the state differs from the log: dispatch work"}, "audit", "verify", "--log")
	w.refused(1, []string{"the state differs from the log"}, "dispatch", "run", "edit", "-q", "--source", "repo")
	if d := w.try("status"); !strings.Contains(d.stdout, "state: the state differs from the log") {
		t.Errorf("the status: %s", d)
	}
	w.must("audit", "list", "--last", "3")
	w.must("down")
	undo()
	w.must("up")
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
}
