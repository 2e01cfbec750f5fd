package faultdisk

import (
	"fmt"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Refuse makes the kernel fail system calls of this process for good: with "fsync"
// every sync, with "write" every write beyond the first 1,000 bytes of a file.
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
	_, err := install(filter, 0)
	return err
}
