package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// row is the stored state of one dispatch.
type row struct {
	record  api.Dispatch
	request api.Digest // of principal and request
	key     string     // of the worker, base64; empty until it is bound
	finish  finish     // of the current attempt
}

const columns = "SELECT request, worker_key, finish, record, allowed, denied FROM dispatch "

// scan reads the columns of r.
func (r *row) scan(scan store.Scan) error {
	var since api.ToolCalls // the record was written
	err := scan(&r.request, &r.key, jsonText{&r.finish}, jsonText{&r.record}, &since.Allowed, &since.Denied)
	if since != (api.ToolCalls{}) {
		if c := r.record.Calls; c != nil {
			since.Allowed, since.Denied, since.Record = since.Allowed+c.Allowed, since.Denied+c.Denied, c.Record
		}
		r.record.Calls = &since
	}
	return err
}

// jsonText scans JSON, and NULL as the zero value.
type jsonText struct{ into any }

// Scan implements sql.Scanner.
func (t jsonText) Scan(v any) error {
	switch s := v.(type) {
	case nil:
		reflect.ValueOf(t.into).Elem().SetZero()
		return nil
	case string:
		return json.Unmarshal([]byte(s), t.into)
	}
	return fmt.Errorf("stored document is a %T, want text", v)
}

// load returns the row of a dispatch, and whether it exists.
func load(v store.Reader, id api.DispatchID) (r row, ok bool, err error) {
	err = r.scan(func(into ...any) error { return v.Get(columns+"WHERE id = ?", store.Args{id}, into...) })
	if errors.Is(err, store.ErrNoRow) {
		return row{}, false, nil
	}
	return r, err == nil, err
}

// unfinished returns the dispatches whose attempt has not ended.
func unfinished(v store.Reader) ([]row, error) {
	return rows(v, "WHERE "+inStates(activeStates()...)+" ORDER BY id")
}

const whereWaiting = "WHERE state = '" + string(api.EventNeedsInput) + "' "

// waiting returns the dispatches that wait for an answer.
func waiting(v store.Reader) ([]row, error) { return rows(v, whereWaiting+"ORDER BY answer_by") }

// expiring returns the first of the dispatches whose question expires.
func expiring(v store.Reader) ([]row, error) {
	return rows(v, whereWaiting+"AND answer_by IS NOT NULL ORDER BY answer_by LIMIT 100")
}

func rows(v store.Reader, where string, args ...any) (list []row, err error) {
	err = v.Each(columns+where, args, func(scan store.Scan) error {
		var r row
		err := r.scan(scan)
		list = append(list, r)
		return err
	})
	return list, err
}

func insert(tx *store.Tx, r row) error {
	text, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO dispatch(id, accepted, state, principal, request, record) VALUES (?, ?, ?, ?, ?, ?)",
		r.record.ID, r.record.AcceptedAt.UnixNano(), r.record.State, r.record.Principal, r.request, string(text))
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

var errEnded = errors.New("the dispatch has ended")

// update stores r; errEnded when its attempt has ended: an end is final.
func update(tx *store.Tx, r row) error {
	return updateIn(tx, r, r.record.Attempt, activeStates()...)
}

// updateWaiting stores r, which waited for the answer to the question of attempt;
// errEnded when it no longer does.
func updateWaiting(tx *store.Tx, r row, attempt int) error {
	return updateIn(tx, r, attempt, api.EventNeedsInput)
}

// updateIn stores r if its row is at attempt, in one of states, and the table of
// transitions leads from there to r's state; errEnded otherwise.
func updateIn(tx *store.Tx, r row, attempt int, states ...api.Event) error {
	from := append(record.DispatchSources(r.record.State), r.record.State)
	from = slices.DeleteFunc(from, func(s api.Event) bool { return !slices.Contains(states, s) })
	text, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	var answerBy any
	if r.record.AnswerBy != nil {
		answerBy = r.record.AnswerBy.UnixNano()
	}
	var why any
	if r.finish != (finish{}) {
		text, err := json.Marshal(r.finish)
		if err != nil {
			return err
		}
		why = string(text)
	}
	n, err := tx.Exec("UPDATE dispatch SET state = ?, attempt = ?, answer_by = ?, worker_key = ?, finish = ?, record = ?, allowed = 0, denied = 0 WHERE id = ? AND attempt = ? AND "+inStates(from...),
		r.record.State, r.record.Attempt, answerBy, r.key, why, string(text), r.record.ID, attempt)
	if err == nil && n != 1 {
		err = errEnded
	}
	return err
}

// countCall counts a call of an attempt that runs. It reports false, and does nothing,
// where a cancel or the service ends the attempt.
func countCall(tx *store.Tx, d *api.Dispatch, allowed bool) (bool, error) {
	n, err := tx.Exec("UPDATE dispatch SET allowed = allowed + ?, denied = denied + ? WHERE id = ? AND attempt = ? AND state = 'started' AND finish IS NULL AND record ->> '$.cancelledBy' IS NULL",
		allowed, !allowed, d.ID, d.Attempt)
	return n == 1, err
}

// insertAttempt stores an attempt that another one follows.
func insertAttempt(tx *store.Tx, d api.Dispatch) error {
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
		err := scan(jsonText{&d})
		list = append(list, d)
		return err
	})
	return list, err
}

// final reports whether a dispatch has ended for good: one that waits for an
// answer has not.
func final(d *api.Dispatch) bool { return d.State.Ended() && d.State != api.EventNeedsInput }
