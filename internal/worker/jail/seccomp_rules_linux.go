package jail

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// rule is a check of arguments for one call, ending in a return or falling through to "allow".
type rule struct {
	call uint32
	then []bpf.Instruction
}

// namespaceFlags are the clone flags that make namespaces. CLONE_NEWTIME overlaps the exit signal and cannot be given to clone.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// maxShared is the size of the largest System V shared memory segment, one page. Databases lock their data directory by one.
// With the kernel's limit of 4096 segments in a namespace, a jail has at most 16 MiB of it.
const maxShared = 4096

// Values that x/sys lacks.
const (
	ioprioWhoProcess = 1 // IOPRIO_WHO_PROCESS
	fiosetown        = 0x8901
	siocspgrp        = 0x8902
	prSchedCore      = 62 // PR_SCHED_CORE
	shmHugetlb       = 0o4000
)

func low(arg uint32) bpf.Instruction  { return bpf.LoadAbsolute{Off: offArg + 8*arg, Size: 4} }
func high(arg uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArg + 8*arg + 4, Size: 4} }

// denyIf returns err when the accumulator satisfies cond.
func denyIf(cond bpf.JumpTest, val uint32, err unix.Errno) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: cond, Val: val, SkipFalse: 1}, deny(err)}
}

// only denies values of an argument other than want.
func only(arg, want uint32, err unix.Errno) []bpf.Instruction {
	return append([]bpf.Instruction{low(arg)}, denyIf(bpf.JumpNotEqual, want, err)...)
}

func allowOnly(values []uint32, err unix.Errno) []bpf.Instruction {
	var out []bpf.Instruction
	for _, v := range values {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, allow())
	}
	return append(out, deny(err))
}

// rules returns the checks of arguments. Reserved is the largest number of a thread of pid 1, which the kernel never reuses.
func rules(reserved uint32) []rule {
	return slices.Concat(fileRules(), socketRules(), processRules(reserved), schedulingRules())
}

func fileRules() []rule {
	// Terminal calls that put input into another session's terminal or reprogram the console, and F_SETOWN by other names. The
	// only terminals are the jail's own, so that programs may make one theirs.
	ioctl := []bpf.Instruction{low(1)}
	for _, request := range []uint32{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, unix.TIOCCONS, fiosetown, siocspgrp} {
		ioctl = append(ioctl, denyIf(bpf.JumpEqual, request, unix.EPERM)...)
	}
	// Device nodes, among them the overlay whiteout 0:0, which renameat2 makes too.
	device := func(arg uint32) []bpf.Instruction {
		return slices.Concat([]bpf.Instruction{low(arg), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.S_IFMT}},
			denyIf(bpf.JumpEqual, unix.S_IFCHR, unix.EPERM), denyIf(bpf.JumpEqual, unix.S_IFBLK, unix.EPERM))
	}
	return append([]rule{
		{unix.SYS_IOCTL, ioctl},
		{unix.SYS_MKNODAT, device(2)},
		{unix.SYS_RENAMEAT2, append([]bpf.Instruction{low(4)}, denyIf(bpf.JumpBitsSet, unix.RENAME_WHITEOUT, unix.EPERM)...)},
		// Every writable place is a tmpfs, which has no disk: a sync would only write back what others wrote.
		{unix.SYS_SYNC, []bpf.Instruction{deny(0)}},
		// It would drop what the machine caches of host files, and changes nothing on a tmpfs.
		{unix.SYS_FADVISE64, append([]bpf.Instruction{low(3)}, denyIf(bpf.JumpEqual, unix.FADV_DONTNEED, 0)...)},
		{unix.SYS_SHMGET, slices.Concat([]bpf.Instruction{high(1)}, denyIf(bpf.JumpNotEqual, 0, unix.EINVAL),
			[]bpf.Instruction{low(1)}, denyIf(bpf.JumpGreaterThan, maxShared, unix.EINVAL),
			[]bpf.Instruction{low(2)}, denyIf(bpf.JumpBitsSet, shmHugetlb, unix.ENOMEM))},
	}, fileRulesHere(device)...)
}

