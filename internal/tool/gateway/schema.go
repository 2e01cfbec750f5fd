package gateway

import "github.com/bailiwick-dev/bailiwick/internal/state/store"

// Migration returns the schema of this package: the calls of the attempts that run. Seal
// and Drop move those of an ended attempt to a blob.
func Migration() store.Migration {
	return store.Migration{Owner: "gateway", Steps: []string{`
CREATE TABLE gateway_call (
	dispatch       TEXT NOT NULL,
	attempt        INTEGER NOT NULL,
	number         INTEGER NOT NULL,
	state          TEXT NOT NULL,    -- of line: running, returned, unknown or denied
	line           TEXT NOT NULL,    -- api.ToolCallLine as it was decided, without arguments and answer
	error          TEXT NOT NULL DEFAULT '',
	millis         INTEGER NOT NULL DEFAULT 0,
	taints         INTEGER NOT NULL, -- it gives the dispatch text from outside
	about          TEXT NOT NULL,    -- the other fields of its entries, as JSON
	kept           INTEGER NOT NULL, -- bytes of its content
	arguments      TEXT,             -- canonical
	arguments_blob TEXT,             -- digest of larger ones
	answer         TEXT,             -- likewise
	answer_blob    TEXT,
	PRIMARY KEY (dispatch, attempt, number)
) STRICT;
CREATE INDEX gateway_call_running ON gateway_call(dispatch, attempt) WHERE state = 'running';
CREATE INDEX gateway_call_taints ON gateway_call(dispatch, attempt, number) WHERE taints = 1;
CREATE INDEX gateway_call_blob ON gateway_call(dispatch) WHERE arguments_blob IS NOT NULL OR answer_blob IS NOT NULL;`, `
ALTER TABLE gateway_call ADD COLUMN message TEXT; -- key of its message, from the worker; NULL: an older one sends none
CREATE UNIQUE INDEX gateway_call_message ON gateway_call(dispatch, attempt, message) WHERE message IS NOT NULL;`}}
}
