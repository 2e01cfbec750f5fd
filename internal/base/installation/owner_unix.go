//go:build unix

package installation

import (
	"io/fs"
	"syscall"
)

// Owner returns the account and the group of a file; ok is false where files have none.
func Owner(st fs.FileInfo) (uid, gid int, ok bool) {
	owner, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(owner.Uid), int(owner.Gid), true
}
