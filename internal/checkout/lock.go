package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/capture"
)

// patience is how often a lock that somebody has is asked for.
const patience = 5 * time.Millisecond

// lock makes this process the one that makes or removes key, until unlock.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		f, err := s.tryLock(key, os.O_CREATE)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tryLock takes the lock of key or returns ErrInUse. With create 0 the lock
// file must be there.
func (s *Store) tryLock(key string, create int) (*os.File, error) {
	name := s.path(key) + lockSuffix
	f, err := os.OpenFile(name, os.O_RDWR|create|unix.O_NOFOLLOW, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	if err := flock(f, name, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hold keeps dir from being removed for as long as the file is open. The error
// is fs.ErrNotExist also when it is being removed.
func hold(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0) //nolint:gosec // G304: our own directory
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %w", capture.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	if err := flock(f, dir, unix.LOCK_SH); err != nil {
		if errors.Is(err, ErrInUse) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// flock locks f at once or not at all, and makes sure that name is still f:
// who had the lock before may have removed or renamed it.
func flock(f *os.File, name string, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			break
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrInUse
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "lock", Path: name, Err: err}
		}
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(name) //nolint:gosec // G703: a name of ours
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return ErrInUse
	}
	return err
}
