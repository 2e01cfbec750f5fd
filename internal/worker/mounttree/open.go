package mounttree

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AnyOwner lets OpenOwned open what belongs to anybody.
const AnyOwner = -1

// OpenOwned opens a path for mounting. It follows no symlink, and refuses what does not belong to
// uid.
func OpenOwned(path string, flags, uid int) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | flags), Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}) //nolint:gosec // G115: flags
	if err != nil {
		return nil, &os.PathError{Op: "open without symlinks", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path) //nolint:gosec // G115: a descriptor
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && uid != AnyOwner && int(st.Uid) != uid {
		err = fmt.Errorf("%s: belongs to uid %d, not to uid %d", path, st.Uid, uid)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
