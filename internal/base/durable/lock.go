package durable

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrLocked means that another open file holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock opens path, which it creates if necessary, and locks it exclusively
// until the file is closed. The error is ErrLocked when the lock is held.
func Lock(path string) (*os.File, error) {
	f, err := OpenLock(path)
	if err != nil {
		return nil, err
	}
	if err := TryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenLock opens a lock file without locking it. Child processes do not inherit
// it, unless it is passed to them.
func OpenLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600) //nolint:gosec // G304: callers name their own files
}

// TryLock locks f exclusively or returns ErrLocked.
func TryLock(f *os.File) error { return lock(f, exclusive) }

// TryRLock locks f together with other readers or returns ErrLocked.
func TryRLock(f *os.File) error { return lock(f, shared) }

// RLock waits until f can be locked together with other readers.
func RLock(f *os.File) error { return lock(f, sharedWait) }

// Release unlocks f and closes it. Closing alone leaves it locked while a process that was
// just forked has not executed its program yet.
func Release(f *os.File) error { return errors.Join(unlock(f), f.Close()) }

// pollInterval is how often a held lock is tried again.
const pollInterval = 5 * time.Millisecond

// PollLock calls try until it returns anything but ErrLocked, or the context
// ends, when it returns ErrLocked.
func PollLock(ctx context.Context, try func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := try()
		if !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// SetOwner writes a process id to a lock file that this process has locked.
func SetOwner(f *os.File, pid int) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// Owner returns the process id that SetOwner wrote last.
func Owner(f io.ReaderAt) (int, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
