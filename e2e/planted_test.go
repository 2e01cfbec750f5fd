package e2e

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// plant writes an entry into the state of a stopped service, with the right number,
// hash, columns and link, and returns what removes it again.
func (w *world) plant(e record.Entry) (remove func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path("state/bailiwick/store/state.db"))
	must(w.t, err)
	defer db.Close()
	var seq uint64
	must(w.t, db.QueryRowContext(w.t.Context(), "SELECT max(seq) + 1 FROM audit_entry").Scan(&seq))
	must(w.t, db.QueryRowContext(w.t.Context(), "SELECT max(seq) + 1 FROM audit_entry WHERE dispatch = ?", e.Dispatch).Scan(&e.Prev.Dispatch))
	e.At, e.Decision = time.Now(), e.Kind.Decided()
	leaf, err := e.Encode()
	must(w.t, err)
	hash := logproof.LeafHash(leaf)
	_, err = db.ExecContext(w.t.Context(), "INSERT INTO audit_entry (seq, at, kind, dispatch, leaf, hash) VALUES (?, ?, ?, ?, ?, ?)",
		seq, e.At.UnixMicro(), string(e.Kind), string(e.Dispatch), string(leaf), hash[:])
	must(w.t, err)
	return func() {
		db, err := sql.Open("sqlite", "file:"+w.path("state/bailiwick/store/state.db"))
		must(w.t, err)
		defer db.Close()
		for _, q := range []string{"DROP TRIGGER audit_entry_delete", "DELETE FROM audit_entry WHERE seq = (SELECT max(seq) FROM audit_entry)"} {
			_, err := db.ExecContext(w.t.Context(), q)
			must(w.t, err)
		}
	}
}

// An entry that somebody wrote into the state, and that cannot follow those before
// it, is refused at the start, so it is never signed. The controls: the same state
// without it, and the earlier log, which verifies.
//
// proves R-A1, R-A7
func TestAnEntryOfAnotherWriterIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.catalog(subagent{name: "empty", script: "true"})
	w.up()
	d := w.dispatch("empty")
	wantEnd(t, d, api.EventFinished, "")
	w.must("down")
	remove := w.plant(record.Entry{Kind: record.KindDispatchFailed, Dispatch: d.ID, Attempt: 1, Detail: record.DispatchEnd{Reason: "agent"}})
	if got := w.try("up"); got.status == 0 || !strings.Contains(got.stderr, "an entry cannot follow those before it") || !strings.Contains(got.stderr, string(d.ID)) || !strings.Contains(got.stderr, "backup") {
		t.Errorf("the service started: %s", got)
	}
	remove()
	w.up()
	if out := w.must("audit", "verify", "--log"); !strings.Contains(out, "verified against the signed root") {
		t.Error(out)
	}
}
