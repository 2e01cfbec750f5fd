package account

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

// endTries and endPause bound how long Kill and Remove wait for the kernel: four seconds.
const (
	endTries = 400
	endPause = 10 * time.Millisecond
)

// Open returns the groups of a name that were created earlier, perhaps before a restart of the caller.
func (g *Groups) Open(name string) (*Group, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	found := &Group{name: name}
	for _, p := range g.parents {
		d := p.child(name)
		if _, err := os.Lstat(d.path); err == nil {
			found.dirs = append(found.dirs, d)
		}
	}
	if len(found.dirs) == 0 {
		return nil, fmt.Errorf("control group %s: %w", name, fs.ErrNotExist)
	}
	return found, nil
}

// List returns the names of all groups, with or without processes.
func (g *Groups) List() ([]string, error) {
	var names []string
	for _, p := range g.parents {
		entries, err := os.ReadDir(p.dir)
		if err != nil {
			return nil, fmt.Errorf("control groups below %s: %w", p.dir, err)
		}
		for _, e := range entries {
			if e.IsDir() && validName(e.Name()) == nil && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Name is the name that the groups were created with.
func (g *Group) Name() string { return g.name }

// Running reports whether a process is in the groups.
func (g *Group) Running() (bool, error) {
	for _, d := range g.dirs {
		pids, err := d.processes()
		if err != nil || len(pids) > 0 {
			return len(pids) > 0, err
		}
	}
	return false, nil
}

// processes lists the processes of a group and of those below it.
func (d groupDir) processes() (pids []int, err error) {
	err = filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs")) //nolint:gosec // of a group of ours
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		for s := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(s); err == nil && pid != os.Getpid() { // version 1 lists us while a thread of ours starts a program
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// Kill kills every process in the groups: in version 2 at once, by the kernel.
func (g *Group) Kill() error {
	for _, d := range g.dirs {
		if d.version == 2 && writeFile(d.path, "cgroup.kill", "1") == nil {
			continue
		}
		for range endTries {
			pids, err := d.processes()
			if err != nil {
				return fmt.Errorf("control group %s: %w", d.path, err)
			}
			if len(pids) == 0 {
				break
			}
			for _, pid := range pids {
				d.kill(pid)
			}
			<-time.NewTimer(endPause).C
		}
	}
	return g.await()
}

// kill kills a process if it still is in the group.
func (d groupDir) kill(pid int) {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(handle) }()
	if now, err := d.processes(); err == nil && slices.Contains(now, pid) {
		_ = unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) // exited meanwhile
	}
}

// await waits until no process is in the groups.
func (g *Group) await() error {
	for range endTries {
		running, err := g.Running()
		if err != nil || !running {
			return err
		}
		<-time.NewTimer(endPause).C
	}
	return fmt.Errorf("control group %s: processes are left after SIGKILL; look for tasks in state D", g.name)
}

// Remove removes the groups, and those that the program made below them. It fails while a process is in one.
func (g *Group) Remove() error {
	var errs []error
	for _, d := range g.dirs {
		err := removeTree(d.path)
		for i := 0; errors.Is(err, unix.EBUSY) && i < endTries; i++ {
			if running, _ := g.Running(); running {
				break
			}
			<-time.NewTimer(endPause).C // the last process was waited for, and the kernel has not noticed
			err = removeTree(d.path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("control group %s: %w", d.path, err))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a group and those below it. The files in a group go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return unix.Rmdir(dir)
}

// Remove removes the place of the groups, which must be empty, but not what is above it.
func (g *Groups) Remove() error {
	var errs []error
	for _, p := range g.parents {
		if err := unix.Rmdir(p.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("control groups at %s: %w", p.dir, err))
		}
	}
	return errors.Join(errs...)
}
