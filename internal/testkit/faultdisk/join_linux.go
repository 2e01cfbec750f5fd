package faultdisk

import (
	"errors"
	"fmt"
	"unsafe" //nolint:depguard // the kernel takes the filter's address

	"golang.org/x/sys/unix"
)

// joinFD is the descriptor of the socket to Run.
const joinFD = 3

// Join must be the first call of a process under Run. From then on each of its
// system calls that touches a file waits until Run has recorded it.
func Join() error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	add := func(calls []uint32, ret uint32) {
		for _, nr := range calls {
			filter = append(
				filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: ret},
			)
		}
	}
	var watched []uint32
	for nr := range calls() {
		watched = append(watched, nr)
	}
	add(watched, unix.SECCOMP_RET_USER_NOTIF)
	add(refused(), unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})

	listener, err := install(filter, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH)
	if err != nil {
		return err
	}
	err = unix.Sendmsg(joinFD, []byte{0}, unix.UnixRights(listener), nil, 0)
	return errors.Join(err, unix.Close(listener), unix.Close(joinFD))
}

// install installs a filter on all threads and returns what the call does.
func install(filter []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	result, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC|flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(result), nil
}

// refused are calls that could change a file without being recorded. Go and SQLite
// work without them.
func refused() []uint32 {
	return []uint32{
		unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_SPLICE, unix.SYS_FALLOCATE, unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP,
		unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_TRUNCATE, unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_SYNC_FILE_RANGE,
	}
}
