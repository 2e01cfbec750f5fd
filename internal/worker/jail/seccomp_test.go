//go:build linux

package jail

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// errnoResult is what the filter returns for a call that fails with err.
func errnoResult(err unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(err) }

// Every number up to the largest known one is in exactly one family or rule, or no call has it; and the filter does what the
// families say. Numbers above, x32 calls and those of other conventions fail closed.
//
// proves R-S1, R-S2
func TestEverySystemCallIsDecidedOnce(t *testing.T) {
	decided := map[uint32][]string{}
	want := map[uint32]uint32{}
	for _, f := range slices.Concat(allowedCalls(), allowedCallsHere(), refusedCalls(), refusedCallsHere()) {
		if f.why == "" || f.result != 0 && f.result != unix.EPERM && f.result != unix.ENOSYS {
			t.Errorf("family %+v", f)
		}
		for _, n := range f.calls {
			decided[n] = append(decided[n], f.why)
			want[n] = unix.SECCOMP_RET_ALLOW
			if f.result != 0 {
				want[n] = errnoResult(f.result)
			}
		}
	}
	checked := map[uint32]bool{}
	for _, r := range rules(9) {
		decided[r.call] = append(decided[r.call], "rule")
		checked[r.call] = true
	}
	vm := machine(t)
	for n := range uint32(newestCall + 1 + 1000) {
		known := n <= newestCall && !slices.ContainsFunc(unusedNumbers(), func(s span) bool { return s.first <= n && n <= s.last })
		if known && len(decided[n]) != 1 || !known && len(decided[n]) != 0 {
			t.Errorf("call %d: decided by %q", n, decided[n])
		}
		for _, foreign := range []seenCall{{number: n | 0x40000000, arch: auditArch}, {number: n | 0x80000000, arch: auditArch}} {
			if got := vm.judge(t, foreign); got != errnoResult(unix.ENOSYS) {
				t.Errorf("call %#x: %#x", foreign.number, got)
			}
		}
		if got := vm.judge(t, seenCall{number: n, arch: auditArch ^ 1}); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("call %d of another convention: %#x", n, got)
		}
		if checked[n] {
			continue
		}
		expected, ok := want[n]
		if !ok {
			expected = errnoResult(unix.ENOSYS)
		}
		if got := vm.judge(t, seenCall{number: n, arch: auditArch}); got != expected {
			t.Errorf("call %d (%q): %#x, want %#x", n, decided[n], got, expected)
		}
	}
}

// newestCall is the largest number that the families know.
const newestCall = unix.SYS_RSEQ_SLICE_YIELD

