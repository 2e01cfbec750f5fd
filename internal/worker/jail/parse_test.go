//go:build linux

package jail

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
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
		h, ok := parse(c.mount, c.own)
		if ok != (c.at != "") || ok && (h.own != c.at || h.version != c.version) {
			t.Errorf("%q: %+v %v", c.mount, h, ok)
		}
	}
	if n := parseField("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"); n != 3 {
		t.Errorf("read %d", n)
	}
}

func parse(line, own string) (hierarchy, bool) {
	m, ok := mountinfo.ParseHierarchy(line)
	if !ok {
		return hierarchy{}, false
	}
	return ownHierarchy(m, own)
}

func FuzzControlGroupFiles(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/a\n", "max")
	f.Fuzz(func(t *testing.T, mount, own, key string) {
		if h, ok := parse(mount, own); ok && strings.Contains("/"+h.own+"/", "/../") {
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
