package jail

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock, on one thread. go-landlock restricts every thread of a process; in pid 1 of a jail only the thread that starts
// commands may be restricted, hence the raw calls.

const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	landlockWriteFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	landlockChange    = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// landlockDevices are handled and granted nowhere.
	landlockDevices = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// landlockABI returns 0 if the kernel has no landlock.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi) //nolint:gosec // a small number
}

// landlockRuleset allows reading all of the jail's file system and writing a few places. With readOnlyZero, /dev/zero gives
// no shared memory: a shared mapping of it needs a descriptor for writing.
func landlockRuleset(abi int, readOnlyZero bool) (int, error) {
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
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), landlockAttrSize(abi), 0) //nolint:gosec // audited: an argument of the system call
	if errno != 0 {
		return -1, fmt.Errorf("create landlock ruleset: %w", errno)
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
		if err := landlockAllow(int(set), r.path, r.access); err != nil { //nolint:gosec // a descriptor
			_ = unix.Close(int(set)) //nolint:gosec // a descriptor
			return -1, err
		}
	}
	return int(set), nil //nolint:gosec // a descriptor
}

// landlockAttrSize is the size of the structure in this ABI; kernels refuse a larger one unless the rest is zero.
func landlockAttrSize(abi int) uintptr {
	var attr unix.LandlockRulesetAttr
	switch {
	case abi >= 6:
		return unsafe.Sizeof(attr)
	case abi >= 4:
		return unsafe.Offsetof(attr.Scoped)
	default:
		return unsafe.Offsetof(attr.Access_net)
	}
}

func landlockAllow(set int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open for landlock", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}                                                               //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // audited: an argument of the system call
	if errno != 0 {
		return fmt.Errorf("allow %s in landlock: %w", path, errno)
	}
	return nil
}

func landlockRestrict(set int) error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); errno != 0 {
		return fmt.Errorf("restrict by landlock: %w", errno)
	}
	return nil
}
