package jail

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The system call filter of everything the agent runs. It denies the kernel interfaces that lead to other processes, other
// namespaces, the host's devices, or large, rarely reviewed parts of the kernel. Calls newer than this list return ENOSYS, so
// a new kernel adds none.

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArg    = 16 // low half of argument 0 on a little-endian machine; each argument is 8 bytes
)

const newestCall = unix.SYS_RSEQ_SLICE_YIELD

// namespaceFlags are the clone flags that make namespaces. CLONE_NEWTIME overlaps the exit signal and cannot be given to clone.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func deny(err unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(err)} //nolint:gosec // an errno has 16 bits here
}

func absent() []uint32 {
	return []uint32{unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}
}

func denied() []uint32 {
	return append([]uint32{
		// other processes
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
		// namespaces and mounts
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
		unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_LISTNS,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
		// kernel interfaces with many past vulnerabilities
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL, unix.SYS_REMAP_FILE_PAGES,
		// the machine itself
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SYSLOG,
		unix.SYS_VHANGUP, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_SCHED_SETAFFINITY, // see pin
	}, deniedHere()...)
}

// rule is a check of arguments for one call, ending in a return or falling through to "allow".
type rule struct {
	call uint32
	then []bpf.Instruction
}

func low(arg uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArg + 8*arg, Size: 4} }

// denyIf returns err when the accumulator satisfies cond.
func denyIf(cond bpf.JumpTest, val uint32, err unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipFalse: 1}, deny(err)}
}

func allowOnly(values []uint32, err unix.Errno) []bpf.Instruction {
	var out []bpf.Instruction
	for _, v := range values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, allow())
	}
	return append(out, deny(err))
}

func allow() bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW} }

// rules returns the checks of arguments. No call may name pid 1 or one of its threads; those have the numbers up to
// reserved, which the kernel never reuses.
func rules(reserved uint32) []rule {
	seq := func(parts ...[]bpf.Instruction) []bpf.Instruction { return slices.Concat(parts...) }
	load := func(arg uint32) []bpf.Instruction { return []bpf.Instruction{low(arg)} }
	// Terminal calls that put input into another session's terminal or reprogram the console.
	ioctl := load(1)
	for _, request := range []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, unix.TIOCCONS, unix.TIOCSCTTY} {
		ioctl = append(ioctl, denyIf(bpf.JumpEqual, request, unix.EPERM)...)
	}
	// Device nodes, among them the overlay whiteout 0:0.
	device := func(arg uint32) []bpf.Instruction {
		return seq(load(arg), []bpf.Instruction{bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.S_IFMT}},
			denyIf(bpf.JumpEqual, unix.S_IFCHR, unix.EPERM), denyIf(bpf.JumpEqual, unix.S_IFBLK, unix.EPERM))
	}
	internet := []bpf.Instruction{ // stream and datagram over TCP and UDP: no raw, SCTP, MPTCP, ICMP
		low(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.SOCK_DGRAM, SkipFalse: 1},
		deny(unix.EPERM),
		low(2),
	}
	internet = append(internet, allowOnly([]uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}, unix.EPROTONOSUPPORT)...)
	route := append(load(2), allowOnly([]uint32{unix.NETLINK_ROUTE}, unix.EPROTONOSUPPORT)...)
	socket := seq(load(0),
		[]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 1}, allow()},
		[]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: uint8(len(route))}}, route, //nolint:gosec // a dozen
		[]bpf.Instruction{
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
			deny(unix.EAFNOSUPPORT),
		}, internet)
	notInit := append(load(0), append([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},              // the caller, or its group
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: reserved, SkipTrue: 1}, // others; groups are negative, so large
	}, deny(unix.EPERM))...)
	return append([]rule{
		{unix.SYS_CLONE, seq(load(0), []bpf.Instruction{bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: namespaceFlags}},
			denyIf(bpf.JumpNotEqual, 0, unix.EPERM))},
		{unix.SYS_IOCTL, ioctl},
		{unix.SYS_SOCKET, socket},
		{unix.SYS_SOCKETPAIR, append(load(0), allowOnly([]uint32{unix.AF_UNIX}, unix.EAFNOSUPPORT)...)},
		{unix.SYS_MKNODAT, device(2)},
		{unix.SYS_PERSONALITY, append(load(0), allowOnly([]uint32{0, 8, 0xffffffff}, unix.EPERM)...)},
		{unix.SYS_KILL, notInit},
		{unix.SYS_TKILL, notInit},
		{unix.SYS_TGKILL, notInit},
		{unix.SYS_PIDFD_OPEN, notInit},
		{unix.SYS_RT_SIGQUEUEINFO, notInit},
		{unix.SYS_RT_TGSIGQUEUEINFO, notInit},
		{unix.SYS_PRLIMIT64, notInit},
	}, rulesHere(device)...)
}

// filter assembles the program.
func filter(reserved uint32) ([]unix.SockFilter, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}, // another calling convention: 32-bit programs
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: newestCall, SkipFalse: 1}, // x32 has a bit above all of them
		deny(unix.ENOSYS),
	}
	for _, call := range absent() {
		program = append(program, denyIf(bpf.JumpEqual, call, unix.ENOSYS)...)
	}
	for _, call := range denied() {
		program = append(program, denyIf(bpf.JumpEqual, call, unix.EPERM)...)
	}
	for _, r := range rules(reserved) {
		then := append(slices.Clone(r.then), allow())
		if len(then) > 255 {
			return nil, fmt.Errorf("seccomp rule for call %d is too long", r.call)
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.call, SkipFalse: uint8(len(then))}) //nolint:gosec // checked
		program = append(program, then...)
	}
	raw, err := bpf.Assemble(append(program, allow()))
	if err != nil {
		return nil, fmt.Errorf("assemble the seccomp filter: %w", err)
	}
	out := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		out[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return out, nil
}

// installFilter confines the calling thread and its children; the thread must be locked and have no_new_privs.
func installFilter(program []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                         //nolint:gosec // a few hundred
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))) //nolint:gosec // audited: an argument of the system call
	if errno != 0 {
		return errno
	}
	return nil
}
