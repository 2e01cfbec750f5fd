package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
)

// Migration is the schema of one package, as steps that are applied once, in order.
// A released step is never edited.
type Migration struct {
	Owner string   // the package: a-z and _
	Steps []string // SQL; step 1 is the first
}

var ownerPattern = regexp.MustCompile(`^[a-z][a-z_]*$`)

func validateMigrations(all []Migration) error {
	seen := map[string]bool{}
	for _, m := range all {
		if !ownerPattern.MatchString(m.Owner) || seen[m.Owner] {
			return fmt.Errorf("migration owner %q: want a-z and _, each once", m.Owner)
		}
		seen[m.Owner] = true
	}
	return nil
}

func stepDigest(step string) string {
	sum := sha256.Sum256([]byte(step))
	return hex.EncodeToString(sum[:])
}

// migrate brings the schema up to date in one transaction. It refuses steps that
// this program does not know, which a newer one applied.
func (w *writeConn) migrate(ctx context.Context, path string, all []Migration) (err error) {
	applied, err := w.applied(ctx)
	if err != nil {
		return err
	}
	known := map[string][]string{}
	for _, m := range all {
		known[m.Owner] = m.Steps
	}
	for owner, digests := range applied {
		steps := known[owner]
		if len(digests) > len(steps) {
			return &CorruptError{
				Path: path, What: fmt.Sprintf("written by a newer version (step %d of %q, this program knows %d)", len(digests), owner, len(steps)),
				Fix: "use the program that wrote it, or a newer one",
			}
		}
		for i, d := range digests {
			if d != stepDigest(steps[i]) {
				return &CorruptError{Path: path, What: fmt.Sprintf("step %d of %q is not the one that was applied", i+1, owner), Fix: "use the program that wrote it"}
			}
		}
	}
	if _, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, rollback := w.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	for _, m := range all {
		for i := len(applied[m.Owner]); i < len(m.Steps); i++ {
			if _, err := w.conn.ExecContext(ctx, m.Steps[i]); err != nil {
				return fmt.Errorf("step %d of %q: %w", i+1, m.Owner, err)
			}
			if _, err := w.conn.ExecContext(ctx, "INSERT INTO store_migration VALUES (?, ?, ?)", m.Owner, i+1, stepDigest(m.Steps[i])); err != nil {
				return fmt.Errorf("step %d of %q: %w", i+1, m.Owner, err)
			}
		}
	}
	_, err = w.conn.ExecContext(ctx, "COMMIT")
	return err
}

// applied returns the digests of the steps in the database, by owner.
func (w *writeConn) applied(ctx context.Context) (_ map[string][]string, err error) {
	rows, err := w.conn.QueryContext(ctx, "SELECT owner, step, digest FROM store_migration ORDER BY owner, step") //nolint:rowserrcheck // closeRows does
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeRows(rows)) }()
	applied := map[string][]string{}
	for rows.Next() {
		var owner, digest string
		var step int
		if err := rows.Scan(&owner, &step, &digest); err != nil {
			return nil, err
		}
		if applied[owner] = append(applied[owner], digest); len(applied[owner]) != step {
			return nil, fmt.Errorf("step %d of %q follows step %d", step, owner, len(applied[owner])-1)
		}
	}
	return applied, nil
}

func closeRows(rows *sql.Rows) error { return errors.Join(rows.Err(), rows.Close()) }
