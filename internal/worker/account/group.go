package account

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Limits bound everything that one program starts. Zero means no limit.
type Limits struct {
	Memory    int64   // bytes
	Processes int     // and threads
	CPU       float64 // cores
	// Disk is how many bytes a second are read from, and how many are written to, the disk of Disk.Of.
	Disk Throughput
	// Held are the controllers without which nothing starts, where they have a limit here.
	Held []string
}

// Throughput bounds the use of one disk.
type Throughput struct {
	Of    *os.File // any file on it
	Bytes int64    // a second; 0 is no limit
}

// The controllers of limits, as version 2 of control groups names them.
const (
	memory    = "memory"
	processes = "pids"
	cpu       = "cpu"
	disk      = "io"
)

// Groups is a place for the control groups of programs, one for each: the child of one name in every hierarchy.
type Groups struct {
	parents []parent
}

// parent is a directory in which groups are made.
type parent struct {
	version     int
	dir         string
	point       string   // where its hierarchy is mounted
	controllers []string // by their names of version 2
}

// OpenGroups returns the groups below a path, such as "bailiwick.slice/launch.service/attempt", in the hierarchies that this
// machine has. It creates the path, and delegates to it those controllers that are there.
func OpenGroups(path string) (*Groups, error) {
	if path == "" || !filepath.IsLocal(path) || filepath.Clean(path) != path {
		return nil, fmt.Errorf("control groups below %q: give a clean relative path", path)
	}
	found, err := mountedHierarchies()
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	g := &Groups{}
	for _, p := range found {
		p.dir = filepath.Join(p.point, path)
		if err := p.delegate(path); err != nil {
			return nil, fmt.Errorf("control groups below %s: %w", p.dir, err)
		}
		g.parents = append(g.parents, p)
	}
	return g, nil
}

// delegate makes the parent, and enables its controllers from the root on.
func (p *parent) delegate(path string) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil { //nolint:gosec // as every control group
		return err
	}
	if p.version == 1 {
		return nil
	}
	at := p.point
	enabled := []string{}
	for _, name := range append([]string{""}, strings.Split(path, "/")...) {
		at = filepath.Join(at, name)
		enabled = enabled[:0]
		for _, c := range []string{memory, processes, cpu, disk} {
			if err := writeFile(at, "cgroup.subtree_control", "+"+c); err == nil { // else the kernel, or who delegated to us, has it not
				enabled = append(enabled, c)
			}
		}
	}
	p.controllers = slices.Clone(enabled)
	return nil
}

// Group is the control groups of one program.
type Group struct {
	name  string
	dirs  []groupDir
	made  func() error // returns once the groups are made; nil: they were found
	Lacks []string     // the limits that nothing holds, each with its reason
}

// Wait returns once the groups are made, with the error of that. [Start] waits by itself.
func (g *Group) Wait() error {
	if g == nil || g.made == nil {
		return nil
	}
	return g.made()
}

type groupDir struct {
	parent
	path string
	leaf string // where the program itself runs: in version 2 a group with processes delegates nothing
}

const leafName = "program"

// child returns the group of a name below the parent.
func (p parent) child(name string) groupDir {
	d := groupDir{parent: p, path: filepath.Join(p.dir, name)}
	if d.leaf = d.path; p.version == 2 && p.delegates() {
		d.leaf = filepath.Join(d.path, leafName)
	}
	return d
}

// delegates reports whether a program sees its group here and makes groups of its own below, as its jails do for everything but
// the disk.
func (p parent) delegates() bool {
	return slices.ContainsFunc(p.controllers, func(c string) bool { return c != disk })
}

// Create makes the groups of a program, with their limits, and lets the first id of the block make groups of its own below them. A
// name is the caller's: a letter or digit, and then also dots, dashes and underscores.
func (g *Groups) Create(name string, b Block, l Limits) (*Group, error) {
	made := g.Begin(name, b, l)
	return made, made.Wait()
}

// Begin is Create, but returns before the groups are made. The caller waits for them, or starts a program in them.
func (g *Groups) Begin(name string, b Block, l Limits) *Group {
	made := &Group{name: name}
	made.made = sync.OnceValue(func() error {
		err := validName(name)
		for i := 0; err == nil && i < len(g.parents); i++ {
			err = made.add(g.parents[i], b)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("control group %s: %w", name, err), made.Remove())
		}
		if err = made.limit(l); err != nil {
			return errors.Join(err, made.Remove())
		}
		return nil
	})
	go func() { _ = made.made() }() // until Wait
	return made
}

// add makes the group below a parent.
func (g *Group) add(p parent, b Block) error {
	d := p.child(g.name)
	err := os.Mkdir(d.path, 0o755)      //nolint:gosec // as every control group
	if errors.Is(err, fs.ErrNotExist) { // another caller of this place has ended, and removed it
		if err = p.delegate(strings.TrimPrefix(p.dir, p.point+"/")); err == nil {
			err = os.Mkdir(d.path, 0o755) //nolint:gosec // likewise
		}
	}
	if err != nil {
		return err
	}
	g.dirs = append(g.dirs, d)
	if d.leaf != d.path {
		if err := writeFile(d.path, "cgroup.subtree_control", "+"+strings.Join(p.controllers, " +")); err != nil {
			return fmt.Errorf("delegate %s: %w", p.controllers, err)
		}
		if err := os.Mkdir(d.leaf, 0o755); err != nil { //nolint:gosec // likewise
			return err
		}
	}
	return d.give(b)
}

