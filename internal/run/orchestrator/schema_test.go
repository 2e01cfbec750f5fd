package orchestrator_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Rows of earlier rules take the version from the entries that submitted their runs. Rows
// that have it, and all else of a row, are kept.
//
// proves R-A8
func TestMigrationTakesTheVersionOfTheRulesFromTheLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	before := migrations()
	for i := range before {
		if before[i].Owner == orchestrator.Migration().Owner {
			before[i].Steps = before[i].Steps[:6]
		}
	}
	s, err := store.Create(t.Context(), store.Config{Dir: dir, Migrations: before})
	if err != nil {
		t.Fatal(err)
	}
	const rest = `"queue":"default","revision":"r","key":"k"`
	runs := []struct {
		id      string
		logged  int64
		doc     string
		settled any
		want    string
	}{
		{"run-3", 3, `{` + rest + `}`, nil, `{` + rest + `,"rules":3}`},
		{"run-4", 4, `{` + rest + `}`, 7, `{` + rest + `,"rules":4}`},
		{"run-6", 6, `{"rules":6,` + rest + `}`, nil, `{"rules":6,` + rest + `}`},
		{"run-5", 3, `{"rules":5,` + rest + `}`, nil, `{"rules":5,` + rest + `}`}, // control: the log would say otherwise
	}
	insert := func(tx *store.Tx, seq int, e record.Entry) error {
		e.At = time.Unix(int64(seq), 0)
		leaf, err := e.Encode()
		if err != nil {
			return err
		}
		hash := logproof.LeafHash(leaf)
		_, err = tx.Exec("INSERT INTO audit_entry (seq, at, kind, run, leaf, hash) VALUES (?, ?, ?, ?, ?, ?)", seq, e.At.UnixMicro(), string(e.Kind), e.Run, string(leaf), hash[:])
		return err
	}
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		for i, r := range runs {
			// Others about the run, before and after: only what was submitted counts.
			for n, e := range []record.Entry{
				{Kind: record.KindRunDenied, Decision: record.Deny, Run: r.id, Detail: record.RunRequest{Rules: 9}},
				{Kind: record.KindRunSubmitted, Decision: record.Allow, Run: r.id, Detail: record.RunRequest{Rules: r.logged}},
				{Kind: record.KindRunPaused, Decision: record.Allow, Run: r.id, Detail: record.RunAction{}},
			} {
				if err := insert(tx, 3*i+n, e); err != nil {
					return err
				}
			}
			if _, err := tx.Exec("INSERT INTO run(id, principal, submitted, settled, state, counts, paused_by, cancel_by, cancel_why, doc, plan) VALUES (?, 'agent:a1', 1, ?, '', '', '', '', '', ?, '{}')", r.id, r.settled, r.doc); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), store.Config{Dir: dir, Migrations: migrations()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Read(t.Context(), func(v *store.View) error {
		for _, r := range runs {
			var doc, principal string
			if err := v.Get("SELECT doc, principal FROM run WHERE id = ?", store.Args{r.id}, &doc, &principal); err != nil {
				return err
			}
			if doc != r.want || principal != "agent:a1" {
				t.Errorf("%s: %s of %s, want %s", r.id, doc, principal, r.want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
