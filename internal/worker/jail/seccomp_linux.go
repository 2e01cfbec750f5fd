package jail

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The system call filter of everything the agent runs. It allows the calls that seccomp_calls_linux.go lists, and no others: a call
// that the list does not name, such as one of a newer kernel, returns ENOSYS, as on a kernel without it. It sees numbers and
// register values only, never memory: what a call finds behind a pointer, such as the descriptors that a message carries, is
// bounded by other layers.

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArg    = 16 // low half of argument 0 on a little-endian machine; each argument is 8 bytes
)

func deny(err unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(err)} //nolint:gosec // an errno has 16 bits here
}

func allow() bpf.Instruction { return bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW} }

// assemble returns the filter: the calls with rules first, then those that fail, then those allowed as they are.
func assemble(reserved uint32) ([]bpf.Instruction, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}, // another calling convention: 32-bit programs
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	for _, r := range rules(reserved) {
		then := append(slices.Clone(r.then), allow())
		if len(then) > 255 {
			return nil, fmt.Errorf("seccomp rule for call %d is too long", r.call)
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.call, SkipFalse: uint8(len(then))}) //nolint:gosec // checked
		program = append(program, then...)
	}
	for _, r := range ranges(calls(unix.EPERM)) {
		program = append(program, r.returns(deny(unix.EPERM))...)
	}
	for _, r := range ranges(calls(0)) {
		program = append(program, r.returns(allow())...)
	}
	return append(program, deny(unix.ENOSYS)), nil // x32 calls have a bit above all numbers
}

// span is a run of consecutive numbers.
type span struct{ first, last uint32 }

func ranges(numbers []uint32) []span {
	slices.Sort(numbers)
	var out []span
	for _, n := range numbers {
		if i := len(out) - 1; i >= 0 && n <= out[i].last+1 {
			out[i].last = n
		} else {
			out = append(out, span{n, n})
		}
	}
	return out
}

// returns ends the program by then if the accumulator is in the span.
func (s span) returns(then bpf.Instruction) []bpf.Instruction {
	if s.first == s.last {
		return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: s.first, SkipFalse: 1}, then}
	}
	return []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: s.first, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: s.last, SkipTrue: 1},
		then,
	}
}

// filter assembles the program for the kernel.
func filter(reserved uint32) ([]unix.SockFilter, error) {
	program, err := assemble(reserved)
	if err != nil {
		return nil, err
	}
	return sockProgram(program)
}

// sockProgram gives a program the kernel's form.
func sockProgram(program []bpf.Instruction) ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(program)
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
