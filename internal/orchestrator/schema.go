package orchestrator

import "github.com/bailiwick-dev/bailiwick/internal/store"

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
`}}
}
