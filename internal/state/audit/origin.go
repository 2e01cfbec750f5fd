package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// TreeMigration is the one row that says which log the table is: its origin, and
// the key that was there when it began.
func TreeMigration() store.Migration {
	return store.Migration{Owner: "tlog", Steps: []string{`
CREATE TABLE audit_origin (
	id     INTEGER PRIMARY KEY CHECK (id = 0),
	origin TEXT NOT NULL,
	key    BLOB NOT NULL CHECK (length(key) = 32),
	at     INTEGER NOT NULL -- microseconds since 1970
) STRICT;
CREATE TRIGGER audit_origin_update BEFORE UPDATE ON audit_origin BEGIN SELECT RAISE(ABORT, 'a log keeps its origin'); END;
CREATE TRIGGER audit_origin_delete BEFORE DELETE ON audit_origin BEGIN SELECT RAISE(ABORT, 'a log keeps its origin'); END;
`}}
}

// Origin returns the origin of the log in st, which stays when the service's
// key is another one. Where it has none it gets one, of the first key.
func Origin(ctx context.Context, st *store.Store, first seal.Key, now time.Time) (string, error) {
	var origin string
	find := func(r store.Reader) error { return r.Get("SELECT origin FROM audit_origin WHERE id = 0", nil, &origin) }
	err := st.Read(ctx, func(v *store.View) error { return find(v) })
	if errors.Is(err, store.ErrNoRow) {
		origin = seal.LogOrigin(first.ID)
		err = st.Update(ctx, func(tx *store.Tx) error {
			_, err := tx.Exec("INSERT INTO audit_origin (id, origin, key, at) VALUES (0, ?, ?, ?)", origin, []byte(first.Public), now.UnixMicro())
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("origin of the log: %w", err)
	}
	if want := seal.LogOrigin(first.ID); origin != want {
		return "", fmt.Errorf("origin of the log: the state belongs to log %s, and the service's first key to log %s: restore the keys that belong to the state", origin, want)
	}
	return origin, nil
}
