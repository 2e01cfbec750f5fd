package jail

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
)

// Control groups, version 1, 2 or none. A jail's groups are children of the caller's own. Their owner locks each directory;
// an unlocked directory was left by a killed owner, and the next start removes it.

type controller string

const (
	memoryGroup  controller = "memory"
	processGroup controller = "pids"
	cpuGroup     controller = "cpu"
)

const groupPrefix = "bailiwick-jail-"

// hierarchy is a mounted cgroup file system and the caller's own group in it.
type hierarchy struct {
	version     int
	own         string
	controllers []controller
}

// cgroup is the groups of one jail. The zero value has no groups.
type cgroup struct {
	dirs    []groupDir
	where   map[controller]groupDir
	sockets bool // buffers of sockets are counted
	strayed bool // the keep thread could not be moved back
}

type groupDir struct {
	hierarchy
	path string
	lock *os.File
}

func (g *cgroup) has(c controller) bool { _, ok := g.where[c]; return ok }

func newCgroup(spec Spec) (*cgroup, error) {
	g := &cgroup{where: map[controller]groupDir{}}
	if spec.noCgroup {
		return g, nil
	}
	for _, h := range hierarchies() {
		if spec.Limits.CPU == 0 && len(h.controllers) == 1 && h.controllers[0] == cpuGroup {
			continue // each group costs time to create and remove
		}
		sweep(h.own)
		dir := groupDir{hierarchy: h}
		made, err := dir.make()
		if err != nil {
			return nil, errors.Join(err, g.remove())
		}
		if !made {
			continue // not delegated to us: Isolation reports the fallback
		}
		g.dirs = append(g.dirs, dir)
		for _, c := range h.controllers {
			if !g.has(c) && dir.limit(c, spec.Limits) == nil {
				g.where[c] = dir
				g.sockets = g.sockets || c == memoryGroup && dir.limitSockets(spec.Limits)
			}
		}
	}
	return g, nil
}

// makeTries bounds how often a group is created again after a concurrent sweep removed it.
const makeTries = 100

// make creates and locks the group. In between a sweep may remove it, so it is ours only once it is locked and still exists.
// Each try has a name of its own: a sweep that took the group of an earlier try removes it by name.
func (d *groupDir) make() (bool, error) {
	var err error
	for range makeTries {
		d.path = filepath.Join(d.own, groupPrefix+strings.ToLower(rand.Text()))
		failpoint.Hit(failpoint.JailGroup, d.path)
		if err := os.Mkdir(d.path, 0o755); err != nil { //nolint:gosec // as every control group
			return false, nil //nolint:nilerr // not delegated to us
		}
		failpoint.Hit(failpoint.JailGrouped, d.path)
		if d.lock, err = lockDir(d.path, durable.TryLock); errors.Is(err, durable.ErrLocked) || errors.Is(err, unix.ENOENT) {
			_ = unix.Rmdir(d.path) // a sweep may have removed it
			continue
		}
		if err != nil {
			return false, errors.Join(err, unix.Rmdir(d.path))
		}
		locked, err := d.lock.Stat()
		if err != nil {
			return false, errors.Join(err, d.lock.Close(), unix.Rmdir(d.path))
		}
		if there, err := os.Lstat(d.path); err == nil && os.SameFile(locked, there) {
			return true, nil
		}
		_ = d.lock.Close()
	}
	return false, fmt.Errorf("control group %s: removed by sweeps %d times: %w", d.path, makeTries, err)
}

// lockDir locks a group: owners exclusively, sweeps shared, so that one sweep does not take another for the owner.
func lockDir(path string, try func(*os.File) error) (*os.File, error) {
	f, err := os.Open(path) //nolint:gosec // a control group of ours
	if err != nil {
		return nil, err
	}
	if err := try(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sweep removes the control groups of killed owners. Their processes die with the owner; Sweep waits for them for up to two
// seconds and returns how many groups it could not remove.
func Sweep() int {
	left := 0
	for range removeTries {
		left = 0
		for _, h := range hierarchies() {
			left += sweep(h.own)
		}
		if left == 0 {
			break
		}
		<-time.NewTimer(removePause).C
	}
	return left
}

// sweep removes groups of dead owners, and returns how many of them still have processes.
func sweep(parent string) (left int) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), groupPrefix) {
			continue
		}
		path := filepath.Join(parent, e.Name())
		lock, err := lockDir(path, durable.TryRLock)
		if err != nil {
			continue
		}
		if errors.Is(unix.Rmdir(path), unix.EBUSY) {
			left++
		}
		_ = lock.Close()
	}
	return left
}

