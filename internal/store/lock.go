package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const lockName = "lock"

// lock is an flock on a file in the state directory. It ends with the process,
// however that ends, and is not inherited: the descriptor closes on exec, so a
// worker that outlives its daemon does not hold the state.
type lock struct{ f *os.File }

func acquire(ctx context.Context, dir string) (*lock, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600) //nolint:gosec // G304: the directory is ours
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := flock(ctx, f); err != nil {
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

// afterlife is how long a child that a killed owner was just starting may hold
// on to the lock: from its fork to its exec.
const afterlife = 5 * time.Second

// flock takes the lock, or returns EWOULDBLOCK while its owner lives. That of
// an owner that was killed may be held for a moment by a process that it had
// begun to start, and is worth waiting for.
func flock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, afterlife)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if pid := readPID(f); pid == 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

func readPID(f *os.File) int {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func (l *lock) release() error { return l.f.Close() }
