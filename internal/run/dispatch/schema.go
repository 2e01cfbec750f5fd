package dispatch

import "github.com/bailiwick-dev/bailiwick/internal/state/store"

// Migration returns the schema of this package, and of the highest revision that
// internal/state/inforce has accepted.
func Migration() store.Migration {
	return store.Migration{Owner: "dispatch", Steps: []string{`
CREATE TABLE dispatch (
	id         TEXT PRIMARY KEY,
	accepted   INTEGER NOT NULL,          -- nanoseconds since 1970
	state      TEXT NOT NULL,             -- an api.Event
	principal  TEXT NOT NULL,
	request    TEXT NOT NULL,             -- digest of principal and request
	worker_key TEXT NOT NULL DEFAULT '',  -- public half, base64; bound by the dispatch.started entry
	record     TEXT NOT NULL              -- api.Dispatch
) STRICT;
CREATE INDEX dispatch_open ON dispatch(id) WHERE state IN ('accepted', 'started');
CREATE INDEX dispatch_by_time ON dispatch(accepted);
CREATE TABLE catalog_seen (
	one    INTEGER PRIMARY KEY CHECK (one = 1),
	number INTEGER NOT NULL,
	digest TEXT NOT NULL
) STRICT;`, `
ALTER TABLE dispatch ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
ALTER TABLE dispatch ADD COLUMN answer_by INTEGER; -- nanoseconds since 1970; of a question that waits
CREATE INDEX dispatch_waiting ON dispatch(answer_by) WHERE state = 'needs_input';
CREATE TABLE dispatch_attempt ( -- those that have been answered
	id      TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	record  TEXT NOT NULL,       -- api.Dispatch as the attempt ended, with the answer
	PRIMARY KEY (id, attempt)
) STRICT;`, retentionSchema, holdSchema, attestSchema, stateSchema, usageSchema, finishSchema, callsSchema, reuseSchema}}
}

// finishSchema keeps why the service ends an attempt, until it has ended.
const finishSchema = `ALTER TABLE dispatch ADD COLUMN finish TEXT; -- finish, as JSON`

// callsSchema counts the calls of tools since the record was written: most calls change
// nothing else about their dispatch.
const callsSchema = `
ALTER TABLE dispatch ADD COLUMN allowed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dispatch ADD COLUMN denied INTEGER NOT NULL DEFAULT 0;`

// stateSchema counts dispatches by state, at each start and for each status.
const stateSchema = `CREATE INDEX dispatch_by_state ON dispatch(state);`
