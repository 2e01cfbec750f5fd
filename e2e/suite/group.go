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
	"time"

	"golang.org/x/sys/unix"
)

// groupPrefix begins the name of a suite's control group.
const groupPrefix = "bailiwick-suite-"

// suiteShares is the processor weight of a suite's group in version 1, where a
// group otherwise weighs as much as a single process outside of it.
const suiteShares = "8192"

// group is a control group of one suite alone. The suite and its tests run in it,
// so the groups of jails are below it, and no other suite counts or removes them.
type group struct {
	dir     string // the suite's, removed at its end
	inside  string // where its processes are: dir, or a leaf of it in version 2
	outside string // where the suite came from
}

// enterGroups moves this process into a new group of each hierarchy in which
// jails get groups. A hierarchy that is not delegated to this account has none.
func enterGroups() (groups []group, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, nil //nolint:nilerr // a kernel without control groups
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		at, version := ownGroup(line, string(own))
		if at == "" {
			continue
		}
		g, err := enter(at, version)
		if err != nil {
			return groups, errors.Join(err, leaveGroups(groups))
		}
		if g.dir != "" {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// ownGroup returns the directory of this process's group in the hierarchy of a
// line of mountinfo, if jails use that hierarchy, and its version.
func ownGroup(mount, own string) (dir string, version int) {
	head, tail, _ := strings.Cut(mount, " - ")
	before, after := strings.Fields(head), strings.Fields(tail)
	if len(before) < 5 || len(after) < 3 {
		return "", 0
	}
	match := func(string) bool { return false }
	switch after[0] {
	case "cgroup2":
		version, match = 2, func(controllers string) bool { return controllers == "" }
	case "cgroup":
		options := strings.Split(after[2], ",")
		used := slices.DeleteFunc([]string{"memory", "pids", "cpu"}, func(c string) bool { return !slices.Contains(options, c) })
		version, match = 1, func(controllers string) bool {
			return len(used) > 0 && slices.Contains(strings.Split(controllers, ","), used[0])
		}
	}
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 || !match(fields[1]) {
			continue
		}
		if rel, err := filepath.Rel(before[3], fields[2]); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join(before[4], rel), version
		}
	}
	return "", 0
}

// enterTries bounds how often a group is created again after a suite that
// starts at the same time removed it as one of a killed suite.
const enterTries = 100

// enter creates a group in the hierarchy of own and moves this process into it.
func enter(own string, version int) (group, error) {
	parent := own
	if version == 2 {
		// Only a group without processes delegates controllers: own itself, or its parent.
		if parent = delegating(own, filepath.Dir(own)); parent == "" {
			return group{}, nil
		}
	}
	removeDead(parent)
	var err error
	for n := range enterTries {
		g := group{dir: filepath.Join(parent, fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), n)), outside: own}
		g.inside = g.dir
		if os.Mkdir(g.dir, 0o755) != nil { //nolint:gosec // G301: as every control group
			return group{}, nil //nolint:nilerr // not delegated to us, so neither to the jails
		}
		if version == 2 {
			g.inside = filepath.Join(g.dir, "tests")
			err = errors.Join(delegate(parent, g.dir), os.Mkdir(g.inside, 0o755)) //nolint:gosec // G301: likewise
		} else if _, missing := os.Stat(filepath.Join(g.dir, "cpu.shares")); missing == nil {
			err = write(g.dir, "cpu.shares", suiteShares)
		}
		if err == nil {
			err = move(g.inside)
		}
		if err == nil {
			return g, nil
		}
		_ = removeGroups(g.dir)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return group{}, fmt.Errorf("enter a control group below %s: %w", parent, err)
}

// delegating returns the first directory that delegates controllers to its groups.
func delegating(dirs ...string) string {
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")) //nolint:gosec // G304: a control file
		if err == nil && len(strings.Fields(string(text))) > 0 && unix.Access(dir, unix.W_OK) == nil {
			return dir
		}
	}
	return ""
}

// delegate gives the groups in dir the controllers that those in parent have.
func delegate(parent, dir string) error {
	text, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control")) //nolint:gosec // G304: a control file
	if err != nil {
		return err
	}
	return write(dir, "cgroup.subtree_control", "+"+strings.Join(strings.Fields(string(text)), " +"))
}

func move(dir string) error { return write(dir, "cgroup.procs", strconv.Itoa(os.Getpid())) }

func write(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644) //nolint:gosec // G306: a control file that exists
}

// removeDead removes the groups of suites that were killed: a living suite is in its own.
func removeDead(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	for _, dir := range dirs {
		alone, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))          //nolint:gosec // G304: a control file
		tests, _ := os.ReadFile(filepath.Join(dir, "tests", "cgroup.procs")) //nolint:gosec // G304: likewise
		if len(alone)+len(tests) == 0 {
			_ = removeGroups(dir)
		}
	}
}

// removeGroups removes dir and the groups below it. A group with processes stays.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeGroups(filepath.Join(dir, e.Name())))
		}
	}
	if removeErr := unix.Rmdir(dir); removeErr != nil {
		err = errors.Join(err, &fs.PathError{Op: "remove control group", Path: dir, Err: removeErr})
	}
	return err
}

// leftGroups lists the groups that the tests left in the suite's.
func leftGroups(groups []group) (left []string) {
	for _, g := range groups {
		_ = filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && path != g.dir && path != g.inside {
				left = append(left, path)
			}
			return nil
		})
	}
	slices.Sort(left)
	return left
}

// leaveGroups moves this process out of its groups and removes them. The kernel
// may take a moment to notice that the last process has been reaped.
func leaveGroups(groups []group) (err error) {
	for _, g := range groups {
		err = errors.Join(err, move(g.outside))
		removeErr := removeGroups(g.dir)
		for n := 0; errors.Is(removeErr, unix.EBUSY) && n < 200; n++ {
			time.Sleep(10 * time.Millisecond)
			removeErr = removeGroups(g.dir)
		}
		err = errors.Join(err, removeErr)
	}
	return err
}
