package durable

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

const (
	// Nonblock has no meaning here: there are no fifos to open.
	Nonblock = 0

	noFollow   = 0
	exclusive  = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	shared     = windows.LOCKFILE_FAIL_IMMEDIATELY
	sharedWait = 0
)

func unlock(*os.File) error { return nil } // its only handle is about to be closed

func lock(f *os.File, how uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	if err != nil {
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

// SyncParents does nothing: directories cannot be synced here.
func SyncParents(string) error { return nil }

// Trusted reports true: the access list of the directory applies.
func Trusted(fs.FileInfo) bool { return true }
