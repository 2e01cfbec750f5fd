package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	device      uint64 // that dir was on
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

// leaky is a run of the fixture that has not been waited for.
type leaky struct {
	leak
	cmd    *exec.Cmd
	output *bytes.Buffer
	report string
}

// startLeaky runs command on the fixture, in the temporary directory tmp.
func startLeaky(t *testing.T, tmp, end string, timeout time.Duration, command ...string) *leaky {
	t.Helper()
	l := &leaky{leak: leak{controlRoot: tmp}, output: &bytes.Buffer{}, report: filepath.Join(t.TempDir(), "report")}
	l.cmd = exec.Command(command[0], append(command[1:], "-count=1", fmt.Sprint("-timeout=", timeout), "./testdata/leaky")...)
	l.cmd.Env = append(os.Environ(), "LEAKY_END="+end, "LEAKY_REPORT="+l.report, "TMPDIR="+tmp)
	l.cmd.Stdout, l.cmd.Stderr = l.output, l.output
	l.cmd.WaitDelay = time.Second // the control's daemon does not hold the pipe; a broken fixture might
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l
}

// awaitLeak waits until the fixture has leaked.
func (l *leaky) awaitLeak(t *testing.T) {
	t.Helper()
	for _, err := os.Stat(l.report); errors.Is(err, os.ErrNotExist); _, err = os.Stat(l.report) {
		time.Sleep(20 * time.Millisecond)
	}
	l.read(t)
}

func (l *leaky) read(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile(l.report)
	if err != nil {
		t.Fatalf("the fixture did not run: %v\n%s", err, l.output)
	}
	if _, err := fmt.Sscanf(string(b), "%d\n%s\n%s\n%d", &l.pid, &l.dir, &l.group, &l.device); err != nil {
		t.Fatal(err)
	}
}

// wait returns the run once it has ended.
func (l *leaky) wait(t *testing.T) leak {
	t.Helper()
	_ = l.cmd.Wait()
	l.status, l.out = l.cmd.ProcessState.ExitCode(), l.output.String()
	l.read(t)
	return l.leak
}

