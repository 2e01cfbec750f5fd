package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration returns the schema of this package. The state open covers approved, which
// follows from the votes.
func Migration() store.Migration {
	return store.Migration{Owner: "approval", Steps: []string{`
CREATE TABLE approval (
	id        TEXT PRIMARY KEY,
	dispatch  TEXT NOT NULL,
	attempt   INTEGER NOT NULL,
	same      TEXT NOT NULL,    -- digest of the action without its id and expiry
	state     TEXT NOT NULL CHECK (state IN ('open', 'used', 'denied', 'expired', 'ended')),
	requested INTEGER NOT NULL, -- nanoseconds since 1970
	action    TEXT NOT NULL,    -- api.ToolAction, canonical
	words     TEXT NOT NULL     -- of the agent
) STRICT;
CREATE INDEX approval_open ON approval(dispatch) WHERE state = 'open';
CREATE INDEX approval_of_dispatch ON approval(dispatch, same);
CREATE INDEX approval_by_time ON approval(requested);`, taskSchema, writeSchema}}
}

// taskSchema adds requests about tasks. Of these the state approved is stored, by the
// vote that completes it: what the engine learns then stays true until it commits.
const taskSchema = `
CREATE TABLE approval_next (
	id        TEXT PRIMARY KEY,
	dispatch  TEXT NOT NULL,    -- of a call, or of a task that writes
	attempt   INTEGER NOT NULL, -- of a call
	same      TEXT NOT NULL,
	state     TEXT NOT NULL CHECK (state IN ('open', 'approved', 'used', 'denied', 'expired', 'ended')),
	requested INTEGER NOT NULL,
	action    TEXT NOT NULL,    -- api.Action, canonical
	words     TEXT NOT NULL,
	run       TEXT NOT NULL,    -- of a task
	task      TEXT NOT NULL     -- likewise
) STRICT;
INSERT INTO approval_next SELECT *, '', '' FROM approval;
DROP TABLE approval;
ALTER TABLE approval_next RENAME TO approval;
CREATE INDEX approval_open ON approval(dispatch) WHERE state = 'open';
CREATE INDEX approval_of_dispatch ON approval(dispatch, same);
CREATE INDEX approval_by_time ON approval(requested);
CREATE UNIQUE INDEX approval_of_task ON approval(run, task) WHERE run != '';
`

// writeSchema lets a task have several requests: one at a time for each of its attempts.
const writeSchema = `
DROP INDEX approval_of_task;
CREATE UNIQUE INDEX approval_of_task ON approval(run, task, dispatch) WHERE run != '' AND state IN ('open', 'approved');
`

// row is a stored request.
type row struct {
	action    api.Action
	digest    api.Digest // of the stored action
	attempt   int
	state     api.ApprovalState
	requested time.Time
	words     string
}

func (r *row) approval(votes []api.Vote) api.Approval {
	return api.Approval{Action: r.action, Digest: r.digest, State: r.state, RequestedAt: r.requested, Votes: votes, Words: r.words}
}

const columns = "action, attempt, state, requested, words"

func scanRow(scan store.Scan) (r row, err error) {
	var action string
	var requested int64
	if err := scan(&action, &r.attempt, &r.state, &requested, &r.words); err != nil {
		return r, err
	}
	r.requested, r.digest = time.Unix(0, requested).UTC(), api.DigestOf([]byte(action))
	if err := json.Unmarshal([]byte(action), &r.action); err != nil {
		return r, fmt.Errorf("stored approval: %w", err)
	}
	return r, nil
}

func load(v store.Reader, id api.ApprovalID) (row, error) {
	r, err := scanRow(func(dest ...any) error {
		return v.Get("SELECT "+columns+" FROM approval WHERE id = ?", store.Args{string(id)}, dest...)
	})
	if errors.Is(err, store.ErrNoRow) {
		return r, notFound(id)
	}
	return r, err
}

func notFound(id api.ApprovalID) error {
	return api.Errorf(api.CodeNotFound, "no approval %s", id).WithHint("see: bailiwick approval list --all")
}

// each calls fn for the rows of a condition.
func each(v store.Reader, where string, args store.Args, fn func(row) error) error {
	return v.Each("SELECT "+columns+" FROM approval WHERE "+where, args, func(scan store.Scan) error {
		r, err := scanRow(scan)
		if err != nil {
			return err
		}
		return fn(r)
	})
}

// settle gives an open request another state.
func settle(tx *store.Tx, id api.ApprovalID, state api.ApprovalState) error {
	n, err := tx.Exec("UPDATE approval SET state = ? WHERE id = ? AND state = 'open'", string(state), string(id))
	if err == nil && n != 1 {
		err = errSettled
	}
	return err
}

var errSettled = errors.New("the approval is settled")

// sameness identifies what is asked: two requests with the same differ only in their
// ids and times.
func sameness(action api.ToolAction) (api.Digest, error) {
	action.ID, action.Expires = "", time.Time{}
	b, err := canon.Marshal(action)
	return api.DigestOf(b), err
}