const cpuPeriod = 100_000 // microseconds

func (d groupDir) limit(c controller, l Limits) error {
	tasks := strconv.Itoa(l.Processes + initThreads)
	memory := strconv.FormatInt(l.Memory, 10)
	switch {
	case c == processGroup:
		return d.write("pids.max", tasks)
	case c == cpuGroup && l.CPU == 0:
		return errors.New("no limit set")
	case c == cpuGroup:
		return d.throttle(l.CPU)
	case d.version == 2:
		_ = d.write("memory.swap.max", "0") // absent without swap accounting
		_ = d.write("memory.oom.group", "0")
		return d.write("memory.max", memory)
	default:
		err := d.write("memory.limit_in_bytes", memory)
		_ = d.write("memory.memsw.limit_in_bytes", memory) // absent without swap accounting
		return err
	}
}

// throttle limits the processor time of a group, to everything if cores is 0.
func (d groupDir) throttle(cores float64) error {
	quota, period := strconv.Itoa(int(math.Ceil(cores*cpuPeriod))), strconv.Itoa(cpuPeriod)
	switch {
	case d.version == 2 && cores == 0:
		return d.write("cpu.max", "max "+period)
	case d.version == 2:
		return d.write("cpu.max", quota+" "+period)
	case cores == 0:
		return d.write("cpu.cfs_quota_us", "-1")
	default:
		return errors.Join(d.write("cpu.cfs_period_us", period), d.write("cpu.cfs_quota_us", quota))
	}
}

func (g *cgroup) throttle(cores float64) {
	if d, ok := g.where[cpuGroup]; ok {
		_ = d.throttle(cores) // a limit that stays only takes longer to kill
	}
}

// limitSockets bounds the buffers of sockets. Version 1 counts those of TCP and UDP apart from the rest.
func (d groupDir) limitSockets(l Limits) bool {
	return d.version == 2 || d.write("memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(max(l.Memory/16, 4<<20), 10)) == nil
}

func (d groupDir) write(name, value string) error {
	return os.WriteFile(filepath.Join(d.path, name), []byte(value), 0o644) //nolint:gosec // a control file that exists
}

// startIn starts a command inside the groups. In version 2 the kernel clones into a group. In version 1 this thread, which
// the caller has locked, enters the group during the fork: unlike moving a process, that needs no system-wide lock.
func (g *cgroup) startIn(cmd *exec.Cmd) error {
	var back []string
	var err error
	for _, d := range g.dirs {
		if d.version == 2 {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.lock.Fd()) //nolint:gosec // a descriptor
			continue
		}
		if err = d.write("tasks", "0"); err != nil {
			break
		}
		back = append(back, filepath.Join(d.own, "tasks"))
	}
	if err == nil {
		err = cmd.Start()
	}
	for _, path := range back {
		if e := os.WriteFile(path, []byte("0"), 0o644); e != nil { //nolint:gosec // a control file that exists
			g.strayed = true
			err = errors.Join(err, fmt.Errorf("leave the jail's control group: %w", e))
		}
	}
	if g.strayed && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

const (
	removeTries = 200
	removePause = 10 * time.Millisecond
)

// remove removes the groups. The last process has been reaped, but the kernel may take a moment to notice.
func (g *cgroup) remove() error {
	var errs []error
	for _, d := range g.dirs {
		err := unix.Rmdir(d.path)
		for i := 0; errors.Is(err, unix.EBUSY) && i < removeTries; i++ {
			<-time.NewTimer(removePause).C
			err = unix.Rmdir(d.path)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &os.PathError{Op: "remove control group", Path: d.path, Err: err})
		}
		errs = append(errs, d.lock.Close())
	}
	g.dirs = nil
	return errors.Join(errs...)
}

