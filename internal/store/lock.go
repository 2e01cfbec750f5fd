package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const lockName = "lock"

// lock is an flock on a file in the state directory. It ends with the process,
// however that ends, and is not inherited: the descriptor closes on exec, so a
// worker that outlives its daemon does not hold the state.
type lock struct{ f *os.File }

func acquire(dir string) (*lock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600) //nolint:gosec // G304: the directory is ours
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close() //nolint:errcheck // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &OwnedError{Dir: dir, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Who has it is told for people only, so a failure (a full disk) is no
	// reason to refuse, and a stale number is worse than none.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &lock{f}, nil
}

func readPID(f *os.File) int {
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func (l *lock) release() error { return l.f.Close() }
