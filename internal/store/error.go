package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What a caller may branch on.
var (
	// ErrNotExist: there is no state here; Create makes it.
	ErrNotExist = errors.New("no state here")
	// ErrExist: there is state here already; Open opens it.
	ErrExist = errors.New("there is state here already")
	// ErrClosed: the store is closed, or closing. Nothing was done.
	ErrClosed = errors.New("the state is closed")
	// ErrPoisoned: the disk failed earlier; see PoisonedError.
	ErrPoisoned = errors.New("the state is refused until the service starts again")
	// ErrUncertain: the commit itself failed, so what the caller wrote may or
	// may not be there after a restart. Only reading it then can tell. Every
	// other error means that nothing of the caller's was committed.
	ErrUncertain = errors.New("whether it was stored is known only after a restart")
	// ErrNoRow: Get found nothing.
	ErrNoRow = errors.New("no such row")
	// ErrConstraint: a statement broke a constraint of the schema.
	ErrConstraint = errors.New("constraint")
)

// PoisonedError is what everything is refused with after the disk failed.
type PoisonedError struct {
	Path  string
	Cause error
}

func (e *PoisonedError) Error() string {
	return fmt.Sprintf("state database %s failed (%v) and is refused until the service starts again: check the disk, then restart", e.Path, e.Cause)
}

// Is makes every PoisonedError an ErrPoisoned.
func (e *PoisonedError) Is(target error) bool { return target == ErrPoisoned }

func (e *PoisonedError) Unwrap() error { return e.Cause }

// OwnedError says who has the state.
type OwnedError struct {
	Dir string
	PID int // 0 where the owner has not written it yet
}

func (e *OwnedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state directory %s: another process has it: stop that one or use another directory", e.Dir)
	}
	return fmt.Sprintf("state directory %s: process %d has it: stop that one or use another directory", e.Dir, e.PID)
}

// CorruptError is a file that cannot be trusted.
type CorruptError struct {
	Path string
	What string
	Fix  string // what to do; empty for the usual
}

func (e *CorruptError) Error() string {
	fix := e.Fix
	if fix == "" {
		fix = "restore the directory from a copy, or move it away and create new state"
	}
	return fmt.Sprintf("state database %s: %s: %s", e.Path, e.What, fix)
}

// PanicError is a panic of a caller's function, whose writes were undone.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic in a transaction: %v", e.Value) }

func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// callers are the errors that a statement of a caller's earns by itself and
// that leave the transaction as it was.
func callers(err error) bool {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return false
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_OK, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH,
		sqlite3.SQLITE_RANGE, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}

// damage words an error of opening, migrating or checking so that it names the
// file, and is a CorruptError where SQLite says that the file is bad.
func damage(path string, err error) error {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT:
		return &CorruptError{Path: path, What: "is damaged (" + err.Error() + ")"}
	}
	if _, ok := errors.AsType[*CorruptError](err); ok {
		return err
	}
	return fmt.Errorf("state database %s: %w", path, err)
}
