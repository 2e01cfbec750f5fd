//go:build linux

package jail

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func TestControlGroupsAreFoundInEitherVersion(t *testing.T) {
	for _, c := range []struct {
		mount, own, at string
		version        int
	}{
		{"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/user.slice/a.service\n", "/sys/fs/cgroup/user.slice/a.service", 2},
		{"31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "4:memory:/x\n0::/\n", "/sys/fs/cgroup/memory/x", 1},
		{"31 23 0:27 /x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "4:memory:/x/y\n0::/\n", "/sys/fs/cgroup/memory/y", 1},
		{"31 23 0:27 /other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "4:memory:/x/y\n", "", 0},
		{"31 23 0:27 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio", "4:blkio:/\n", "", 0},
		{"31 23 0:27 / /mnt rw - ext4 /dev/x rw", "4:memory:/\n", "", 0},
		{"", "", "", 0},
		{" - ", ":::", "", 0},
	} {
		h, ok := parseHierarchy(c.mount, c.own)
		if ok != (c.at != "") || ok && (h.own != c.at || h.version != c.version) {
			t.Errorf("%q: %+v %v", c.mount, h, ok)
		}
	}
	if n := parseField("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"); n != 3 {
		t.Errorf("read %d", n)
	}
}

func FuzzControlGroupFiles(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/a\n", "max")
	f.Fuzz(func(t *testing.T, mount, own, key string) {
		if h, ok := parseHierarchy(mount, own); ok && strings.Contains("/"+h.own+"/", "/../") {
			t.Errorf("left the mount: %q", h.own)
		}
		parseField(own, key)
	})
}

func FuzzTheWorkspaceStreamStaysBeneathItsDirectory(f *testing.F) {
	var good bytes.Buffer
	if err := pack(&good, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > 1<<16 {
			return
		}
		dir := t.TempDir()
		file := dir + "/stream"
		if err := os.WriteFile(file, stream, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		target := dir + "/target"
		if err := unix.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = unpack(in, target, unix.Getuid())
		names, err := os.ReadDir(dir)
		if err != nil || len(names) != 2 {
			t.Errorf("%v %v", names, err)
		}
	})
}

// The filter is also checked here as a program, on calls that a test cannot make for real.
func TestTheFilterDeniesForeignAndUnknownCalls(t *testing.T) {
	raw, err := filter(9)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what         string
		number, arch uint32
		arg          uint32
		want         uint32
	}{
		{"read", unix.SYS_READ, auditArch, 0, unix.SECCOMP_RET_ALLOW},
		{"another calling convention", unix.SYS_READ, auditArch ^ 1, 0, unix.SECCOMP_RET_KILL_PROCESS},
		{"x32", 0x40000000 | unix.SYS_READ, auditArch, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"a call of tomorrow", newestCall + 1, auditArch, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"clone a process", unix.SYS_CLONE, auditArch, uint32(unix.SIGCHLD), unix.SECCOMP_RET_ALLOW},
		{"clone a namespace", unix.SYS_CLONE, auditArch, unix.CLONE_NEWUSER, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{"clone3", unix.SYS_CLONE3, auditArch, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"kill the group", unix.SYS_KILL, auditArch, 0, unix.SECCOMP_RET_ALLOW},
		{"kill a thread of pid 1", unix.SYS_KILL, auditArch, 9, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{"kill another", unix.SYS_KILL, auditArch, 10, unix.SECCOMP_RET_ALLOW},
		{"kill everything", unix.SYS_KILL, auditArch, 0xffffffff, unix.SECCOMP_RET_ALLOW},
		{"unix socket", unix.SYS_SOCKET, auditArch, unix.AF_UNIX, unix.SECCOMP_RET_ALLOW},
		{"alg socket", unix.SYS_SOCKET, auditArch, unix.AF_ALG, unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{"xdp socket", unix.SYS_SOCKET, auditArch, unix.AF_XDP, unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{"reboot", unix.SYS_REBOOT, auditArch, 0, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	} {
		if got := interpret(t, raw, c.number, c.arch, c.arg); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.what, got, c.want)
		}
	}
}

// interpret runs the filter with one argument set. The machine of x/net/bpf reads big-endian, so the data is laid out so.
func interpret(t *testing.T, program []unix.SockFilter, number, arch, arg uint32) uint32 {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(program))
	for i, in := range program {
		raw[i] = bpf.RawInstruction{Op: in.Code, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter cannot be read back")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	for at, v := range map[int]uint32{offNumber: number, offArch: arch, offArg: arg} {
		data[at], data[at+1], data[at+2], data[at+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}
