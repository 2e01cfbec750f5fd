//go:build linux

package jail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The attacks, as a program inside the test binary: real system calls, run in a jail, where each must fail, and outside,
// where the same code must succeed.

const attackName = "bailiwick-attack"

// facts is what the attacker knows about the host.
type facts struct {
	Secret   string // a file outside
	HostDir  string // a directory outside
	Target   int    // pid 1 inside; a process of the host outside
	Victim   int    // the host's pid of a process with the marker in its environment
	TCP      string
	Unix     string
	Abstract string
	Boot     string // the boot id of the host
	Memory   string // the first line of its meminfo
}

const marker = "planted-marker-8d1f"

var errBlocked = errors.New("blocked")

func isAttack() bool {
	return os.Args[0] == attackName || len(os.Args) > 1 && os.Args[1] == attackName
}

// init keeps the main goroutine on the first thread: only during init is it there for certain.
func init() { //nolint:gochecknoinits // TestMain runs when the scheduler may have moved the main goroutine
	if isAttack() {
		runtime.LockOSThread()
	}
}

func attackMain() {
	if !isAttack() {
		return
	}
	args := os.Args[1:]
	if len(args) > 0 && args[0] == attackName {
		args = args[1:]
	}
	var f facts
	if len(args) > 1 {
		if err := json.Unmarshal([]byte(args[1]), &f); err != nil {
			panic(err)
		}
	}
	do, ok := attacks()[args[0]]
	if !ok {
		fmt.Println("no such attack", args[0])
		os.Exit(4)
	}
	if err := do(f); err != nil {
		fmt.Println("blocked:", err)
		os.Exit(10)
	}
	fmt.Println("OPEN")
	os.Exit(0)
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func socketOf(family, kind, protocol int) func(facts) error {
	return func(facts) error {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
}

func attacks() map[string]func(facts) error {
	all := map[string]func(facts) error{}
	for _, group := range []map[string]func(facts) error{fileAttacks(), processAttacks(), namespaceAttacks(), networkAttacks(), kernelAttacks(), callAttacks(), procAttacks(), exposedAttacks(), loadPrograms(), takeAttacks(), countAttacks(), listenAttacks()} {
		maps.Copy(all, group)
	}
	return all
}

func anyOpen(paths []string, flags int) error {
	var errs []error
	for _, p := range paths {
		err := open(p, flags)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, err))
	}
	return errors.Join(append(errs, errBlocked)...)
}

func fileAttacks() map[string]func(facts) error {
	return map[string]func(facts) error{
		"read a planted file": func(f facts) error { return open(f.Secret, unix.O_RDONLY) },
		"read it through somebody's root": func(f facts) error {
			var paths []string
			for _, pid := range []int{f.Target, os.Getppid(), 1} {
				paths = append(paths, fmt.Sprintf("/proc/%d/root%s", pid, f.Secret), fmt.Sprintf("/proc/%d/cwd/../../../../..%s", pid, f.Secret))
			}
			return anyOpen(append(paths, "/proc/self/root"+f.Secret, "../../../../../../.."+f.Secret), unix.O_RDONLY)
		},
		"write outside": func(f facts) error {
			for _, dir := range []string{f.HostDir, "/usr", "/usr/bin", "/etc", "/", "/dev", "/run", "/proc"} {
				path := filepath.Join(dir, "written")
				if fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY, 0o600); err == nil {
					_ = unix.Close(fd)
					return unix.Unlink(path)
				}
			}
			return errBlocked
		},
		"hard link outside": func(f facts) error {
			for _, source := range []string{f.Secret, "/usr/bin/env", "/etc/passwd"} {
				for _, dir := range []string{f.HostDir, "/workspace", "/tmp"} {
					path := filepath.Join(dir, "linked")
					if unix.Link(source, path) == nil {
						return unix.Unlink(path)
					}
				}
			}
			return errBlocked
		},
		"make a device": func(f facts) error {
			var last error
			for _, dir := range []string{f.HostDir, ".", "/tmp"} {
				for _, dev := range []uint64{unix.Mkdev(1, 3), 0} {
					path := filepath.Join(dir, "device")
					if last = unix.Mknod(path, unix.S_IFCHR|0o600, int(dev)); last == nil {
						return unix.Unlink(path)
					}
				}
			}
			return last
		},
		"open a device of the host": func(facts) error {
			return anyOpen([]string{"/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/vsock", "/dev/net/tun", "/dev/tty", "/dev/fuse", "/dev/mem"}, unix.O_RDONLY)
		},
		"see /sys": func(facts) error { return open("/sys/kernel", unix.O_RDONLY) },
		"file by handle": func(f facts) error {
			handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, ".", 0)
			if err != nil {
				return err
			}
			dir, err := unix.Open(".", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
			return err
		},
		"inherited descriptors": func(facts) error {
			for fd := 3; fd < 4096; fd++ {
				if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
					continue
				}
				if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && !strings.HasPrefix(name, "anon_inode:[event") {
					fmt.Println(fd, name)
					return nil
				}
			}
			return errBlocked
		},
		"a terminal as standard descriptor": func(facts) error {
			_, err := unix.IoctlGetTermios(1, unix.TCGETS)
			return err
		},
	}
}

