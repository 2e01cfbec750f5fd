package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/capture"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// lock makes this process the one that makes or removes key, until unlock.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	var f *os.File
	err = durable.PollLock(ctx, func() (err error) {
		f, err = s.tryLock(key, os.O_CREATE)
		return err
	})
	if errors.Is(err, durable.ErrLocked) {
		return nil, context.Cause(ctx)
	}
	return func() { _ = f.Close() }, err
}

// tryLock takes the lock of key or returns ErrInUse. With create 0 the lock
// file must be there.
func (s *Store) tryLock(key string, create int) (*os.File, error) {
	name := s.path(key) + lockSuffix
	f, err := os.OpenFile(name, os.O_RDWR|create|unix.O_NOFOLLOW, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	if err := lockNamed(f, name, durable.TryLock); err != nil {
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
	if err := lockNamed(f, dir, durable.TryRLock); err != nil {
		if errors.Is(err, ErrInUse) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockNamed locks f at once or not at all, and makes sure that name is still f:
// the process that had the lock before may have removed or renamed it.
func lockNamed(f *os.File, name string, try func(*os.File) error) error {
	if err := try(f); err != nil {
		return err
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
