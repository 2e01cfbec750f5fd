package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cleanUp ends every descendant of this process that outlives grace, detaches
// every mount below root, leaves and removes the suite's control groups, and
// empties root. It returns what it found; testsAt names the tests of a time.
func cleanUp(root string, groups []group, grace time.Duration, testsAt func(time.Time) []string) (left []string, err error) {
	for deadline := time.Now().Add(grace); time.Now().Before(deadline) && len(descendants()) > 0; {
		reap()
		time.Sleep(50 * time.Millisecond)
	}
	for round := 0; ; round++ {
		reap()
		pids := descendants()
		if len(pids) == 0 {
			break
		}
		if round > 200 {
			return left, fmt.Errorf("processes that do not exit after SIGKILL: %v", pids)
		}
		for _, pid := range pids {
			if round == 0 {
				left = append(left, "process "+describe(pid, testsAt))
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, mount := range mountsBelow(root) {
		left = append(left, "mount "+mount)
		err = errors.Join(err, unix.Unmount(mount, unix.MNT_DETACH))
	}
	for _, path := range leftGroups(groups) {
		left = append(left, "control group "+path)
	}
	err = errors.Join(err, leaveGroups(groups))
	entries, readErr := os.ReadDir(root)
	for _, e := range entries {
		left = append(left, "directory "+filepath.Join(root, e.Name())+content(filepath.Join(root, e.Name())))
	}
	return left, errors.Join(err, readErr, removeBelow(root))
}

// removeRoot removes the tests' directory, which is empty, and its file system in memory.
func removeRoot(root string, memory int64) error {
	if memory > 0 {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", root, err)
		}
	}
	return os.Remove(root)
}

// content lists the first names below dir, which tell whose it is.
func content(dir string) string {
	const most = 20
	var names []string
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || len(names) == most {
			return fs.SkipAll
		}
		if path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	if len(names) == 0 {
		return ""
	}
	return " with " + strings.Join(names, ", ")
}

// removeBelow removes what is in root, which may hold directories without permissions.
func removeBelow(root string) error {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // G302, G122: the suite's own directory
		}
		return nil //nolint:nilerr // RemoveAll reports what stays
	})
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, e.Name())))
	}
	return err
}

// reap waits for every child that has exited.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

// descendants lists the processes below this one that have not exited.
func descendants() (pids []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file) //nolint:gosec // G304: /proc
		if err != nil {
			continue
		}
		// The command in parentheses may hold anything, so the fields count from its end.
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if parent, err := strconv.Atoi(fields[1]); err == nil && fields[0] != "Z" {
			children[parent] = append(children[parent], pid)
		}
	}
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		pids = append(pids, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return pids
}

// describe names a process, when it started and the tests that ran at that time.
func describe(pid int, testsAt func(time.Time) []string) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	text := fmt.Sprintf("%d %q", pid, strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " "))
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		text += fmt.Sprintf(" of %s, while these tests ran: %s", info.ModTime().Format(time.TimeOnly), strings.Join(testsAt(info.ModTime()), ", "))
	}
	return text
}

// mountsBelow lists the mount points below root, deepest first.
func mountsBelow(root string) (found []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], root+"/") {
			found = append(found, fields[4])
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	return found
}
