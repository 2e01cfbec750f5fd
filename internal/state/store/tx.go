package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"
)

// Reader is the common interface of Tx and View.
type Reader interface {
	// Get scans the first row of query into dest, or returns ErrNoRow.
	Get(query string, args Args, dest ...any) error
	// Each calls row for every row of query until it returns an error.
	Each(query string, args Args, row func(scan Scan) error) error
}

// Args are the values of a statement's parameters.
type Args []any

// Scan copies the columns of the current row into dest, as sql.Rows.Scan does.
type Scan func(dest ...any) error

// Tx is a running transaction. It is valid only in the function that it is passed
// to, on that function's goroutine.
type Tx struct {
	w      *writeConn
	save   bool  // set a savepoint before the first write
	saved  bool  // the savepoint is set
	wrote  bool  // a statement ran that may write
	over   bool  // the function has returned
	broken error // a disk failure; SQLite may have rolled back, so nothing may follow
}

// Exec runs one INSERT, UPDATE or DELETE and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	st, err := tx.prepare(query, true) //nolint:sqlclosecheck // the connection keeps it
	if err != nil {
		return 0, err
	}
	res, err := st.Exec(args...) //nolint:noctx // an interrupted statement would undo the whole group
	if err != nil {
		return 0, tx.note(err)
	}
	return res.RowsAffected()
}

// Get implements Reader. It sees what this transaction wrote.
func (tx *Tx) Get(query string, args Args, dest ...any) error {
	st, err := tx.prepare(query, false) //nolint:sqlclosecheck // the connection keeps it
	if err != nil {
		return err
	}
	return tx.note(get(st.QueryRow(args...), dest)) //nolint:noctx // as Exec
}

// Each implements Reader. row must not write.
func (tx *Tx) Each(query string, args Args, row func(Scan) error) error {
	st, err := tx.prepare(query, false) //nolint:sqlclosecheck // the connection keeps it
	if err != nil {
		return err
	}
	rows, err := st.Query(args...) //nolint:noctx // as Exec
	if err != nil {
		return tx.note(err)
	}
	return tx.note(each(rows, row))
}

func (tx *Tx) prepare(query string, write bool) (*sql.Stmt, error) {
	switch {
	case tx.over:
		return nil, errors.New("transaction used after its function returned")
	case tx.broken != nil:
		return nil, tx.broken
	}
	st, ok := tx.w.stmts[query]
	if !ok {
		if err := permitted(query); err != nil {
			return nil, err
		}
		var err error
		if st, err = tx.w.stmt(query); err != nil {
			return nil, tx.note(err)
		}
	}
	// A query may write too (INSERT … RETURNING), unless it is a SELECT.
	if write || !strings.HasPrefix(query, "SELECT") {
		tx.wrote = true
		if tx.save && !tx.saved {
			if err := tx.w.exec("SAVEPOINT f"); err != nil {
				return nil, tx.fail(err)
			}
			tx.saved = true
		}
	}
	return st, nil
}

// permitted keeps callers from ending the transaction that they share.
func permitted(query string) error {
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch strings.ToUpper(verb) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
	default:
		return fmt.Errorf("statement %.40q: a transaction runs SELECT, INSERT, UPDATE, DELETE or WITH only", query)
	}
	if strings.Contains(query, ";") {
		return fmt.Errorf("statement %.40q: one statement, without a semicolon", query)
	}
	if strings.Contains(strings.ToUpper(query), "ROLLBACK") {
		return fmt.Errorf("statement %.40q: ROLLBACK would undo what others wrote: return an error instead", query)
	}
	return nil
}

// note sorts what went wrong: the caller's own mistakes go back to it, the
// disk's end the group.
func (tx *Tx) note(err error) error {
	if err == nil || isCallers(err) {
		return classify(err)
	}
	return tx.fail(err)
}

func (tx *Tx) fail(err error) error {
	if tx.broken == nil {
		tx.broken = err
	}
	return tx.broken
}

// View is a consistent snapshot of durable state.
type View struct {
	ctx context.Context //nolint:containedctx // the view lives within one call
	tx  *sql.Tx
}

// Get implements Reader.
func (v *View) Get(query string, args Args, dest ...any) error {
	return get(v.tx.QueryRowContext(v.ctx, query, args...), dest)
}

// Each implements Reader.
func (v *View) Each(query string, args Args, row func(Scan) error) error {
	rows, err := v.tx.QueryContext(v.ctx, query, args...)
	if err != nil {
		return err
	}
	return each(rows, row)
}

// Read gives fn a snapshot. It sees every Update that returned before Read was
// called.
func (s *Store) Read(ctx context.Context, fn func(*View) error) (err error) {
	if err := s.refusal(); err != nil {
		return err
	}
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s.readError(err)
	}
	defer func() {
		if rerr := tx.Rollback(); rerr != nil && err == nil && !errors.Is(rerr, sql.ErrTxDone) {
			err = s.readError(rerr)
		}
	}()
	return s.readError(fn(&View{ctx, tx}))
}

// Check verifies every page of the file. It takes seconds per gigabyte.
func (s *Store) Check(ctx context.Context) error {
	return s.Read(ctx, func(v *View) error { return quickCheck(ctx, v.tx, s.path) })
}

func (s *Store) readError(err error) error {
	if err == nil || sqliteCode(err) == 0 {
		return err
	}
	return damage(s.path, err)
}

// refusal returns why the store refuses calls, or nil.
func (s *Store) refusal() error {
	if err := s.Poisoned(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

func get(row *sql.Row, dest []any) error {
	err := row.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoRow
	}
	return err
}

func each(rows *sql.Rows, row func(Scan) error) error {
	var err error
	for err == nil && rows.Next() {
		err = row(rows.Scan)
	}
	if cerr := closeRows(rows); err == nil {
		err = cerr
	}
	return err
}

// classify makes a constraint violation an ErrConstraint.
func classify(err error) error {
	if sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT {
		return fmt.Errorf("%w: %w", ErrConstraint, err)
	}
	return err
}
