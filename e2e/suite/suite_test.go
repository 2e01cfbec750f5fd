package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leak is one run of the leaky fixture.
type leak struct {
	status      int
	out         string
	pid         int
	dir, group  string
	controlRoot string
}

func build(t *testing.T) string {
	t.Helper()
	// go test caches a pass by what this process reads, and a child builds the program.
	sources, _ := filepath.Glob("*.go")
	for _, source := range append(sources, "testdata/leaky/leaky_test.go") {
		if _, err := os.Stat(source); err != nil {
			t.Fatal(err)
		}
	}
	suite := filepath.Join(t.TempDir(), "suite")
	if out, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", suite, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return suite
}

// runLeaky runs command on the fixture. signal, when not 0, is sent to it once the fixture has leaked.
func runLeaky(t *testing.T, end string, signal syscall.Signal, command ...string) leak {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	l := leak{controlRoot: t.TempDir()}
	groups := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(groups); err != nil {
		groups = "/sys/fs/cgroup"
	}
	l.group = filepath.Join(groups, fmt.Sprintf("bailiwick-leaky-%d-%s", os.Getpid(), end))
	cmd := exec.Command(command[0], append(command[1:], "-count=1", "-timeout=4s", "./testdata/leaky")...)
	cmd.Env = append(os.Environ(), "LEAKY_END="+end, "LEAKY_REPORT="+report, "LEAKY_GROUP="+l.group, "TMPDIR="+l.controlRoot)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // the control's daemon does not hold the pipe; a broken fixture might
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if signal != 0 {
		for _, err := os.Stat(report); errors.Is(err, os.ErrNotExist); _, err = os.Stat(report) {
			time.Sleep(20 * time.Millisecond)
		}
		_ = cmd.Process.Signal(signal)
	}
	_ = cmd.Wait()
	l.status, l.out = cmd.ProcessState.ExitCode(), out.String()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("the fixture did not run: %v\n%s", err, l.out)
	}
	if _, err := fmt.Sscanf(string(b), "%d\n%s", &l.pid, &l.dir); err != nil {
		t.Fatal(err)
	}
	return l
}

// remains lists what of a leak is still there.
func (l leak) remains() (found []string) {
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", l.pid)); err == nil && strings.Contains(string(b), "86399") {
		found = append(found, "process")
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), l.dir+"/") {
		found = append(found, "mount")
	}
	for name, path := range map[string]string{"directory": l.dir, "group": l.group} {
		if _, err := os.Stat(path); err == nil {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func TestSuiteRemovesWhatTestsLeave(t *testing.T) {
	suite := build(t)
	for _, c := range []struct {
		end    string
		signal syscall.Signal
		status int
		says   string
	}{
		{"normal", 0, 1, "left behind"},
		{"fail", 0, 1, "FAILED"},
		{"panic", 0, 1, "panic: as asked"},
		{"hang", 0, 1, "panic: test timed out"},
		{"hang", os.Interrupt.(syscall.Signal), 130, ""},
		{"hang", syscall.SIGTERM, 130, ""},
	} {
		t.Run(fmt.Sprintf("%s %d", c.end, c.signal), func(t *testing.T) {
			l := runLeaky(t, c.end, c.signal, suite, "-grace=0s", "-groups=bailiwick-leaky-*", "--")
			if l.status != c.status || !strings.Contains(l.out, c.says) {
				t.Errorf("exit status %d, want %d and %q in:\n%s", l.status, c.status, c.says, l.out)
			}
			if strings.Contains(l.out, "zombie") {
				t.Errorf("an orphan was not reaped:\n%s", l.out)
			}
			if left := l.remains(); left != nil {
				t.Errorf("remains: %v", left)
			}
			if left, err := os.ReadDir(l.controlRoot); err != nil || len(left) > 0 {
				t.Errorf("in the temporary directory remains %v, %v", left, err)
			}
		})
	}
}

// The control: go test alone leaves all of it.
func TestGoTestAloneLeavesEverything(t *testing.T) {
	l := runLeaky(t, "normal", 0, "go", "test")
	want := []string{"directory", "process"}
	if os.Geteuid() == 0 {
		want = []string{"directory", "group", "mount", "process"}
	}
	if left := l.remains(); !slices.Equal(left, want) {
		t.Errorf("remains %v, want %v", left, want)
	}
	_ = syscall.Kill(l.pid, syscall.SIGKILL)
	_ = syscall.Unmount(filepath.Join(l.dir, "mount"), 0)
	_ = os.Remove(l.group)
}
