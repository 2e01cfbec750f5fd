package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Migration is the schema of this package.
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
) STRICT;`, retentionSchema, holdSchema, attestSchema}}
}

// row is what the state database holds of one dispatch.
type row struct {
	record  api.Dispatch
	request api.Digest
	key     string // of the worker
}

const columns = "SELECT request, worker_key, record FROM dispatch "

// load returns the row of a dispatch, and whether there is one.
func load(v store.Reader, id api.DispatchID) (r row, ok bool, err error) {
	err = v.Get(columns+"WHERE id = ?", store.Args{id}, scanInto(&r)...)
	if errors.Is(err, store.ErrNoRow) {
		return row{}, false, nil
	}
	return r, err == nil, err
}

// scanInto returns the destinations of columns.
func scanInto(r *row) []any { return []any{&r.request, &r.key, (*recordText)(&r.record)} }

// recordText scans the JSON of a record.
type recordText api.Dispatch

// Scan implements sql.Scanner.
func (t *recordText) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("stored record is %T", v)
	}
	return json.Unmarshal([]byte(s), (*api.Dispatch)(t))
}

func unfinished(v store.Reader) ([]row, error) {
	return rows(v, "WHERE "+inStates(activeStates()...)+" ORDER BY id")
}

// text is the record as it is stored.
func (r row) text() (string, error) {
	b, err := json.Marshal(r.record)
	return string(b), err
}

func insert(tx *store.Tx, r row) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO dispatch(id, accepted, state, principal, request, record) VALUES (?, ?, ?, ?, ?, ?)",
		r.record.ID, r.record.AcceptedAt.UnixNano(), r.record.State, r.record.Principal, r.request, text)
	return err
}

// activeStates are those of an attempt that has not ended.
func activeStates() []api.Event { return []api.Event{api.EventAccepted, api.EventStarted} }

// inStates is the SQL condition that a dispatch is in one of states. They are
// literals, because SQLite uses a partial index only for those.
func inStates(states ...api.Event) string {
	quoted := make([]string, len(states))
	for i, s := range states {
		quoted[i] = "'" + string(s) + "'"
	}
	return "state IN (" + strings.Join(quoted, ", ") + ")"
}

// update stores r unless its attempt has ended meanwhile: an end is final.
func update(tx *store.Tx, r row) error {
	return set(tx, r, r.record.Attempt, activeStates()...)
}

// updateWaiting stores r, which was waiting for the answer to the question of
// attempt, unless it no longer is.
func updateWaiting(tx *store.Tx, r row, attempt int) error {
	return set(tx, r, attempt, api.EventNeedsInput)
}

// set stores r if its row is at attempt, in one of states, and the table of
// transitions leads from there to r's state; errEnded otherwise.
func set(tx *store.Tx, r row, attempt int, states ...api.Event) error {
	from := append(record.DispatchSources(r.record.State), r.record.State)
	from = slices.DeleteFunc(from, func(s api.Event) bool { return !slices.Contains(states, s) })
	text, err := r.text()
	if err != nil {
		return err
	}
	var answerBy any
	if r.record.AnswerBy != nil {
		answerBy = r.record.AnswerBy.UnixNano()
	}
	n, err := tx.Exec("UPDATE dispatch SET state = ?, attempt = ?, answer_by = ?, worker_key = ?, record = ? WHERE id = ? AND attempt = ? AND "+inStates(from...),
		r.record.State, r.record.Attempt, answerBy, r.key, text, r.record.ID, attempt)
	if err == nil && n != 1 {
		err = errEnded
	}
	return err
}

var errEnded = errors.New("the dispatch has ended")

// keepAttempt stores an attempt that another follows.
func keepAttempt(tx *store.Tx, d api.Dispatch) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO dispatch_attempt(id, attempt, record) VALUES (?, ?, ?)", d.ID, d.Attempt, string(text))
	return err
}

// attempts returns the earlier attempts of a dispatch, oldest first.
func attempts(v store.Reader, id api.DispatchID) (list []api.Dispatch, err error) {
	err = v.Each("SELECT record FROM dispatch_attempt WHERE id = ? ORDER BY attempt", store.Args{id}, func(scan store.Scan) error {
		var d api.Dispatch
		err := scan((*recordText)(&d))
		list = append(list, d)
		return err
	})
	return list, err
}

const whereWaiting = "WHERE state = '" + string(api.EventNeedsInput) + "' "

// waiting returns the dispatches that wait for an answer.
func waiting(v store.Reader) (list []row, err error) {
	return rows(v, whereWaiting+"ORDER BY answer_by")
}

// expiring returns some of those whose questions are to be given up first.
func expiring(v store.Reader) ([]row, error) {
	return rows(v, whereWaiting+"AND answer_by IS NOT NULL ORDER BY answer_by LIMIT 100")
}

func rows(v store.Reader, where string) (list []row, err error) {
	err = v.Each(columns+where, nil, func(scan store.Scan) error {
		var r row
		err := scan(scanInto(&r)...)
		list = append(list, r)
		return err
	})
	return list, err
}
