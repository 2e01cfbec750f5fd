package jail

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/landlock"
)

// In pid 1 of a jail only the thread that starts commands is restricted.

const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	landlockWriteFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	landlockChange    = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// landlockDevices are handled and granted nowhere.
	landlockDevices = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// landlockRuleset allows reading all of the jail's file system and writing a few places. With readOnlyZero, /dev/zero gives
// no shared memory: a shared mapping of it needs a descriptor for writing.
func landlockRuleset(abi int, readOnlyZero bool) (landlock.Ruleset, error) {
	write := uint64(landlockWriteFile)
	change := uint64(landlockChange)
	attr := unix.LandlockRulesetAttr{Access_fs: landlockRead | landlockWriteFile | landlockChange | landlockDevices}
	if abi >= 2 {
		change |= unix.LANDLOCK_ACCESS_FS_REFER
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	terminal := write
	if abi >= 5 {
		terminal |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	zero := write
	if readOnlyZero {
		zero = 0
	}
	set, err := landlock.New(attr)
	if err != nil {
		return -1, err
	}
	for _, r := range []struct {
		path   string
		access uint64
	}{
		{"/", landlockRead},
		{WorkspaceDir, landlockRead | write | change},
		{HomeDir, landlockRead | write | change},
		{"/tmp", landlockRead | write | change},
		{"/dev/shm", landlockRead | write | change},
		{"/dev/pts", landlockRead&^unix.LANDLOCK_ACCESS_FS_EXECUTE | terminal},
		{"/dev/null", unix.LANDLOCK_ACCESS_FS_READ_FILE | write},
		{"/dev/zero", unix.LANDLOCK_ACCESS_FS_READ_FILE | zero},
		{"/dev/full", unix.LANDLOCK_ACCESS_FS_READ_FILE | write},
	} {
		if err := set.Allow(r.path, r.access); err != nil {
			return -1, errors.Join(err, set.Close())
		}
	}
	return set, nil
}
