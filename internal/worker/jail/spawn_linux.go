package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/landlock"
)

// spawner is a thread of pid 1 under all restrictions of the agent, which only starts commands and sends signals. Its
// children inherit its credentials, seccomp filter and landlock domain.
type spawner struct {
	setup *setup
	work  chan func() // run on the confined thread, one at a time
}

func newSpawner(s *setup) *spawner { return &spawner{setup: s, work: make(chan func())} }

// start confines the thread and returns its active layers. The thread lives as long as pid 1.
func (s *spawner) start() ([]string, error) {
	type outcome struct {
		layers []string
		err    error
	}
	ready := make(chan outcome)
	go func() {
		runtime.LockOSThread() // never unlocked: this thread must do nothing else
		layers, err := confineThread(s.setup)
		ready <- outcome{layers, err}
		if err != nil {
			return
		}
		for f := range s.work {
			f()
		}
	}()
	o := <-ready
	return o.layers, o.err
}

func (s *spawner) do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// spawn starts a command in its own session, with files as its only descriptors.
func (s *spawner) spawn(r *run, files []int) (int, error) {
	pid, err := 0, error(nil)
	s.do(func() {
		dir := r.Dir
		if dir == "" {
			dir = WorkspaceDir
		}
		var path string
		if path, err = lookPath(r.Argv[0], r.Env); err != nil {
			return
		}
		pid, err = syscall.ForkExec(path, r.Argv, &syscall.ProcAttr{ //nolint:gosec // its purpose
			Dir: dir, Env: r.Env, Sys: &syscall.SysProcAttr{Setsid: true},
			Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])}, //nolint:gosec // descriptors
		})
		if err != nil {
			err = fmt.Errorf("start %q in %s: %w", r.Argv[0], dir, err)
		}
	})
	return pid, err
}

// lookPath resolves a program on PATH of its environment, with the rights of the agent.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
		}
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) {
			continue // the agent can write the current directory
		}
		candidate := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Stat(candidate, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("program %q is not on the jail's PATH %q", name, path)
}

// confineThread removes everything from the calling thread that an agent must not have. The order matters: rights are
// dropped after the last step that needs them.
func confineThread(s *setup) ([]string, error) {
	if s.Processors > 0 {
		if err := pin(s.Processors); err != nil {
			return nil, err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil, missing("cgroup namespace", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 && errno != unix.ENOSYS {
		return nil, fmt.Errorf("join an empty session keyring: %w", errno)
	}
	if !s.MemoryCgroup {
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // a kernel without
			return nil, fmt.Errorf("turn transparent huge pages off: %w", err)
		}
	}
	if err := dropThread(s.ids()); err != nil {
		return nil, err
	}
	layers := []string{"no capabilities", "no_new_privs"}
	abi := landlock.ABI()
	if abi == 0 {
		return nil, &MissingError{Layer: "landlock", Detail: landlock.ErrMissing.Error(), Fix: fix("landlock")}
	}
	set, err := landlockRuleset(abi, !s.MemoryCgroup)
	if err != nil {
		return nil, missing("landlock", err)
	}
	defer set.Close() //nolint:errcheck // only a descriptor
	if err := set.Restrict(); err != nil {
		return nil, missing("landlock", err)
	}
	reserved, err := highestThread()
	if err != nil {
		return nil, err
	}
	program, err := filter(reserved)
	if err != nil {
		return nil, err
	}
	uncounted, err := uncountedFilter(!s.MemoryCgroup, s.CountSockets)
	if err != nil {
		return nil, err
	}
	for _, p := range [][]unix.SockFilter{uncounted, program} {
		if err := installFilter(p); err != nil {
			return nil, missing("seccomp", err)
		}
	}
	return append(layers, fmt.Sprintf("landlock ABI %d", abi), "seccomp"), nil
}

// dropThread drops the rights of the calling thread only, by raw system calls: the library calls change all threads.
func dropThread(i ids) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	const locked = secureNoRoot | secureNoRoot<<1 | secureNoFixup | secureNoFixup<<1 | secureKeepCaps<<1 | secureNoAmbient | secureNoAmbient<<1
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, locked, 0, 0, 0); err != nil {
		return fmt.Errorf("set securebits: %w", err)
	}
	if i.init != i.agent {
		for _, call := range []struct{ number, a uintptr }{{unix.SYS_SETRESGID, uintptr(i.agent)}, {unix.SYS_SETRESUID, uintptr(i.agent)}} { //nolint:gosec // 1000
			if _, _, errno := unix.RawSyscall(call.number, call.a, call.a, call.a); errno != 0 {
				return fmt.Errorf("become the agent's uid and gid %d: %w", i.agent, errno)
			}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// Secure bits; the lock of each is the next bit up.
const (
	secureNoRoot    = 1 << 0
	secureNoFixup   = 1 << 2
	secureKeepCaps  = 1 << 4
	secureNoAmbient = 1 << 6
)

// dropProcess drops the capabilities of all threads of pid 1. With cgo the Go runtime cannot reach every thread, so only the
// calling one drops them, and the layer's name says so.
func dropProcess() (string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0) //nolint:gosec // audited: an argument of the system call
	switch errno {
	case 0:
		return ", without capabilities", nil
	case unix.ENOTSUP:
		return ", capabilities in its own namespace only (cgo build)", unix.Capset(&header, &none[0])
	default:
		return "", errno
	}
}

// highestThread returns the largest thread id of this process. The kernel numbers threads upwards from 1 in a new pid
// namespace, and wraps around to above 300, so these numbers are never reused.
func highestThread() (uint32, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	highest := uint64(1)
	for _, e := range entries {
		tid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			return 0, err
		}
		highest = max(highest, tid)
	}
	return uint32(highest), nil //nolint:gosec // parsed as 32 bits
}