func processAttacks() map[string]func(facts) error {
	proc := func(f facts, name string) string { return fmt.Sprintf("/proc/%d/%s", f.Target, name) }
	return map[string]func(facts) error{
		"sweep of /proc": func(f facts) error {
			for pid := 1; pid < f.Victim+100; pid++ {
				if pid == os.Getpid() {
					continue
				}
				for _, name := range []string{"environ", "cmdline"} {
					if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)); err == nil && bytes.Contains(text, []byte(marker)) {
						return nil
					}
				}
			}
			return errBlocked
		},
		"read /proc/PID/environ": func(f facts) error { _, err := os.ReadFile(proc(f, "environ")); return err },
		"read /proc/PID/maps":    func(f facts) error { _, err := os.ReadFile(proc(f, "maps")); return err },
		"write /proc/PID/mem":    func(f facts) error { return open(proc(f, "mem"), unix.O_RDWR) },
		"list /proc/PID/fd":      func(f facts) error { _, err := os.ReadDir(proc(f, "fd")); return err },
		"take the launcher":      func(f facts) error { return open(proc(f, "exe"), unix.O_RDONLY) },
		"see other processes": func(facts) error {
			entries, err := os.ReadDir("/proc")
			if err != nil {
				return err
			}
			for _, e := range entries {
				if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
					return nil
				}
			}
			return errBlocked
		},
		"ptrace": func(f facts) error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(f.Target)) },
		"process_vm_readv": func(f facts) error {
			buf := make([]byte, 8)
			local := []unix.Iovec{{Base: &buf[0], Len: 8}}
			_, err := unix.ProcessVMReadv(f.Target, local, []unix.RemoteIovec{{Base: 0x1000, Len: 8}}, 0)
			if errors.Is(err, unix.EFAULT) {
				return nil // allowed, nothing mapped there
			}
			return err
		},
		"pidfd_getfd": func(f facts) error {
			p, err := unix.PidfdOpen(f.Target, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(p, 0, 0)
			return err
		},
		"kill": func(f facts) error { return unix.Kill(f.Target, 0) },
		"kill through a thread id": func(f facts) error {
			var last error
			for tid := f.Target; tid < f.Target+64; tid++ {
				if tid != os.Getpid() && tid != unix.Gettid() {
					if last = call(unix.SYS_TKILL, uintptr(tid), uintptr(unix.SIGCONT)); last == nil {
						if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
							return nil //nolint:nilerr // it was not one of our own threads: the attack passed
						}
						last = errBlocked
					}
				}
			}
			return last
		},
		"limits of another process": func(f facts) error { return unix.Prlimit(f.Target, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}) },
		"set oom_score_adj":         func(facts) error { return os.WriteFile("/proc/self/oom_score_adj", []byte("10"), 0) },
		"raise a hard limit": func(facts) error {
			return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		},
		"setuid program": func(facts) error {
			cmd := exec.Command("/usr/bin/su", "nobody")
			in, err := cmd.StdinPipe()
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }()
			if err := cmd.Start(); err != nil {
				return err
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			// The effective uid is set by exec, which Start has waited for.
			var st unix.Stat_t
			if err := unix.Stat(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid), &st); err != nil {
				return err
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(status)) {
				if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "Uid:" && fields[2] == "0" {
					return nil
				}
			}
			return errBlocked
		},
		"input into a terminal": func(facts) error {
			ptmx, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			c := byte('x')
			return call(unix.SYS_IOCTL, uintptr(ptmx), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
		},
	}
}

