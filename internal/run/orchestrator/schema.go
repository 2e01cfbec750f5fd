package orchestrator

import "github.com/bailiwick-dev/bailiwick/internal/state/store"

// Migration returns the schema of this package. A task without a row is pending;
// the state ready is never stored.
func Migration() store.Migration {
	return store.Migration{Owner: "orchestrator", Steps: []string{`
CREATE TABLE run (
	seq        INTEGER PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	principal  TEXT NOT NULL,
	submitted  INTEGER NOT NULL,  -- nanoseconds since 1970
	settled    INTEGER,           -- likewise; nothing is written afterwards
	state      TEXT NOT NULL,     -- an api.RunState, once it is settled
	counts     TEXT NOT NULL,     -- tasks by state, once it is settled
	paused_by  TEXT NOT NULL,
	cancel_by  TEXT NOT NULL,
	cancel_why TEXT NOT NULL,
	doc        TEXT NOT NULL,     -- runDoc
	plan       TEXT NOT NULL      -- canonical
) STRICT;
CREATE INDEX run_open ON run(seq) WHERE settled IS NULL;
CREATE INDEX run_by_principal ON run(principal, seq);
CREATE TABLE run_task (
	run        INTEGER NOT NULL,  -- seq
	task       INTEGER NOT NULL,  -- its place in the plan
	state      TEXT NOT NULL,     -- an api.TaskState
	attempt    INTEGER NOT NULL,
	fence      INTEGER NOT NULL,
	dispatch   TEXT NOT NULL,
	asked      INTEGER NOT NULL,
	reason     TEXT NOT NULL,
	message    TEXT NOT NULL,
	cause      INTEGER NOT NULL,
	not_before INTEGER NOT NULL,
	answer     TEXT NOT NULL,     -- JSON
	cancel_by  TEXT NOT NULL,
	cancel_why TEXT NOT NULL,
	started    INTEGER NOT NULL,
	ended      INTEGER NOT NULL,
	taken_over INTEGER NOT NULL,
	PRIMARY KEY (run, task)
) STRICT, WITHOUT ROWID;
CREATE TABLE run_queue ( -- those that are paused
	name TEXT PRIMARY KEY,
	by   TEXT NOT NULL,
	at   INTEGER NOT NULL
) STRICT;
CREATE TABLE run_fence (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL) STRICT;
`, findSchema, retrySchema, labelSchema, growthSchema, askedSchema, rulesSchema}}
}

// rulesSchema gives the rows of runs of earlier rules the version that only their entries
// had.
const rulesSchema = `
UPDATE run SET doc = json_set(doc, '$.rules', (SELECT leaf ->> '$.detail.rules' FROM audit_entry WHERE audit_entry.run = run.id AND kind = 'run.submitted'))
	WHERE doc ->> '$.rules' IS NULL;
`

// retrySchema finds the runs that retry a run: their evidence needs its plan.
const retrySchema = `CREATE INDEX run_retry ON run(doc ->> '$.retryOf') WHERE doc ->> '$.retryOf' IS NOT NULL;`

// labelSchema makes runs found by the labels of their plans.
const labelSchema = `
CREATE TRIGGER run_labelled AFTER INSERT ON run BEGIN
	INSERT INTO run_term SELECT 'label ' || l.key || '=' || l.value, new.seq FROM json_each(new.doc, '$.labels') AS l;
END;
`

// findSchema is what runs are found by, and which failed ones were looked at. The
// triggers keep the terms in step with the runs.
const findSchema = `
CREATE TABLE run_term (
	term TEXT NOT NULL,     -- "queue NAME", "subagent NAME", "label KEY=VALUE"
	run  INTEGER NOT NULL,  -- seq
	PRIMARY KEY (term, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_term_of ON run_term(run);
CREATE TABLE run_seen ( -- settled runs that a principal has looked at
	run       INTEGER NOT NULL,
	principal TEXT NOT NULL,
	at        INTEGER NOT NULL,
	PRIMARY KEY (run, principal)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_failed ON run(seq) WHERE state = 'failed' OR state = 'cancelled' AND cancel_by = 'service';
INSERT INTO run_seen SELECT seq, principal, settled FROM run WHERE settled IS NOT NULL;
INSERT INTO run_term SELECT 'queue ' || (doc ->> '$.queue'), seq FROM run;
INSERT INTO run_term SELECT DISTINCT 'subagent ' || (t.value ->> '$.subagent'), run.seq FROM run, json_each(run.plan, '$.tasks') AS t;
CREATE TRIGGER run_added AFTER INSERT ON run BEGIN
	INSERT INTO run_term VALUES ('queue ' || (new.doc ->> '$.queue'), new.seq);
	INSERT INTO run_term SELECT DISTINCT 'subagent ' || (t.value ->> '$.subagent'), new.seq FROM json_each(new.plan, '$.tasks') AS t;
END;
CREATE TRIGGER run_removed AFTER DELETE ON run BEGIN
	DELETE FROM run_term WHERE run = old.seq;
	DELETE FROM run_seen WHERE run = old.seq;
END;
`
