package ownedpath

import (
	"os"

	"golang.org/x/sys/unix"
)

// ownerAt returns the owner of what is at a path without links. A link in the place of a directory is an error.
func ownerAt(path string) (uint32, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return 0, &os.PathError{Op: "open without links", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // only a handle
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Uid, nil
}
