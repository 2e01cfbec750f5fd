package landlock

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrMissing means that the kernel has no landlock.
var ErrMissing = errors.New("the kernel has no landlock")

// Fix says how a machine gets landlock.
const Fix = "use Linux 5.13 or later with landlock in CONFIG_LSM or lsm="

// ABI returns 0 if the kernel has no landlock.
func ABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi) //nolint:gosec // a small number
}

// Ruleset is a descriptor of rules in the making. The caller closes it.
type Ruleset int

// New returns the ruleset that refuses what attr handles, until rules allow it.
func New(attr unix.LandlockRulesetAttr) (Ruleset, error) {
	abi := ABI()
	if abi == 0 {
		return -1, ErrMissing
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), attrSize(abi), 0) //nolint:gosec // audited: an argument of the system call
	if errno != 0 {
		return -1, fmt.Errorf("create landlock ruleset: %w", errno)
	}
	return Ruleset(set), nil //nolint:gosec // a descriptor
}

// attrSize is the size of the structure in this ABI; kernels refuse a larger one unless the rest is zero.
func attrSize(abi int) uintptr {
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

// Close closes the descriptor, not the restriction.
func (s Ruleset) Close() error { return unix.Close(int(s)) }

// Allow allows access to path and what is below.
func (s Ruleset) Allow(path string, access uint64) error {
	f, err := os.OpenFile(path, unix.O_PATH, 0) //nolint:gosec // G304: only opened as a place
	if err != nil {
		return fmt.Errorf("allow in landlock: %w", err)
	}
	defer f.Close() //nolint:errcheck // only a place
	return s.AllowFile(f, access)
}

// AllowFile is Allow for a file or directory that is open, perhaps with O_PATH.
func (s Ruleset) AllowFile(f *os.File, access uint64) error {
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(f.Fd())}                                                         //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0) //nolint:gosec // audited: an argument of the system call
	if errno != 0 {
		return fmt.Errorf("allow %s in landlock: %w", f.Name(), errno)
	}
	return nil
}

// Restrict restricts the calling thread for the rest of its life. The thread must have no_new_privs set.
func (s Ruleset) Restrict() error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s), 0, 0); errno != 0 {
		return fmt.Errorf("restrict by landlock: %w", errno)
	}
	return nil
}
