package dispatch

import (
	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// holdSchema is the dispatches that unsettled runs may still need. Several runs
// may reserve a dispatch, as when one run takes over what another has done.
const holdSchema = `
CREATE TABLE dispatch_hold (
	run TEXT NOT NULL,
	id  TEXT NOT NULL,
	PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX dispatch_hold_id ON dispatch_hold(id);`

// Reserve protects a dispatch, its content and its evidence from removal until
// ReleaseReserved. Reserving it again changes nothing.
func Reserve(tx *store.Tx, run api.RunID, id api.DispatchID) error {
	_, err := tx.Exec("INSERT INTO dispatch_hold(run, id) VALUES (?, ?) ON CONFLICT DO NOTHING", run, id)
	return err
}

// ReleaseReserved releases everything that a run has reserved.
func ReleaseReserved(tx *store.Tx, run api.RunID) error {
	_, err := tx.Exec("DELETE FROM dispatch_hold WHERE run = ?", run)
	return err
}

// reserved reports whether an unsettled run may still need a dispatch.
func reserved(v store.Reader, id api.DispatchID) (yes bool, err error) {
	err = v.Get("SELECT EXISTS (SELECT 1 FROM dispatch_hold WHERE id = ?)", store.Args{id}, &yes)
	return yes, err
}
