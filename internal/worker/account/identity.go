package account

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Identity names one process, of all that this machine has and will have: numbers of processes are used again.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks between boot and its start
	Boot  string `json:"boot"`  // id of the boot
}

// ErrExited says that a process has exited.
var ErrExited = errors.New("the process has exited")

// Identify returns the identity of a process that has not been waited for.
func Identify(pid int) (Identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Identity{}, err
	}
	id := Identity{PID: pid, Boot: strings.TrimSpace(string(boot))}
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 19 { // the 22nd of proc_pid_stat(5); the second may have spaces
		if id.Start, err = strconv.ParseUint(string(fields[19]), 10, 64); err == nil {
			return id, nil
		}
	}
	return id, fmt.Errorf("process %d: its status is %q", pid, stat)
}

// Open returns a handle of the process, a pidfd; ErrExited when it has exited, whether or not it was waited for.
func (i Identity) Open() (*os.File, error) {
	if i.PID <= 0 {
		return nil, fmt.Errorf("process %d: %w", i.PID, unix.EINVAL)
	}
	fd, err := unix.PidfdOpen(i.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL, on older kernels: its number is still that of a session or group
		return nil, ErrExited
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", i.PID, err)
	}
	handle := os.NewFile(uintptr(fd), "handle of process "+strconv.Itoa(i.PID)) //nolint:gosec // a descriptor
	now, err := Identify(i.PID)                                                 // of the handle's process, which has its number until it was waited for
	exited, waitErr := AwaitExit(handle, 0)
	switch {
	case waitErr != nil || err != nil && !exited && !errors.Is(err, os.ErrNotExist):
		return nil, errors.Join(err, waitErr, handle.Close())
	case exited || err != nil || now != i:
		return nil, errors.Join(ErrExited, handle.Close())
	}
	return handle, nil
}

// AwaitExit waits for the exit of a handle's process, at most as long as within; below zero: as long as it takes. Who closed the
// handle has waited for it.
func AwaitExit(handle *os.File, within time.Duration) (exited bool, err error) {
	err = control(handle, func(fd int) error {
		exited, err = await(fd, within)
		return err
	})
	if errors.Is(err, os.ErrClosed) {
		return true, nil
	}
	return exited, err
}

func await(fd int, within time.Duration) (exited bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // G115: a descriptor
	timeout := -1
	if within >= 0 {
		timeout = int(within.Milliseconds())
	}
	for {
		n, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// control calls fn with a descriptor that stays open meanwhile.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = fn(int(fd)) }) //nolint:gosec // G115: a descriptor
	return errors.Join(ctlErr, err)
}

// KillSession kills the process of a handle, which leads a session, and its process group.
func KillSession(handle *os.File, pid int) error {
	err := control(handle, func(fd int) error {
		if exited, err := await(fd, 0); err != nil || exited {
			return err
		}
		for _, err := range []error{unix.Kill(-pid, unix.SIGKILL), unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)} {
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		return nil
	})
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
