package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

const lockName = "lock"

// acquire locks the state directory until the file is closed. Child processes do not
// inherit the lock, so a worker that outlives its service does not keep it.
func acquire(ctx context.Context, dir string) (*os.File, error) {
	f, err := durable.OpenLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := awaitDeadOwner(ctx, f); err != nil {
		defer f.Close() //nolint:errcheck // nothing was written
		if errors.Is(err, durable.ErrLocked) {
			pid, _ := durable.Owner(f)
			return nil, &OwnedError{Dir: dir, PID: pid}
		}
		return nil, err
	}
	_ = durable.SetOwner(f, os.Getpid()) // for people only: a full disk must not keep the service from starting
	return f, nil
}

// deadOwnerTimeout is how long a child that a killed owner was just starting
// may keep the lock: from its fork to its exec.
const deadOwnerTimeout = 5 * time.Second

// awaitDeadOwner locks f, or returns ErrLocked if its owner is alive. If the
// owner is dead, a process that it was starting may still have the lock for a
// moment, which is waited for.
func awaitDeadOwner(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, deadOwnerTimeout)
	defer cancel()
	return durable.PollLock(ctx, func() error {
		err := durable.TryLock(f)
		if pid, pidErr := durable.Owner(f); pidErr != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			cancel() // no reason to wait
		}
		return err
	})
}
