package dispatch

import (
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// holdSchema says what runs that are not settled may still need: a dispatch
// may be held by several, as where one run takes over what another has done.
const holdSchema = `
CREATE TABLE dispatch_hold (
	run TEXT NOT NULL,
	id  TEXT NOT NULL,
	PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dispatch_hold_id ON dispatch_hold(id);`

// Hold keeps a dispatch, its content and its evidence, until Release. Holding
// it again changes nothing.
func Reserve(tx *store.Tx, run api.RunID, id api.DispatchID) error {
	_, err := tx.Exec("INSERT INTO dispatch_hold(run, id) VALUES (?, ?) ON CONFLICT DO NOTHING", run, id)
	return err
}

// Release lets go of everything that a run holds.
func ReleaseReserved(tx *store.Tx, run api.RunID) error {
	_, err := tx.Exec("DELETE FROM dispatch_hold WHERE run = ?", run)
	return err
}

// held reports whether a run that is not settled may still need a dispatch.
func held(v store.Reader, id api.DispatchID) (bool, error) {
	var run string
	err := v.Get("SELECT run FROM dispatch_hold WHERE id = ? LIMIT 1", store.Args{id}, &run)
	if errors.Is(err, store.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}
