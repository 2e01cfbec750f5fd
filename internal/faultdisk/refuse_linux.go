package faultdisk

import (
	"fmt"
	"os/signal"
	"syscall"
	"unsafe" //nolint:depguard // the kernel takes the filter's address

	"golang.org/x/sys/unix"
)

// Refuse has the kernel refuse what this process asks of its disk from now on:
// "fsync" every sync, so that what is written stays and nobody knows, or "write"
// every write beyond the first 1,000 bytes of a file, so that it does not stay.
// Neither can be taken back.
func Refuse(what string) error {
	switch what {
	case "write":
		signal.Ignore(syscall.SIGXFSZ)
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: 1000})
	case "fsync":
	default:
		return fmt.Errorf("refuse %q: want fsync or write", what)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const allThreads = 1 // SECCOMP_FILTER_FLAG_TSYNC
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, allThreads, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
