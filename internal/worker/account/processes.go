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

// Processes lists the processes that have an id of the block, in whatever namespace or group.
func (b Block) Processes() (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // exited meanwhile
		}
		if err != nil {
			return nil, err
		}
		if b.owns(string(text)) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// owns reports whether one of the uids in a status of proc(5) is of the block.
func (b Block) owns(status string) bool {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return slices.ContainsFunc(strings.Fields(ids), func(s string) bool {
				uid, err := strconv.Atoi(s)
				return err == nil && b.Has(uid)
			})
		}
	}
	return false
}

// Kill kills every process of the block, and returns when none is left but those that their parents have not waited for.
func (b Block) Kill() error {
	for range endTries {
		pids, err := b.Processes()
		if err != nil {
			return fmt.Errorf("uid block %d: %w", b.First, err)
		}
		left := 0
		for _, pid := range pids {
			if b.kill(pid) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		<-time.NewTimer(endPause).C
	}
	return fmt.Errorf("uid block %d: processes are left after SIGKILL; look for tasks in state D", b.First)
}

// kill kills a process that still is of the block, and reports whether it was running.
func (b Block) kill(pid int) bool {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(handle) }()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !b.owns(string(text)) || strings.Contains(string(text), "\nState:\tZ") {
		return false // the number may be another process's by now; the handle is not
	}
	return unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0) == nil
}