// counters are the event counts of the groups.
type counters struct {
	kills, refusals, peak int64
}

func (c counters) hits(before counters) []string {
	var hits []string
	if c.kills > before.kills {
		hits = append(hits, HitMemory)
	}
	if c.refusals > before.refusals {
		hits = append(hits, HitProcesses)
	}
	return hits
}

func (g *cgroup) counters() counters {
	var c counters
	if d, ok := g.where[memoryGroup]; ok {
		if d.version == 2 {
			c.kills, c.peak = d.field("memory.events", "oom_kill"), d.field("memory.peak", "")
		} else {
			c.kills, c.peak = d.field("memory.oom_control", "oom_kill"), d.field("memory.max_usage_in_bytes", "")
		}
	}
	if d, ok := g.where[processGroup]; ok {
		c.refusals = d.field("pids.events", "max")
	}
	return c
}

// field reads a number from a control file: that after key, or the only one if key is empty.
func (d groupDir) field(name, key string) int64 {
	text, err := os.ReadFile(filepath.Join(d.path, name)) //nolint:gosec // a control file
	if err != nil {
		return 0
	}
	return parseField(string(text), key)
}

func parseField(text, key string) int64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if key == "" && len(fields) == 1 || len(fields) == 2 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			return n
		}
	}
	return 0
}

// hierarchies finds the cgroup file systems in which we can create groups with the controllers we need.
func hierarchies() []hierarchy {
	// The goroutine must stay on its thread between opening and reading the file: startIn could otherwise move that thread
	// into a jail's groups, which would be taken for ours.
	runtime.LockOSThread()
	own, err := os.ReadFile("/proc/thread-self/cgroup")
	runtime.UnlockOSThread()
	if err != nil {
		return nil
	}
	var found []hierarchy
	for _, h := range ownHierarchies(string(own)) {
		found = append(found, h.delegated()...)
	}
	return found
}

// ownHierarchies returns the mounted hierarchies that have the groups of own, the text of /proc/PID/cgroup.
func ownHierarchies(own string) (found []hierarchy) {
	mounted, err := mountinfo.Hierarchies()
	if err != nil {
		return nil
	}
	for _, m := range mounted {
		if h, ok := ownHierarchy(m, own); ok {
			found = append(found, h)
		}
	}
	return found
}

// ownHierarchy returns a mounted hierarchy with a controller of ours, or of version 2, if own has a group that is visible in it.
func ownHierarchy(mount mountinfo.Hierarchy, own string) (hierarchy, bool) {
	h := hierarchy{version: mount.Version}
	for _, c := range []controller{memoryGroup, processGroup, cpuGroup} {
		if slices.Contains(mount.Controllers, string(c)) {
			h.controllers = append(h.controllers, c)
		}
	}
	if h.version == 1 && len(h.controllers) == 0 {
		return hierarchy{}, false
	}
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		match := h.version == 2 && parts[0] == "0" && parts[1] == ""
		if h.version == 1 {
			match = slices.Contains(strings.Split(parts[1], ","), string(h.controllers[0]))
		}
		if rel, err := filepath.Rel(mount.Root, parts[2]); match && err == nil && !strings.HasPrefix(rel, "..") {
			h.own = filepath.Join(mount.Point, rel)
			return h, true
		}
	}
	return hierarchy{}, false
}

// delegated returns where we can create groups. In version 2 only groups without processes can delegate controllers, so it
// is our own group or its parent, whichever does.
func (h hierarchy) delegated() []hierarchy {
	if h.version == 1 {
		return []hierarchy{h}
	}
	for _, dir := range []string{h.own, filepath.Dir(h.own)} {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")) //nolint:gosec // a control file
		if err != nil {
			continue
		}
		at := hierarchy{version: 2, own: dir}
		for _, c := range []controller{memoryGroup, processGroup, cpuGroup} {
			if slices.Contains(strings.Fields(string(text)), string(c)) {
				at.controllers = append(at.controllers, c)
			}
		}
		if len(at.controllers) > 0 && unix.Access(dir, unix.W_OK) == nil {
			return []hierarchy{at}
		}
	}
	return nil
}
