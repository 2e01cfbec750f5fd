package account

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroups makes a group below each of its own, as a jail does, and enters it.
func ownGroups([]string) error {
	hierarchies, err := mountedHierarchies()
	if err != nil {
		return err
	}
	if len(hierarchies) == 0 {
		return errors.New("no hierarchy is shown")
	}
	for _, h := range hierarchies {
		child := filepath.Join(h.point, "child")
		if err := os.Mkdir(child, 0o755); err != nil {
			return err
		}
		back, list := h.point, "tasks"
		if h.version == 2 {
			back, list = filepath.Join(h.point, leafName), "cgroup.procs"
		}
		if err := writeFile(child, list, "0"); err != nil {
			return err
		}
		fmt.Println(h.version, h.controllers, child)
		if err := errors.Join(writeFile(back, list, "0"), unix.Rmdir(child)); err != nil {
			return err
		}
	}
	return nil
}

// escape writes itself, or a higher limit, to files outside of its reach.
func escape(files []string) error {
	var open []error
	for _, f := range files {
		value := "0"
		if name := filepath.Base(f); name != "cgroup.procs" && name != "tasks" {
			value = "1000000"
		}
		before, _ := os.ReadFile("/proc/self/cgroup")
		if err := writeFile(filepath.Dir(f), filepath.Base(f), value); err == nil {
			after, _ := os.ReadFile("/proc/self/cgroup")
			if strings.Count(string(before), "/own") == strings.Count(string(after), "/own") && filepath.Base(f) == "cgroup.procs" {
				continue // at a hierarchy's mount point it has its own group
			}
			open = append(open, fmt.Errorf("%s: written", f))
		}
	}
	return errors.Join(open...)
}

// fork starts a child that leaves its session, and waits for ever.
func fork(args []string) error {
	if len(args) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if _, err := os.StartProcess(self, []string{self, "fork", "child"}, &os.ProcAttr{
			Files: []*os.File{nil, os.Stdout}, Sys: &syscall.SysProcAttr{Setsid: true},
		}); err != nil {
			return err
		}
	} else {
		fmt.Println("ready")
	}
	for {
		_ = unix.Pause()
	}
}

// take forks as many children as the first argument says, or takes as many MiB as the second.
func take(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range number(args[0]) {
		p, err := os.StartProcess(self, []string{self, "fork", "child"}, &os.ProcAttr{Files: []*os.File{nil, nil}})
		if err != nil {
			return fmt.Errorf("after %d children: %w", i, err)
		}
		defer func() { _ = p.Kill(); _, _ = p.Wait() }()
	}
	block := make([]byte, number(args[1])<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	fmt.Println("took", len(block)>>20)
	return nil
}
