// Package leaky leaves things behind in the ways that real tests could.
package leaky

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Tests wait for orphans to disappear: their adopter has to reap them.
func TestOrphansAreReaped(t *testing.T) {
	pid, err := exec.Command("sh", "-c", "setsid sleep 0.1 >/dev/null 2>&1 </dev/null & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the orphan is a zombie")
		}
	}
}

func TestLeaks(t *testing.T) {
	dir, err := os.MkdirTemp("", "leaky-")
	if err != nil {
		t.Fatal(err)
	}
	// A daemon: a session of its own, no parent, none of our files.
	daemon := exec.Command("sh", "-c", "setsid sleep 86399 >/dev/null 2>&1 </dev/null & echo $!")
	pid, err := daemon.Output()
	if err != nil {
		t.Fatal(err)
	}
	// While it becomes sleep it has no command line, by which it is found later.
	for name := "/proc/" + strings.TrimSpace(string(pid)) + "/cmdline"; ; time.Sleep(time.Millisecond) {
		if command, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		} else if strings.HasPrefix(string(command), "sleep") {
			break
		}
	}
	if os.Geteuid() == 0 {
		mount := filepath.Join(dir, "mount")
		if err := os.Mkdir(mount, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", mount, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(group(t), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var place syscall.Stat_t
	if err := syscall.Stat(dir, &place); err != nil {
		t.Fatal(err)
	}
	report := os.Getenv("LEAKY_REPORT")
	if err := os.WriteFile(report+".new", append(pid, fmt.Sprintf("%s\n%s\n%d", dir, group(t), place.Dev)...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(report+".new", report); err != nil { // a reader sees it whole
		t.Fatal(err)
	}
	switch os.Getenv("LEAKY_END") {
	case "panic":
		panic("as asked")
	case "fail":
		t.Fatal("as asked")
	case "hang":
		time.Sleep(time.Hour)
	}
}

// group returns the path of a control group where a jail of this process would
// have one: in version 1 in its own group, in version 2 beside it.
func group(t *testing.T) string {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	name := "bailiwick-jail-leaky-" + os.Getenv("LEAKY_END")
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if fields[1] == "pids" {
			return filepath.Join("/sys/fs/cgroup/pids", fields[2], name)
		}
		if fields[1] == "" {
			if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
				return filepath.Join("/sys/fs/cgroup", filepath.Dir(fields[2]), name)
			}
		}
	}
	t.Fatalf("no control group for processes:\n%s", own)
	return ""
}
