package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownProcesses lists the file with this name in /proc of each process that these
// tests can have started: those below their suite, which adopts orphans, or
// without a suite all of the machine. Another suite of the account runs the same
// commands and plants the same values.
func ownProcesses(name string) (files []string) {
	suite := suiteAbove(os.Getpid())
	children := map[int][]int{}
	for _, f := range procFiles("stat") {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		above := parent(filepath.Dir(f))
		children[above] = append(children[above], pid)
	}
	for queue := []int{suite}; len(queue) > 0; queue = queue[1:] {
		for _, pid := range children[queue[0]] {
			files = append(files, fmt.Sprintf("/proc/%d/%s", pid, name))
			queue = append(queue, pid)
		}
	}
	return files
}

// suiteAbove returns the nearest process above pid that runs the suite, or 0.
func suiteAbove(pid int) int {
	for ; pid > 1; pid = parent(fmt.Sprintf("/proc/%d", pid)) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
			if program, _, _ := bytes.Cut(b, []byte{0}); filepath.Base(string(program)) == "suite" {
				return pid
			}
		}
	}
	return 0
}

// processes lists the command lines of ownProcesses that contain words.
func processes(t testing.TB, words string) (found []string) {
	t.Helper()
	for _, f := range ownProcesses("cmdline") {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), words) {
			found = append(found, string(b))
		}
	}
	return found
}

// ownGroups lists the control groups of jails that these tests can have made:
// jails of one suite have theirs in its own groups, or beside those.
func ownGroups() (groups []string) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, root := range []string{"", fields[1]} {
			for _, dir := range []string{fields[2], filepath.Dir(fields[2])} {
				found, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", root, dir, "bailiwick-jail-*"))
				for _, f := range found {
					if !slices.Contains(groups, f) {
						groups = append(groups, f)
					}
				}
			}
		}
	}
	return groups
}