// The filter is also checked as a program, on arguments that a test cannot use for real.
func TestArgumentsAreCheckedByTheFilter(t *testing.T) {
	const ok = unix.SECCOMP_RET_ALLOW
	eperm := errnoResult(unix.EPERM)
	minus := ^uint64(0)
	vm := machine(t)
	for _, c := range []struct {
		what   string
		number uint32
		args   []uint64
		want   uint32
	}{
		{"clone a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, ok},
		{"clone a namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, eperm},
		{"clone two namespaces", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNS | unix.CLONE_NEWPID}, eperm},
		{"kill the group", unix.SYS_KILL, []uint64{0}, ok},
		{"kill a thread of pid 1", unix.SYS_KILL, []uint64{9}, eperm},
		{"kill another", unix.SYS_KILL, []uint64{10}, ok},
		{"kill everything", unix.SYS_KILL, []uint64{minus}, ok},
		{"a lock", unix.SYS_FCNTL, []uint64{3, unix.F_SETLK, 1}, ok},
		{"own a descriptor", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, 10}, ok},
		{"disown a descriptor", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, 0}, ok},
		{"a descriptor that signals pid 1", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, 1}, eperm},
		{"a descriptor that signals its group", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN, minus}, eperm},
		{"an owner in memory", unix.SYS_FCNTL, []uint64{3, unix.F_SETOWN_EX, 4096}, eperm},
		{"an owner by ioctl", unix.SYS_IOCTL, []uint64{3, fiosetown, 4096}, eperm},
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, ok},
		{"alg socket", unix.SYS_SOCKET, []uint64{unix.AF_ALG}, errnoResult(unix.EAFNOSUPPORT)},
		{"xdp socket", unix.SYS_SOCKET, []uint64{unix.AF_XDP}, errnoResult(unix.EAFNOSUPPORT)},
		{"rename", unix.SYS_RENAMEAT2, []uint64{0, 0, 0, 0, unix.RENAME_EXCHANGE}, ok},
		{"rename with a whiteout", unix.SYS_RENAMEAT2, []uint64{0, 0, 0, 0, unix.RENAME_WHITEOUT}, eperm},
		{"rename with a whiteout, in place of another", unix.SYS_RENAMEAT2, []uint64{0, 0, 0, 0, unix.RENAME_WHITEOUT | unix.RENAME_NOREPLACE}, eperm},
		{"rename with a whiteout and bits that the kernel ignores", unix.SYS_RENAMEAT2, []uint64{0, 0, 0, 0, 1<<40 | unix.RENAME_WHITEOUT}, eperm},
		{"a pipe by mknodat", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFIFO | 0o600}, ok},
		{"a whiteout by mknodat", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFCHR}, eperm},
		{"a disk by mknodat", unix.SYS_MKNODAT, []uint64{0, 0, unix.S_IFBLK | 0o600}, eperm},
		{"a page of shared memory", unix.SYS_SHMGET, []uint64{0, 4096}, ok},
		{"more shared memory", unix.SYS_SHMGET, []uint64{0, 4097}, errnoResult(unix.EINVAL)},
		{"shared memory of 2^32 bytes", unix.SYS_SHMGET, []uint64{0, 1 << 32}, errnoResult(unix.EINVAL)},
		{"a huge page of shared memory", unix.SYS_SHMGET, []uint64{0, 4096, shmHugetlb | 0o1600}, errnoResult(unix.ENOMEM)},
		{"keep a connection", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_KEEPALIVE}, ok},
		{"no delay", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_TCP, unix.TCP_NODELAY}, ok},
		{"a filter on a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm},
		{"a filter on sockets of one port", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, eperm},
		{"pages lent to a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ZEROCOPY}, eperm},
		{"sync does nothing", unix.SYS_SYNC, nil, errnoResult(0)},
		{"read ahead", unix.SYS_FADVISE64, []uint64{3, 0, 0, unix.FADV_WILLNEED}, ok},
		{"drop the cache of a file does nothing", unix.SYS_FADVISE64, []uint64{3, 0, 0, unix.FADV_DONTNEED}, errnoResult(0)},
		{"a name", unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME, 4096}, ok},
		{"core scheduling", unix.SYS_PRCTL, []uint64{prSchedCore, 1}, errnoResult(unix.EINVAL)},
		{"policy of the caller", unix.SYS_SCHED_SETSCHEDULER, []uint64{0, 3}, ok},
		{"policy of pid 1", unix.SYS_SCHED_SETSCHEDULER, []uint64{1, 5}, eperm},
		{"policy of a later thread", unix.SYS_SCHED_SETSCHEDULER, []uint64{10, 5}, eperm},
		{"parameters of another", unix.SYS_SCHED_SETPARAM, []uint64{10}, eperm},
		{"attributes of another", unix.SYS_SCHED_SETATTR, []uint64{10}, eperm},
		{"attributes of the caller", unix.SYS_SCHED_SETATTR, []uint64{0}, ok},
		{"nice", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0, 5}, ok},
		{"nice of another", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 10, 5}, eperm},
		{"nice of the group", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PGRP, 0, 5}, eperm},
		{"nice of the user", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0, 5}, eperm},
		{"ionice", unix.SYS_IOPRIO_SET, []uint64{1, 0, 0}, ok},
		{"ionice of another", unix.SYS_IOPRIO_SET, []uint64{1, 10, 0}, eperm},
		{"ionice of the user", unix.SYS_IOPRIO_SET, []uint64{3, 0, 0}, eperm},
		{"own limits", unix.SYS_PRLIMIT64, []uint64{0, 0, minus}, ok},
		{"read limits of another", unix.SYS_PRLIMIT64, []uint64{10, 0, 0, minus}, ok},
		{"set limits of another", unix.SYS_PRLIMIT64, []uint64{10, 0, 4096}, eperm},
		{"set limits of another by a high address", unix.SYS_PRLIMIT64, []uint64{10, 0, 1 << 32}, eperm},
		{"read limits of pid 1", unix.SYS_PRLIMIT64, []uint64{1, 0, 0, minus}, eperm},
	} {
		if got := vm.judge(t, seenCall{c.number, auditArch, c.args}); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.what, got, c.want)
		}
	}
}

