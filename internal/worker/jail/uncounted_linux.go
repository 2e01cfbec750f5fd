package jail

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Memory that only a memory control group can count. Without one, the jail gets none of it, and the watchdog counts the rest.

// mmapShared is the bit that MAP_SHARED and MAP_SHARED_VALIDATE have, and private mappings do not.
const mmapShared = unix.MAP_SHARED

// fSetPipeSize is F_SETPIPE_SZ.
const fSetPipeSize = 1031

// uncountedFilter refuses huge pages, which are the machine's. With memory, it
// refuses memory that neither belongs to a process nor is on the jail's tmpfs, and calls that keep pages after their owner gave
// them back: shared anonymous mappings and memfds, larger pipes, splice and its kin. Programs fall back to files in /dev/shm
// and to read and write. With sockets, calls that set the size of a socket's buffers have no effect.
//
// It is a program of its own next to [filter]: of two answers the kernel takes the stricter one.
func uncountedFilter(memory, sockets bool) ([]unix.SockFilter, error) {
	mmap := append([]bpf.Instruction{low(3)}, denyIf(bpf.JumpBitsSet, unix.MAP_HUGETLB, unix.ENOMEM)...)
	memfd := append([]bpf.Instruction{low(1)}, denyIf(bpf.JumpBitsSet, unix.MFD_HUGETLB, unix.ENOMEM)...)
	var list []rule
	if memory {
		const both = mmapShared | unix.MAP_ANONYMOUS
		mmap = append(mmap, low(3), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: both})
		mmap = append(mmap, denyIf(bpf.JumpEqual, both, unix.EPERM)...)
		memfd = []bpf.Instruction{deny(unix.ENOSYS)}
		for _, call := range []uint32{unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_VMSPLICE, unix.SYS_SENDFILE} {
			list = append(list, rule{call, []bpf.Instruction{deny(unix.EINVAL)}}) // as for descriptors that do not support it
		}
		// Descriptors are counted by process: threads have the same. Huge pages are off, because all of one is kept for one small page.
		own := append([]bpf.Instruction{low(0), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.CLONE_THREAD | unix.CLONE_FILES}},
			denyIf(bpf.JumpEqual, unix.CLONE_THREAD, unix.EINVAL)...)
		list = append(list, rule{unix.SYS_CLONE, own},
			rule{unix.SYS_CLOSE_RANGE, append([]bpf.Instruction{low(2)}, denyIf(bpf.JumpBitsSet, unix.CLOSE_RANGE_UNSHARE, unix.EINVAL)...)},
			rule{unix.SYS_PRCTL, append([]bpf.Instruction{low(0)}, denyIf(bpf.JumpEqual, unix.PR_SET_THP_DISABLE, unix.EPERM)...)})
		list = append(list, rule{unix.SYS_FCNTL, append([]bpf.Instruction{low(1)}, denyIf(bpf.JumpEqual, fSetPipeSize, unix.EPERM)...)})
	}
	if sockets {
		list = append(list, rule{unix.SYS_SETSOCKOPT, []bpf.Instruction{
			low(1),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOL_SOCKET, SkipTrue: 1},
			allow(),
			low(2),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SO_SNDBUF, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SO_RCVBUF, SkipTrue: 1},
			allow(),
			deny(0), // success, as when the size is capped
		}})
	}
	list = append(list, rule{unix.SYS_MMAP, mmap}, rule{unix.SYS_MEMFD_CREATE, memfd})
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}} // the other program refuses foreign architectures
	for _, r := range list {
		then := append(r.then, allow())
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.call, SkipFalse: uint8(len(then))}) //nolint:gosec // a dozen
		program = append(program, then...)
	}
	return sockProgram(append(program, allow()))
}
