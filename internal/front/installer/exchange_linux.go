package installer

import "golang.org/x/sys/unix"

// exchange makes each of two names the other's, in one step.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
