package jail

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Control groups of an ordinary user, by the user's service manager: systemd makes a scope with the limits for pid 1, while
// that waits for its setup. The scope ends with its last process.

const (
	busctl    = "/usr/bin/busctl"
	scopeTime = 5 * time.Second
)

// scopeMaker moves process pid into a new scope with the limits.
type scopeMaker func(ctx context.Context, name string, pid int, l Limits) error

// systemdScope returns nil where the account has no service manager.
func systemdScope() scopeMaker {
	bus := fmt.Sprintf("/run/user/%d/bus", os.Geteuid())
	if os.Geteuid() == 0 || unix.Access(bus, unix.W_OK) != nil || unix.Access(busctl, unix.X_OK) != nil {
		return nil
	}
	return func(ctx context.Context, name string, pid int, l Limits) error {
		cmd := exec.CommandContext(ctx, busctl, scopeCall("unix:path="+bus, name, pid, l)...) //nolint:gosec // built here
		cmd.Env = []string{}
		return cmd.Run()
	}
}

// scopeCall is the call of StartTransientUnit.
func scopeCall(bus, name string, pid int, l Limits) []string {
	properties := []string{
		"PIDs", "au", "1", strconv.Itoa(pid), "MemoryMax", "t", strconv.FormatInt(l.Memory, 10), "MemorySwapMax", "t", "0",
		"TasksMax", "t", strconv.Itoa(l.Processes + initThreads), "CollectMode", "s", "inactive-or-failed",
	}
	count := 5
	if l.CPU > 0 {
		properties = append(properties, "CPUQuotaPerSecUSec", "t", strconv.FormatInt(int64(l.CPU*1e6), 10))
		count++
	}
	return append(append([]string{
		"--address=" + bus, "--timeout=5", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", strconv.Itoa(count),
	}, properties...), "0")
}

// enterScope lets a scope hold those limits that no group of ours holds. Where that does not succeed, or the scope lacks a
// controller, the limit is held as without a control group.
func (g *cgroup) enterScope(ctx context.Context, spec Spec, pid int) {
	request := spec.scope
	if request == nil {
		request = systemdScope()
	}
	if request == nil || spec.noCgroup || g.has(memoryGroup) {
		return
	}
	ctx, stop := context.WithTimeout(ctx, scopeTime)
	defer stop()
	name := groupPrefix + strings.ToLower(rand.Text()) + ".scope"
	if request(ctx, name, pid, spec.Limits) != nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for { // the answer is a job, which may still be under way
		if dir, ok := scopeOf(pid, name); ok {
			g.take(dir, spec.Limits)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// scopeOf returns the group of a process once it is in the scope.
func scopeOf(pid int, name string) (groupDir, bool) {
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return groupDir{}, false
	}
	for _, h := range ownHierarchies(string(own)) {
		if h.version == 2 && filepath.Base(h.own) == name {
			return groupDir{hierarchy: h, path: h.own}, true
		}
	}
	return groupDir{}, false
}

// take counts on those controllers whose limit is in force.
func (g *cgroup) take(d groupDir, l Limits) {
	page := int64(os.Getpagesize())
	if d.field("memory.max", "") == l.Memory/page*page {
		g.where[memoryGroup], g.sockets = d, true
	}
	if d.field("pids.max", "") == int64(l.Processes+initThreads) {
		g.where[processGroup] = d
	}
	text, _ := os.ReadFile(filepath.Join(d.path, "cpu.max")) // nothing is no limit
	quota, _, _ := strings.Cut(string(text), " ")
	if _, err := strconv.Atoi(quota); err == nil && l.CPU > 0 {
		g.where[cpuGroup] = d
	}
}