func socketRules() []rule {
	internet := []bpf.Instruction{ // stream and datagram over TCP and UDP: no raw, SCTP, MPTCP, ICMP
		low(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.SOCK_DGRAM, SkipFalse: 1},
		deny(unix.EPERM),
		low(2),
	}
	internet = append(internet, allowOnly([]uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}, unix.EPROTONOSUPPORT)...)
	route := append([]bpf.Instruction{low(2)}, allowOnly([]uint32{unix.NETLINK_ROUTE}, unix.EPROTONOSUPPORT)...)
	socket := slices.Concat([]bpf.Instruction{
		low(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 1},
		allow(),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: uint8(len(route))}, //nolint:gosec // a dozen
	}, route, []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET6, SkipTrue: 1},
		deny(unix.EAFNOSUPPORT),
	}, internet)
	// The machine has one limit for the memory of compiled filters; without room, no process can install one, a jail included.
	// Pages that a socket borrows stay after their owner gave them back.
	option := []bpf.Instruction{low(1), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_SOCKET, SkipTrue: 1}, allow(), low(2)}
	for _, name := range []uint32{
		unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF, unix.SO_ZEROCOPY,
	} {
		option = append(option, denyIf(bpf.JumpEqual, name, unix.EPERM)...)
	}
	return []rule{
		{unix.SYS_SETSOCKOPT, option},
		{unix.SYS_SOCKET, socket},
		{unix.SYS_SOCKETPAIR, append([]bpf.Instruction{low(0)}, allowOnly([]uint32{unix.AF_UNIX}, unix.EAFNOSUPPORT)...)},
	}
}

// processRules keep signals, limits and descriptors away from pid 1 and its threads.
func processRules(reserved uint32) []rule {
	notInit := []bpf.Instruction{
		low(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 2},              // the caller, or its group
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: reserved, SkipTrue: 1}, // others; groups are negative, so large
		deny(unix.EPERM),
	}
	// Limits of others may be read. Those of pid 1 could be lowered by the number of a thread that it started later.
	limits := slices.Concat(notInit, []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 1},
		allow(),
		high(2),
	}, denyIf(bpf.JumpNotEqual, 0, unix.EPERM), only(2, 0, unix.EPERM))
	// Whom a descriptor signals. The group of pid 1 is -1; F_SETOWN_EX has its owner in memory.
	owner := slices.Concat([]bpf.Instruction{low(1)}, denyIf(bpf.JumpEqual, unix.F_SETOWN_EX, unix.EPERM), []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.F_SETOWN, SkipTrue: 1},
		allow(),
		low(2),
	}, denyIf(bpf.JumpEqual, 0xffffffff, unix.EPERM), notInit[1:])
	return []rule{
		{unix.SYS_FCNTL, owner},
		{unix.SYS_CLONE, slices.Concat([]bpf.Instruction{low(0)}, denyIf(bpf.JumpBitsSet, namespaceFlags, unix.EPERM))},
		{unix.SYS_PERSONALITY, append([]bpf.Instruction{low(0)}, allowOnly([]uint32{0, 8, 0xffffffff}, unix.EPERM)...)},
		{unix.SYS_KILL, notInit},
		{unix.SYS_TKILL, notInit},
		{unix.SYS_TGKILL, notInit},
		{unix.SYS_PIDFD_OPEN, notInit},
		{unix.SYS_RT_SIGQUEUEINFO, notInit},
		{unix.SYS_RT_TGSIGQUEUEINFO, notInit},
		{unix.SYS_PRLIMIT64, limits},
	}
}

// schedulingRules let a thread schedule itself only. Without separate uids the kernel would let it change pid 1 and the
// thread that ends the jail, also by group and user. Core scheduling would keep others off a processor's second thread.
func schedulingRules() []rule {
	self := only(0, 0, unix.EPERM)
	return []rule{
		{unix.SYS_PRCTL, append([]bpf.Instruction{low(0)}, denyIf(bpf.JumpEqual, prSchedCore, unix.EINVAL)...)},
		{unix.SYS_SCHED_SETSCHEDULER, self},
		{unix.SYS_SCHED_SETPARAM, self},
		{unix.SYS_SCHED_SETATTR, self},
		{unix.SYS_SETPRIORITY, append(only(0, unix.PRIO_PROCESS, unix.EPERM), only(1, 0, unix.EPERM)...)},
		{unix.SYS_IOPRIO_SET, append(only(0, ioprioWhoProcess, unix.EPERM), only(1, 0, unix.EPERM)...)},
	}
}
