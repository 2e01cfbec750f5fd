//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/internal/base/uidblock"

	"golang.org/x/sys/unix"
)

const (
	// Nonblock keeps an open of a fifo from waiting for its writer.
	Nonblock = unix.O_NONBLOCK

	noFollow   = unix.O_NOFOLLOW
	exclusive  = unix.LOCK_EX | unix.LOCK_NB
	shared     = unix.LOCK_SH | unix.LOCK_NB
	sharedWait = unix.LOCK_SH
)

func unlock(f *os.File) error { return lock(f, unix.LOCK_UN) }

func lock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how) //nolint:gosec // G115: a descriptor fits
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}

// SyncParents makes the names on the way to the directory dir durable, so that
// a power cut cannot remove dir with all that is in it. It stops at the first
// directory on the way up that this account does not own, may not read, or that
// is the root of a file system: this account did not create that one's name.
// Directories that existed before are synced too, since the process that made
// them may have been killed before it synced them.
func SyncParents(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	child, err := os.Stat(dir)
	if err != nil {
		return err
	}
	for up := filepath.Dir(dir); up != dir; dir, up = up, filepath.Dir(up) {
		parent, err := os.Stat(up)
		if err != nil {
			return err
		}
		c, p := child.Sys().(*syscall.Stat_t), parent.Sys().(*syscall.Stat_t)
		if p.Dev != c.Dev || int(c.Uid) != os.Geteuid() {
			return nil
		}
		if err := Sync(up); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return err
		}
		child = parent
	}
	return nil
}

// Trusted reports whether a file belongs to the account of this process or to
// root: no other account can have put it there or can change its mode.
func Trusted(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == uidblock.Root() || int(st.Uid) == os.Geteuid())
}
