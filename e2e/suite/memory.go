package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryReserve is what must be available beside the tests' files: for the
// processes of the tests and the compiler.
const memoryReserve = 4 << 30

// inMemory reports whether the tests' files can be in memory: a mount needs root, and
// the machine needs size and memoryReserve.
func inMemory(size int64, uid int, available int64) bool {
	return size > 0 && uid == 0 && available >= size+memoryReserve
}

// availableMemory returns how many bytes this machine can give without swapping, or 0.
func availableMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// alone executes this program again with args, in a mount namespace of its own, which
// ends with the last process of the tests: no other process sees the tests' files, and
// nothing keeps their memory. It returns only with an error.
func alone(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// A namespace is that of a thread until the process is executed again from it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts in the namespace: %w", err)
	}
	return unix.Exec(self, slices.Concat([]string{self}, args), os.Environ())
}

// mountMemory puts a file system in memory on root, for at most size bytes.
func mountMemory(root string, size int64) error {
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("mode=0755,size=%d", size)); err != nil {
		return fmt.Errorf("mount a file system in memory: %w", errors.Join(err, os.Remove(root)))
	}
	return nil
}

// usedMemory returns how many bytes the files on root use.
func usedMemory(root string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(root, &s) != nil {
		return 0
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize //nolint:gosec // G115: less than size
}