func namespaceAttacks() map[string]func(facts) error {
	out := map[string]func(facts) error{
		"mount":     func(facts) error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
		"fsopen":    func(facts) error { _, err := unix.Fsopen("tmpfs", 0); return err },
		"umount":    func(facts) error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"chroot":    func(facts) error { return unix.Chroot("/tmp") },
		"open_tree": func(facts) error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err },
		"remount": func(facts) error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODIRATIME})
		},
		"setns": func(f facts) error {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", f.Target), unix.O_RDONLY, 0)
			if err != nil {
				fd, err = unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)
			}
			if err != nil {
				return err
			}
			return unix.Setns(fd, unix.CLONE_NEWNET)
		},
		"clone3 into a user namespace": func(facts) error {
			args := struct{ flags, pidfd, child, parent, signal, stack, size, tls, set, setSize, cgroup uint64 }{flags: unix.CLONE_NEWUSER, signal: uint64(unix.SIGCHLD)}
			return collect(clone(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args)))
		},
	}
	for name, flag := range map[string]uintptr{"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "network": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID} {
		out["unshare "+name] = func(facts) error {
			cmd := exec.Command("/usr/bin/unshare", map[string]string{"user": "-U", "mount": "-m", "network": "-n", "pid": "-p"}[name], "/usr/bin/true")
			return cmd.Run()
		}
		out["clone "+name] = func(facts) error {
			return collect(clone(unix.SYS_CLONE, flag|uintptr(unix.SIGCHLD), 0))
		}
	}
	return out
}

// clone makes a raw clone and ends its child at once. The child has one thread
// of a runtime that has several: where it may be preempted, as at the beginning
// of any function that can grow its stack, it waits for the others for ever.
//
//go:nosplit
//go:norace
func clone(trap, a, b uintptr) (pid uintptr, errno unix.Errno) {
	pid, _, errno = unix.RawSyscall(trap, a, b, 0)
	for pid == 0 && errno == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return pid, errno
}

func collect(pid uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 3*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err
}

func networkAttacks() map[string]func(facts) error {
	return map[string]func(facts) error{
		"tcp to the host's loopback": func(f facts) error { return dial("tcp", f.TCP) },
		"tcp through mptcp": func(f facts) error {
			d := net.Dialer{Timeout: 3 * time.Second}
			d.SetMultipathTCP(true)
			c, err := d.Dial("tcp", f.TCP)
			if err == nil {
				_ = c.Close()
			}
			return err
		},
		"unix socket by path":     func(f facts) error { return dial("unix", f.Unix) },
		"unix socket by abstract": func(f facts) error { return dial("unix", "@"+f.Abstract) },
		"vsock":                   socketOf(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"packet socket":           socketOf(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"raw socket":              socketOf(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"netlink of the kernel":   socketOf(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
		"a network interface": func(facts) error {
			links, err := net.Interfaces()
			if err != nil {
				return err
			}
			for _, l := range links {
				if l.Flags&net.FlagLoopback == 0 && l.Flags&net.FlagUp != 0 {
					return nil
				}
			}
			return errBlocked
		},
	}
}

func kernelAttacks() map[string]func(facts) error {
	return map[string]func(facts) error{
		"io_uring": func(facts) error {
			var params [120]byte
			return call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
		},
		"bpf": func(facts) error {
			attr := struct{ kind, key, value, entries uint32 }{2, 4, 4, 1} // an array map
			return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		},
		"perf_event_open": func(facts) error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
			return err
		},
		"userfaultfd": func(facts) error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC) },
		"keyrings": func(facts) error {
			_, err := unix.AddKey("user", "bailiwick", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		},
		"kernel log": func(facts) error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil); return err },
		"host name": func(facts) error {
			var u unix.Utsname
			_ = unix.Uname(&u)
			return unix.Sethostname(bytes.TrimRight(u.Nodename[:], "\x00"))
		},
		"personality": func(facts) error { return call(unix.SYS_PERSONALITY, 0x0040000) },
		"fanotify":    func(facts) error { return call(unix.SYS_FANOTIFY_INIT, 0, unix.O_RDONLY) },
		"kernel addresses": func(facts) error {
			text, err := os.ReadFile("/proc/kallsyms")
			if err != nil {
				return err
			}
			line, _, _ := strings.Cut(string(text), "\n")
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "0000000000000000") {
					return nil
				}
			}
			return fmt.Errorf("%w: %q", errBlocked, line)
		},
	}
}
