package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// process holds on to the process that a handle was given to: another one that
// gets its number later is not taken for it.
type process struct{ fd int }

// holdProcess takes a process by its number, which the system has just told.
func holdProcess(pid int32) (process, error) {
	if pid <= 0 {
		return process{}, errors.New("the process cannot be seen from here")
	}
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return process{fd}, nil
}

// ended reports whether it has. What cannot be found out counts as ended.
func (p process) ended() bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0) //nolint:gosec // G115: a descriptor
		if !errors.Is(err, unix.EINTR) {
			return n != 0 || err != nil
		}
	}
}

// release lets go of it. It is not asked again.
func (p process) release() { _ = unix.Close(p.fd) } // only a reference