// runLeaky runs command on the fixture. signal, when not 0, is sent to it once the fixture has leaked.
func runLeaky(t *testing.T, end string, signal syscall.Signal, command ...string) leak {
	t.Helper()
	l := startLeaky(t, t.TempDir(), end, 4*time.Second, command...)
	if signal != 0 {
		l.awaitLeak(t)
		_ = l.cmd.Process.Signal(signal)
	}
	return l.wait(t)
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

// memory is enough for the files of the fixture.
const memory = 64 << 20

// As root the tests' files are in a file system of the suite's, which no other process
// sees. They are on disk where memory is short, and without the flag.
func TestFilesAreInMemoryWhereItSuffices(t *testing.T) {
	suite := build(t)
	for flag, want := range map[string]bool{"-memory=67108864": os.Geteuid() == 0, "-memory=1152921504606846976": false, "-memory=0": false} {
		l := runLeaky(t, "normal", 0, suite, "-grace=0s", flag, "--")
		var place syscall.Stat_t
		if err := syscall.Stat(l.controlRoot, &place); err != nil {
			t.Fatal(err)
		}
		if got := l.device != place.Dev; got != want || strings.Contains(l.out, "the tests' files were in memory") != want {
			t.Errorf("%s: in a file system of its own: %t, want %t:\n%s", flag, got, want, l.out)
		}
	}
	for _, c := range []struct {
		size, available int64
		uid             int
		want            bool
	}{
		{1 << 30, 5 << 30, 0, true}, {1 << 30, 5<<30 - 1, 0, false}, {1 << 30, 5 << 30, 1000, false}, {0, 5 << 30, 0, false},
	} {
		if got := inMemory(c.size, c.uid, c.available); got != c.want {
			t.Errorf("%d bytes of %d for uid %d: %t", c.size, c.available, c.uid, got)
		}
	}
}

func TestSuiteRemovesWhatTestsLeave(t *testing.T) {
	suite := build(t)
	for _, c := range []struct {
		end    string
		signal syscall.Signal
		memory int
		status int
		says   string
	}{
		{"normal", 0, 0, 1, "left behind"},
		{"normal", 0, memory, 1, "left behind"},
		{"fail", 0, 0, 1, "FAILED"},
		{"panic", 0, 0, 1, "panic: as asked"},
		{"hang", 0, 0, 1, "panic: test timed out"},
		{"hang", os.Interrupt.(syscall.Signal), 0, 130, ""},
		{"hang", syscall.SIGTERM, 0, 130, ""},
		{"hang", syscall.SIGTERM, memory, 130, ""},
	} {
		t.Run(fmt.Sprintf("%s %d %d", c.end, c.signal, c.memory), func(t *testing.T) {
			l := runLeaky(t, c.end, c.signal, suite, "-grace=0s", fmt.Sprint("-memory=", c.memory), "--")
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

// Another suite of the account, in the same temporary directory, ends while the
// tests of the first still use what they made. It touches and reports nothing of it.
func TestTwoSuitesRunAtTheSameTime(t *testing.T) {
	suite, tmp := build(t), t.TempDir()
	first := startLeaky(t, tmp, "hang", time.Hour, suite, "-grace=0s", "--")
	first.awaitLeak(t)
	before := first.remains()
	if len(before) != len(everything()) {
		t.Fatalf("the first suite has only %v", before)
	}
	second := startLeaky(t, tmp, "normal", time.Hour, suite, "-grace=0s", "--").wait(t)
	if left := second.remains(); left != nil {
		t.Errorf("of the second suite remains %v", left)
	}
	if left := first.remains(); !slices.Equal(left, before) {
		t.Errorf("after the second suite the first has %v, before it had %v", left, before)
	}
	for _, name := range []string{first.dir, first.group, fmt.Sprintf("process %d ", first.pid)} {
		if strings.Contains(second.out, name) {
			t.Errorf("the second suite reports %q of the first:\n%s", name, second.out)
		}
	}
	if second.dir == first.dir || second.group == first.group && os.Geteuid() == 0 {
		t.Errorf("both suites have the directory %s or the control group %s", first.dir, first.group)
	}
	// The control: the first suite's own end removes it, and the same check sees that.
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	if left := first.wait(t).remains(); left != nil {
		t.Errorf("of the first suite remains %v", left)
	}
}

// A suite that was killed leaves its groups; the next one removes them.
func TestASuiteRemovesTheGroupsOfAKilledOne(t *testing.T) {
	if os.Geteuid() != 0 {
		return // control groups are made as root
	}
	suite, tmp := build(t), t.TempDir()
	killed := startLeaky(t, tmp, "hang", time.Hour, suite, "-grace=0s", "--")
	killed.awaitLeak(t)
	_ = killed.cmd.Process.Kill()
	left := killed.wait(t)
	if !slices.Contains(left.remains(), "group") {
		t.Fatalf("after SIGKILL remains only %v", left.remains())
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		rest := processesOf(left.group)
		if len(rest) == 0 {
			break
		}
		for _, text := range rest {
			if pid, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	_ = syscall.Unmount(filepath.Join(left.dir, "mount"), 0)
	startLeaky(t, tmp, "fail", time.Hour, suite, "-grace=0s", "--").wait(t)
	if slices.Contains(left.remains(), "group") {
		t.Errorf("the group %s of the killed suite remains", left.group)
	}
}

// processesOf lists the processes in the group that contains path.
func processesOf(path string) []string {
	b, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup.procs"))
	return strings.Fields(string(b))
}

// everything is what the fixture leaves.
func everything() []string {
	if os.Geteuid() == 0 {
		return []string{"directory", "group", "mount", "process"}
	}
	return []string{"directory", "process"}
}

// The control: go test alone leaves all of it. A service of a test that runs beside this
// one may sweep the group, so it has several tries.
func TestGoTestAloneLeavesEverything(t *testing.T) {
	want, left := everything(), []string(nil)
	for n := 0; n < 5 && !slices.Equal(left, want); n++ {
		l := runLeaky(t, "normal", 0, "go", "test")
		left = l.remains()
		_ = syscall.Kill(l.pid, syscall.SIGKILL)
		_ = syscall.Unmount(filepath.Join(l.dir, "mount"), 0)
		_ = os.Remove(l.group)
	}
	if !slices.Equal(left, want) {
		t.Errorf("remains %v, want %v", left, want)
	}
}