// seenCall is what the filter sees of one system call.
type seenCall struct {
	number, arch uint32
	args         []uint64
}

type filterMachine struct{ *bpf.VM }

func machine(t *testing.T) filterMachine {
	t.Helper()
	program, err := assemble(9)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return filterMachine{vm}
}

// judge runs the filter. The machine of x/net/bpf reads big-endian, so each half of an argument is laid out so.
func (m filterMachine) judge(t *testing.T, c seenCall) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], c.number)
	binary.BigEndian.PutUint32(data[offArch:], c.arch)
	for i, a := range c.args {
		binary.BigEndian.PutUint32(data[offArg+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offArg+8*i+4:], uint32(a>>32))
	}
	got, err := m.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

// callAttacks take from everybody, or reach the jail's own supervisor, by system calls that agents do not need.
func callAttacks() map[string]func(facts) error {
	get := func(number, remove uintptr, size uintptr) func(facts) error {
		return func(facts) error {
			id, _, errno := unix.Syscall(number, unix.IPC_PRIVATE, size, 0o600)
			if errno != 0 {
				return errno
			}
			if number == unix.SYS_SEMGET {
				return call(remove, id, 0, unix.IPC_RMID)
			}
			return call(remove, id, unix.IPC_RMID, 0)
		}
	}
	idle := make([]byte, 48) // struct sched_attr: size, policy SCHED_IDLE
	idle[0], idle[4] = 48, 5
	return map[string]func(facts) error{
		"asynchronous I/O": func(facts) error {
			var context uintptr
			if err := call(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context))); err != nil {
				return err
			}
			return call(unix.SYS_IO_DESTROY, context)
		},
		"System V shared memory": get(unix.SYS_SHMGET, unix.SYS_SHMCTL, 1<<20),
		"System V semaphores":    get(unix.SYS_SEMGET, unix.SYS_SEMCTL, 1),
		"System V messages": func(facts) error {
			id, _, errno := unix.Syscall(unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600, 0)
			if errno != 0 {
				return errno
			}
			return call(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
		},
		"a POSIX message queue": func(facts) error {
			name := []byte("bailiwick-attack\x00")
			attr := [8]int64{1: 1, 2: 8} // one message of 8 bytes
			fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attr)), 0, 0)
			if errno != 0 {
				return errno
			}
			_ = unix.Close(int(fd))
			return call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])))
		},
		"scheduling policy of another": func(f facts) error {
			var param int32
			return someOther(f, func(pid uintptr) error {
				return call(unix.SYS_SCHED_SETSCHEDULER, pid, 0, uintptr(unsafe.Pointer(&param)))
			})
		},
		"scheduling parameters of another": func(f facts) error {
			var param int32
			return someOther(f, func(pid uintptr) error { return call(unix.SYS_SCHED_SETPARAM, pid, uintptr(unsafe.Pointer(&param))) })
		},
		"scheduling attributes of another": func(f facts) error {
			return someOther(f, func(pid uintptr) error {
				return call(unix.SYS_SCHED_SETATTR, pid, uintptr(unsafe.Pointer(&idle[0])), 0)
			})
		},
		"priority of another": func(f facts) error {
			return someOther(f, func(pid uintptr) error { return call(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, pid, 1) })
		},
		"a descriptor that signals another": func(f facts) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETOWN, f.Target)
			return err
		},
		"priority of a group":    func(facts) error { return call(unix.SYS_SETPRIORITY, unix.PRIO_PGRP, 0, 1) },
		"priority of a user":     func(facts) error { return call(unix.SYS_SETPRIORITY, unix.PRIO_USER, 0, 1) },
		"I/O priority of a user": func(facts) error { return call(unix.SYS_IOPRIO_SET, 3, uintptr(unix.Getuid()), 2<<13|7) },
		"I/O priority of another": func(f facts) error {
			return someOther(f, func(pid uintptr) error { return call(unix.SYS_IOPRIO_SET, 1, pid, 2<<13|7) })
		},
		"limits of a thread of another": func(f facts) error {
			same := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
			return someOther(f, func(pid uintptr) error { return unix.Prlimit(int(pid), unix.RLIMIT_FSIZE, &same, nil) })
		},
		"a device by a whiteout": func(facts) error {
			var last error
			for _, dir := range []string{".", "/tmp", "/dev/shm"} {
				from, to := dir+"/from", dir+"/to"
				if err := os.WriteFile(from, nil, 0o600); err != nil {
					return err
				}
				if last = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_WHITEOUT); last == nil {
					return nil
				}
			}
			return last
		},
	}
}

