package audit

import (
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration is the schema of the log, for store.Config.
//
// The hash is the entry's leaf hash of RFC 6962. It reveals a flipped bit, which
// SQLite cannot, and is the input of the tree. All columns but seq, leaf and hash
// repeat fields of the leaf, for searches; readers compare them with it.
func Migration() store.Migration {
	return store.Migration{Owner: "audit", Steps: []string{`
CREATE TABLE audit_entry (
	seq      INTEGER PRIMARY KEY CHECK (seq >= 0),
	at       INTEGER NOT NULL, -- microseconds since 1970
	kind     TEXT NOT NULL,
	dispatch TEXT,
	leaf     TEXT NOT NULL,
	hash     BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE INDEX audit_entry_dispatch ON audit_entry (dispatch) WHERE dispatch IS NOT NULL;
CREATE TRIGGER audit_entry_update BEFORE UPDATE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER audit_entry_delete BEFORE DELETE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
`, `
-- Every start of the service asks for these two, however long the log is.
CREATE INDEX audit_entry_operator ON audit_entry (seq) WHERE kind = 'operator.recorded';
CREATE INDEX audit_entry_stop ON audit_entry (seq) WHERE kind = 'stop.engaged';
`, `
ALTER TABLE audit_entry ADD COLUMN run TEXT;
CREATE INDEX audit_entry_run ON audit_entry (run, seq) WHERE run IS NOT NULL;
`, ruleSchema, searchSchema, wordSchema}}
}

const insertEntry = "INSERT INTO audit_entry (seq, at, kind, dispatch, run, leaf, hash, principal, task, role, tool) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

// spanLength is the number of entries that a row of audit_span covers.
const spanLength = 1024

// searchSchema makes Query fast however long the log is. Each index costs an
// entry one more page of the write-ahead log, so decisions and times have none:
// a decision is one of a few kinds, and times are nearly in the order of numbers,
// so the earliest and latest time of every 1,024 entries suffice. A clock that
// was set back widens such a span, and hides nothing.
const searchSchema = `
DROP INDEX audit_entry_operator;
DROP INDEX audit_entry_stop;
ALTER TABLE audit_entry ADD COLUMN principal TEXT;
ALTER TABLE audit_entry ADD COLUMN task TEXT;
ALTER TABLE audit_entry ADD COLUMN role TEXT;
ALTER TABLE audit_entry ADD COLUMN tool TEXT;
DROP TRIGGER audit_entry_update;
UPDATE audit_entry SET (principal, task, role, tool) = (SELECT
	CASE WHEN length(p) BETWEEN 1 AND 255 AND p NOT GLOB '*[^!-~]*' AND instr(p, '"') = 0 AND instr(p, '\') = 0 THEN p END,
	CASE WHEN length(t) BETWEEN 1 AND 255 AND t NOT GLOB '*[^!-~]*' AND instr(t, '"') = 0 AND instr(t, '\') = 0 THEN t END,
	CASE WHEN length(r) BETWEEN 1 AND 255 AND r NOT GLOB '*[^!-~]*' AND instr(r, '"') = 0 AND instr(r, '\') = 0 THEN r END,
	CASE WHEN length(o) BETWEEN 1 AND 255 AND o NOT GLOB '*[^!-~]*' AND instr(o, '"') = 0 AND instr(o, '\') = 0 THEN o END
	FROM (SELECT leaf ->> '$.principal' AS p, leaf ->> '$.task' AS t, leaf ->> '$.role' AS r, leaf ->> '$.tool' AS o));
CREATE TRIGGER audit_entry_update BEFORE UPDATE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE INDEX audit_entry_kind ON audit_entry (kind);
CREATE INDEX audit_entry_principal ON audit_entry (principal) WHERE principal IS NOT NULL;
CREATE INDEX audit_entry_task ON audit_entry (task) WHERE task IS NOT NULL;
CREATE INDEX audit_entry_role ON audit_entry (role) WHERE role IS NOT NULL;
CREATE INDEX audit_entry_tool ON audit_entry (tool) WHERE tool IS NOT NULL;
CREATE TABLE audit_span (
	span INTEGER PRIMARY KEY, -- of the entries from 1024 * span on
	low  INTEGER NOT NULL,
	high INTEGER NOT NULL
) STRICT;
INSERT INTO audit_span SELECT seq / 1024, min(at), max(at) FROM audit_entry GROUP BY seq / 1024 HAVING count(*) = 1024;
CREATE TRIGGER audit_entry_span AFTER INSERT ON audit_entry WHEN NEW.seq % 1024 = 1023 BEGIN
	INSERT INTO audit_span SELECT NEW.seq / 1024, min(at), max(at) FROM audit_entry WHERE seq BETWEEN NEW.seq - 1023 AND NEW.seq;
END;
CREATE TRIGGER audit_span_update BEFORE UPDATE ON audit_span BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER audit_span_delete BEFORE DELETE ON audit_span BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
`

// wordSchema finds entries by the words of today for their kinds: see record.DecodeEntry.
const wordSchema = `
DROP TRIGGER audit_entry_update;
UPDATE audit_entry SET kind = 'http.requested' WHERE kind = 'http.asked';
UPDATE audit_entry SET kind = 'dispatch.recovered' WHERE kind = 'dispatch.found';
CREATE TRIGGER audit_entry_update BEFORE UPDATE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
`

// Columns to read: those that the hash needs, or also those that an entry can be
// found by.
const (
	hashedRow = "seq, kind, leaf, hash"
	wholeRow  = hashedRow + ", dispatch, run, principal, task, role, tool"
)

// terms is the number of columns that an entry is found by, besides its kind and
// time.
const terms = 6

func termNames() [terms]string {
	return [terms]string{"dispatch", "run", "principal", "task", "role", "tool"}
}

// termsOf returns the values that an entry is found by, in the order of wholeRow.
func termsOf(e *record.Entry) [terms]string {
	return [terms]string{term(e.Dispatch), term(e.Run), term(e.Principal), term(e.Task), term(e.Role), term(e.Tool)}
}

// searchColumns returns the values of the columns that only searches need.
func searchColumns(e *record.Entry) []any {
	out := make([]any, 4)
	all := termsOf(e)
	for i := range out {
		if s := all[terms-len(out)+i]; s != "" {
			out[i] = s
		}
	}
	return out
}

// term returns s if an entry can be found by it: a word of printable ASCII, which
// no leaf truncates or escapes. Names and ids are such words; any other text that
// a caller sent as one is found by the kind of its entry.
func term[T ~string](s T) string {
	if len(s) > 255 {
		return ""
	}
	for i := range len(s) {
		if c := s[i]; c < '!' || c > '~' || c == '"' || c == '\\' {
			return ""
		}
	}
	return string(s)
}
