package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// States of an api.ToolCallLine.
const (
	stateRunning  = "running"
	stateReturned = "returned"
	stateUnknown  = "unknown"
	stateDenied   = "denied"
)

const (
	// maxInline is the largest content of a call in the table, in bytes; larger content is a
	// blob.
	maxInline = 32 << 10
	// maxKept bounds the content of the calls of one attempt that is kept. The log has the
	// digests of all.
	maxKept = 256 << 20
)

// errSettled says that what came of a call is stored already.
var errSettled = errors.New("the call has been settled")

// about has the fields of a call's entries that its line has not, for the entry of a
// call whose outcome is unknown after a crash.
type about struct {
	Role api.Name   `json:"role"`
	Run  api.RunID  `json:"run,omitempty"`
	Task api.TaskID `json:"task,omitempty"`
}

// content is arguments or an answer as the table has it: text, a digest, or neither.
type content struct{ text, blob any }

// keep stores content that is too large for the table as a blob. release follows once the
// row is durable, or never will be. Content that would exceed maxKept is not kept.
func (v *View) keep(ctx context.Context, b []byte) (c content, kept int64, release func(), err error) {
	release = func() {}
	switch n := int64(len(b)); {
	case n == 0 || v.kept.Add(n) > maxKept:
		return c, 0, release, nil
	case n <= maxInline:
		c.text = string(b)
	default:
		ctx, release = v.g.cfg.Blobs.Protect(ctx)
		var d api.Digest
		d, err = v.g.cfg.Blobs.Put(ctx, b)
		c.blob = string(d)
	}
	return c, int64(len(b)), release, err
}

// nextNumber returns the number of the next call of an attempt.
func nextNumber(tx *store.Tx, m *record.Manifest) (n int64, err error) {
	err = tx.Get("SELECT coalesce(max(number), 0) + 1 FROM gateway_call WHERE dispatch = ? AND attempt = ?", store.Args{m.ID, m.Attempt}, &n)
	return n, err
}

// firstTaint returns the first call of an attempt that gave it text from outside, or nil.
func firstTaint(r store.Reader, m *record.Manifest) (*api.Taint, error) {
	t := api.Taint{Dispatch: m.ID, Attempt: m.Attempt}
	err := r.Get("SELECT number, json_extract(line, '$.tool') FROM gateway_call WHERE dispatch = ? AND attempt = ? AND taints = 1 ORDER BY number LIMIT 1", store.Args{m.ID, m.Attempt}, &t.Call, &t.Tool)
	if errors.Is(err, store.ErrNoRow) {
		return nil, nil //nolint:nilnil // not found
	}
	return &t, err
}

// insertCall stores a call. key is that of its message; empty: the worker sends none.
func insertCall(tx *store.Tx, m *record.Manifest, line *api.ToolCallLine, key string, taints bool, arguments content, kept int64) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	other, err := json.Marshal(about{m.Role, m.Run, m.Task})
	if err != nil {
		return err
	}
	var message any
	if key != "" {
		message = key
	}
	_, err = tx.Exec("INSERT INTO gateway_call(dispatch, attempt, number, state, line, taints, about, kept, arguments, arguments_blob, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		m.ID, m.Attempt, line.Number, line.State, string(text), taints, string(other), kept, arguments.text, arguments.blob, message)
	return err
}

// settle stores what came of a call, once.
func settle(tx *store.Tx, id api.DispatchID, attempt int, number int64, state string, d record.ToolReturn, answer content, kept int64) error {
	n, err := tx.Exec("UPDATE gateway_call SET state = ?, error = ?, millis = ?, kept = kept + ?, answer = ?, answer_blob = ? WHERE dispatch = ? AND attempt = ? AND number = ? AND state = 'running'",
		state, d.Error, d.Millis, kept, answer.text, answer.blob, id, attempt, number)
	if err == nil && n != 1 {
		err = errSettled
	}
	return err
}