// someOther tries a call on the target and on numbers near it, among them threads of pid 1, except on the caller's own.
func someOther(f facts, do func(pid uintptr) error) error {
	var errs []error
	for pid := f.Target; pid < f.Target+64; pid++ {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid)); err == nil || pid != f.Target && pid == f.Victim {
			continue
		}
		err := do(uintptr(pid))
		if err == nil {
			if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid)); err == nil {
				continue // a thread of the runtime, started meanwhile
			}
			return nil
		}
		if f.Target != 1 {
			return err // outside, the neighbours are others' processes
		}
		if !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, errBlocked)...)
}

// neededCalls are refusals of the filter with a purpose beside them that must work.
func neededCalls(facts) error {
	if id, err := unix.SysvShmGet(unix.IPC_PRIVATE, maxShared, 0o600); err != nil {
		return fmt.Errorf("the segment by which a database locks its directory: %w", err)
	} else if b, err := unix.SysvShmAttach(id, 0, 0); err != nil {
		return err
	} else if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		return err
	} else if err := unix.SysvShmDetach(b); err != nil {
		return err
	}
	for what, err := range map[string]error{
		"nice":             unix.Setpriority(unix.PRIO_PROCESS, 0, 1),
		"ionice":           call(unix.SYS_IOPRIO_SET, 1, 0, 2<<13|7),
		"a batch policy":   unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 3, Nice: 1}, 0),
		"read priorities":  call(unix.SYS_GETPRIORITY, unix.PRIO_PROCESS, 0),
		"own limits":       unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}),
		"a pipe":           unix.Mkfifo("/tmp/fifo", 0o600),
		"sync":             call(unix.SYS_SYNC),
		"exchange 2 names": errors.Join(os.WriteFile("/tmp/a", nil, 0o600), os.WriteFile("/tmp/b", nil, 0o600), unix.Renameat2(unix.AT_FDCWD, "/tmp/a", unix.AT_FDCWD, "/tmp/b", unix.RENAME_EXCHANGE)),
	} {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func TestCallsThatProgramsNeedAreAllowed(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	var out bytes.Buffer
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, "load needed calls"}, Env: plainEnv(), Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		t.Errorf("%v %+v %s", err, exit, strings.TrimSpace(out.String()))
	}
}

// The rules name pid 1 and its threads by the numbers that they have before the first command runs.
func TestPid1StartsNoFurtherThreads(t *testing.T) {
	j := mustStart(t, Spec{})
	numbers := func() (all []string) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", j.process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range threads {
			text, _ := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); strings.HasPrefix(line, "NSpid:") {
					all = append(all, fields[len(fields)-1])
				}
			}
		}
		return all
	}
	before := numbers()
	for range 5 {
		shell(t, j, "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.02 &); done; (sleep 9 &)")
	}
	if after := numbers(); len(before) < 2 || !slices.Equal(before, after) {
		t.Errorf("threads of pid 1 were %v, are %v", before, after)
	}
}
