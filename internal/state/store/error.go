package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Errors that callers branch on.
var (
	// ErrNotExist: the directory has no state; Create creates it.
	ErrNotExist = errors.New("no state here")
	// ErrExist: the directory has state; Open opens it.
	ErrExist = errors.New("state already exists here")
	// ErrClosed: the store is closed or closing. Nothing was written.
	ErrClosed = errors.New("the state is closed")
	// ErrPoisoned: the disk failed earlier; see PoisonedError.
	ErrPoisoned = errors.New("the state is refused until it is opened again")
	// ErrUncertain: the commit itself failed, so the caller's writes may or may not
	// exist after a restart. Any other error means that they were not committed.
	ErrUncertain = errors.New("whether it was stored is known only once the state is opened again")
	// ErrNoRow: Get found no row.
	ErrNoRow = errors.New("no such row")
	// ErrConstraint: a statement violated a constraint of the schema.
	ErrConstraint = errors.New("constraint")
)

// PoisonedError is the error of every call after a disk failure.
type PoisonedError struct {
	Path  string
	Cause error
}

func (e *PoisonedError) Error() string {
	if e.Full() {
		if err := CheckDisk(filepath.Dir(e.Path)); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("state database %s: its disk was full (%v); the service opens it again by itself", e.Path, e.Cause)
	}
	return fmt.Sprintf("state database %s failed (%v) and is refused until the service restarts: check the disk, then restart", e.Path, e.Cause)
}

// Full reports whether the disk was full or read-only: the state can be opened
// again once it can be written to. Any other failure is for a person to look at.
func (e *PoisonedError) Full() bool {
	code := sqliteCode(e.Cause)
	return code == sqlite3.SQLITE_FULL || code == sqlite3.SQLITE_READONLY || isFull(e.Cause)
}

// IsFault reports whether err, of opening the state, is one of the disk rather than
// of what the files contain.
func IsFault(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM:
		return true
	}
	_, short := errors.AsType[*DiskError](err)
	return short || durable.IsFault(err) || errors.Is(err, ErrPoisoned)
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// Advice says what to do about an error of the state: make room, or, about any
// other failure, look at the disk.
func Advice(err error) string {
	poisoned, ok := errors.AsType[*PoisonedError](err)
	disk, short := errors.AsType[*DiskError](err)
	if short && disk.ReadOnly || errors.Is(err, unix.EROFS) || sqliteCode(err) == sqlite3.SQLITE_READONLY {
		return "make the file system of the state directory writable; the service then continues by itself"
	}
	if short || isFull(err) || ok && poisoned.Full() {
		return "make room on the disk of the state directory, or run: bailiwick gc; the service then continues by itself"
	}
	return "check the disk of the state directory, then restart the service"
}

// Is makes every PoisonedError an ErrPoisoned.
func (e *PoisonedError) Is(target error) bool { return target == ErrPoisoned }

func (e *PoisonedError) Unwrap() error { return e.Cause }

// OwnedError means that another process has the state.
type OwnedError struct {
	Dir string
	PID int // 0 if unknown
}

func (e *OwnedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("state directory %s: in use by another process: stop it or use another directory", e.Dir)
	}
	return fmt.Sprintf("state directory %s: in use by process %d: stop it or use another directory", e.Dir, e.PID)
}

// CorruptError means that a file of the state cannot be trusted.
type CorruptError struct {
	Path string
	What string
	Fix  string // what to do; empty for the default
}

func (e *CorruptError) Error() string {
	fix := e.Fix
	if fix == "" {
		fix = "restore the directory from a backup, or move it away and create new state"
	}
	return fmt.Sprintf("state database %s: %s: %s", e.Path, e.What, fix)
}

// PanicError is a panic of a function, whose writes were undone.
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

// isCallers reports whether an error is the fault of the caller's statement and
// leaves the transaction intact.
func isCallers(err error) bool {
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

// damage makes an error of opening, migrating or checking name the file, and turns
// it into a CorruptError if SQLite reports corruption.
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
