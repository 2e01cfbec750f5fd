package checkoutcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// lock locks key, so that only this process creates or removes it, until unlock.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		if errors.Is(err, unix.EROFS) {
			err = fmt.Errorf("%w: %w", ErrReadOnly, err)
		}
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

// tryLock locks key or returns ErrInUse. create is os.O_CREATE, or 0 when the
// lock file must exist.
func (s *Store) tryLock(key string, create int) (*os.File, error) {
	return openLocked(s.path(key)+lockSuffix, os.O_RDWR|create, durable.TryLock)
}

// lockDir locks a directory by try, or returns ErrInUse.
func lockDir(dir string, try func(*os.File) error) (*os.File, error) {
	return openLocked(dir, os.O_RDONLY|unix.O_DIRECTORY, try)
}

// hold prevents the removal of dir while the file is open. The error is
// fs.ErrNotExist also when dir is being removed.
func hold(dir string) (*os.File, error) {
	f, err := lockDir(dir, durable.TryRLock)
	switch {
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		err = fmt.Errorf("%w: %w", capture.ErrDamaged, err)
	case errors.Is(err, ErrInUse):
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return f, err
}

// openLocked opens and locks name, and makes sure that name is still that file:
// the process that had the lock before may have removed or renamed it.
func openLocked(name string, flags int, try func(*os.File) error) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_NOFOLLOW, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	if err := errors.Join(try(f), isNamed(f, name)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func isNamed(f *os.File, name string) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(name) //nolint:gosec // G703: a name of ours
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, named) {
		return ErrInUse
	}
	return err
}