func validName(name string) error {
	ok := name != "" && len(name) <= 200
	for i, c := range name {
		letter := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		ok = ok && (letter || i > 0 && strings.ContainsRune("._-", c))
	}
	if !ok {
		return fmt.Errorf("control group %q: a name has letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// give delegates the group to the program: it makes and fills groups below, and cannot change its own limits or leave.
func (d groupDir) give(b Block) error {
	if !d.delegates() {
		return nil
	}
	files := []string{d.path, filepath.Join(d.path, "tasks")}
	if d.version == 2 {
		files = []string{d.path, filepath.Join(d.path, "cgroup.procs"), filepath.Join(d.leaf, "cgroup.procs")}
	}
	for _, name := range files {
		if err := os.Chown(name, b.host(Self), b.host(Self)); err != nil {
			return err
		}
	}
	return nil
}

// limit sets each limit in the hierarchy that has its controller. One that nothing can hold is an error if it is among Held, and
// otherwise added to Lacks.
func (g *Group) limit(l Limits) error {
	for _, one := range []struct {
		controller string
		wanted     bool
	}{{memory, l.Memory > 0}, {processes, l.Processes > 0}, {cpu, l.CPU > 0}, {disk, l.Disk.Bytes > 0}} {
		if !one.wanted {
			continue
		}
		err := errors.New("no hierarchy of control groups here has the controller")
		for _, d := range g.dirs {
			if slices.Contains(d.controllers, one.controller) {
				if err = d.set(one.controller, l); err == nil {
					break
				}
			}
		}
		if err != nil && slices.Contains(l.Held, one.controller) {
			return api.Errorf(api.CodeNotConfigured, "no control group here can limit %s: %w", one.controller, err).
				WithHint("give the slice of the launcher this controller; to start without the limit, list it in unheld in launch.yaml")
		}
		if err != nil {
			g.Lacks = append(g.Lacks, fmt.Sprintf("%s: %v", one.controller, err))
		}
	}
	return nil
}

const cpuPeriod = 100_000 // microseconds

func (d groupDir) set(controller string, l Limits) error {
	quota := strconv.Itoa(int(math.Ceil(l.CPU * cpuPeriod)))
	switch controller {
	case processes:
		return writeFile(d.path, "pids.max", strconv.Itoa(l.Processes))
	case memory:
		if d.version == 1 {
			return writeFile(d.path, "memory.limit_in_bytes", strconv.FormatInt(l.Memory, 10))
		}
		_ = writeFile(d.path, "memory.swap.max", "0") // absent without swap accounting
		return writeFile(d.path, "memory.max", strconv.FormatInt(l.Memory, 10))
	case cpu:
		if d.version == 1 {
			return errors.Join(writeFile(d.path, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), writeFile(d.path, "cpu.cfs_quota_us", quota))
		}
		return writeFile(d.path, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod))
	default:
		device, err := l.Disk.device()
		if err != nil {
			return err
		}
		if d.version == 1 {
			rate := fmt.Sprintf("%s %d", device, l.Disk.Bytes)
			return errors.Join(writeFile(d.path, "blkio.throttle.read_bps_device", rate), writeFile(d.path, "blkio.throttle.write_bps_device", rate))
		}
		return writeFile(d.path, "io.max", fmt.Sprintf("%s rbps=%d wbps=%d", device, l.Disk.Bytes, l.Disk.Bytes))
	}
}

// device is the number of the whole disk: the kernel bounds no partition.
func (t Throughput) device() (string, error) {
	if t.Of == nil {
		return "", errors.New("no file on the disk is given")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(t.Of.Fd()), &st); err != nil { //nolint:gosec // a descriptor
		return "", err
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	at, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return "", fmt.Errorf("%s is on no disk: %w", t.Of.Name(), err)
	}
	if _, err := os.Stat(filepath.Join(at, "partition")); err != nil {
		return number, nil //nolint:nilerr // it is the disk itself
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(at), "dev")) //nolint:gosec // of the kernel
	return strings.TrimSpace(string(text)), err
}

// enter puts the calling thread into the groups of version 1, and returns a descriptor of the group of version 2 to clone into,
// or -1.
func (g *Group) enter() (leaf int, err error) {
	leaf = -1
	if err := g.Wait(); g == nil || err != nil {
		return leaf, err
	}
	for _, d := range g.dirs {
		if d.version == 1 {
			err = writeFile(d.path, "tasks", "0")
		} else {
			leaf, err = unix.Open(d.leaf, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			return leaf, fmt.Errorf("enter control group %s: %w", d.leaf, err)
		}
	}
	return leaf, nil
}

func writeFile(dir, name, value string) error {
	fd, err := unix.Open(filepath.Join(dir, name), unix.O_WRONLY|unix.O_CLOEXEC, 0) // never creates: a file that is not there is an error
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Join(dir, name), Err: err}
	}
	_, err = unix.Write(fd, []byte(value))
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, filepath.Join(dir, name), err)
	}
	return nil
}
