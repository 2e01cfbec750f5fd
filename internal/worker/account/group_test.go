package account

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// groups opens a place for control groups that this test alone uses.
func groups(t *testing.T) *Groups {
	t.Helper()
	g, err := OpenGroups("bailiwick-test-" + strconv.Itoa(os.Getpid()) + "/" + t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if len(g.parents) == 0 {
		t.Fatal("this machine has no control groups; this test takes them")
	}
	t.Cleanup(func() {
		for _, p := range g.parents {
			_ = unix.Rmdir(p.dir)
			_ = unix.Rmdir(filepath.Dir(p.dir)) // of the process; the last test removes it
		}
	})
	return g
}

func create(t *testing.T, g *Groups, name string, b Block, l Limits) *Group {
	t.Helper()
	made, err := g.Create(name, b, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(made.Kill(), made.Remove()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return made
}

// limitFiles are the files of a group that bound it, in both versions.
func limitFiles() []string {
	return []string{"memory.max", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us", "io.max", "blkio.throttle.write_bps_device"}
}

// proves R-S2
func TestAGroupBoundsItsProgram(t *testing.T) {
	g, b := groups(t), block(t)
	if _, err := g.Create("a/b", b, Limits{}); err == nil {
		t.Error("a name with a slash made a group")
	}
	state := opened(t, t.TempDir())
	made := create(t, g, "dispatch-1.2", b, Limits{Memory: 64 << 20, Processes: 40, CPU: 0.5, Disk: Throughput{Of: state, Bytes: 1 << 20}})
	for _, lack := range made.Lacks { // such as a disk that the kernel does not bound
		t.Log("not held:", lack)
	}
	controllers := []string{}
	for _, d := range made.dirs {
		controllers = append(controllers, d.controllers...)
	}
	for _, c := range []string{memory, processes, cpu, disk} {
		lacks := slices.ContainsFunc(made.Lacks, func(s string) bool { return strings.HasPrefix(s, c+": ") })
		if slices.Contains(controllers, c) == lacks && c != disk {
			t.Errorf("controller %s: of the machine %q, lacking %q", c, controllers, made.Lacks)
		}
	}
	seen := map[string]string{}
	for _, d := range made.dirs {
		for _, name := range limitFiles() {
			if text, err := os.ReadFile(filepath.Join(d.path, name)); err == nil {
				seen[name] = strings.TrimSpace(string(text))
			}
		}
	}
	for name, want := range map[string]string{
		"memory.max": "67108864", "memory.limit_in_bytes": "67108864", "pids.max": "40", "cpu.max": "50000 100000", "cpu.cfs_quota_us": "50000",
	} {
		if got, there := seen[name]; there && got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	names, err := g.List()
	if err != nil || !slices.Equal(names, []string{"dispatch-1.2"}) {
		t.Errorf("groups %q, %v", names, err)
	}
	text, code := run(t, Program{Block: &b, Group: made}, "groups")
	if code != 0 {
		t.Fatal(text)
	}
	t.Log(text)
	if running, err := made.Running(); err != nil || running {
		t.Errorf("after its program exited: running %t, %v", running, err)
	}
}

// proves R-S2
func TestLimitsOfAGroupAreHeld(t *testing.T) {
	g := groups(t)
	for name, args := range map[string][]string{"processes": {"40", "0"}, "memory": {"0", "200"}} {
		b, free := block(t), block(t)
		made := create(t, g, name, b, Limits{Memory: 100 << 20, Processes: 30})
		if len(made.Lacks) > 0 {
			t.Log("this machine does not hold it:", made.Lacks) // and says so
			continue
		}
		if text, code := run(t, Program{Block: &b, Group: made}, "take", args...); code == 0 {
			t.Errorf("%s beyond the limit: %s", name, text)
		}
		if text, code := run(t, Program{Block: &free, Group: create(t, g, "free-"+name, free, Limits{})}, "take", args...); code != 0 {
			t.Errorf("control: %s without a limit: %d %s", name, code, text)
		}
	}
}

// proves R-S2
func TestAProgramCannotLeaveItsGroups(t *testing.T) {
	g, b, other := groups(t), block(t), block(t)
	made, victim := create(t, g, "own", b, Limits{Processes: 40, Memory: 64 << 20}), create(t, g, "other", other, Limits{})
	hostile := []string{}
	for _, d := range victim.dirs {
		hostile = append(hostile, d.path+"/cgroup.procs", d.path+"/tasks", filepath.Dir(d.path)+"/cgroup.procs", d.point+"/cgroup.procs")
	}
	for _, d := range made.dirs {
		for _, name := range limitFiles() {
			hostile = append(hostile, filepath.Join(d.point, name))
		}
	}
	control := 0
	for _, path := range hostile { // root can: so these are the files that matter
		if unix.Access(path, unix.W_OK) == nil {
			control++
		}
	}
	if control == 0 {
		t.Fatal("no file of the list is there for root")
	}
	text, code := run(t, Program{Block: &b, Group: made}, "escape", hostile...)
	if code != 0 {
		t.Error(text)
	}
}

// proves R-S2
func TestAGroupIsKilledWhole(t *testing.T) {
	g, b := groups(t), block(t)
	made := create(t, g, "tree", b, Limits{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	process, err := Start(Program{Path: self, Args: []string{"fork"}, File: []*os.File{nil, w}, Block: &b, Group: made})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	if n, err := r.Read(line); err != nil || string(line[:n]) != "ready\n" {
		t.Fatal(string(line[:n]), err)
	}
	again, err := g.Open("tree") // as a launcher that was restarted
	if err != nil {
		t.Fatal(err)
	}
	if running, err := again.Running(); err != nil || !running {
		t.Errorf("running %t, %v", running, err)
	}
	if err := again.Remove(); err == nil {
		t.Error("a group with processes was removed")
	}
	if pids, err := b.Processes(); err != nil || len(pids) != 2 {
		t.Errorf("processes of the block: %v, %v", pids, err)
	}
	if err := again.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := process.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(line); err == nil {
		t.Error("the child still has its end of the pipe")
	}
	if err := errors.Join(process.Close(), b.Kill(), again.Remove()); err != nil {
		t.Error(err)
	}
	if names, err := g.List(); err != nil || len(names) > 0 {
		t.Errorf("groups %q, %v", names, err)
	}
}

// A caller that ends removes the place of its groups, unless a group is in it. Another caller makes it again.
func TestAPlaceOfGroupsIsRemovedWhenItIsEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	place := "bailiwick-test-place-" + strconv.Itoa(os.Getpid())
	open := func() *Groups {
		g, err := OpenGroups(place)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, second := open(), open()
	b := block(t)
	made, err := first.Create("one", b, Limits{Processes: 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Remove(); err == nil {
		t.Error("control: the place of a group is removed")
	}
	if err := errors.Join(made.Remove(), first.Remove()); err != nil {
		t.Fatal(err)
	}
	if list, err := filepath.Glob("/sys/fs/cgroup/" + place); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if list, err := filepath.Glob("/sys/fs/cgroup/*/" + place); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	made, err = second.Create("two", b, Limits{Processes: 10})
	if err != nil {
		t.Fatalf("after the other has removed it: %v", err)
	}
	if err := errors.Join(made.Remove(), second.Remove()); err != nil {
		t.Error(err)
	}
}

// A slice without controllers holds no limit: each is named, with the reason. The control is the place of this machine, which
// holds at least one of them.
func TestASliceWithoutControllersNamesEachLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	g, err := OpenGroups("bailiwick-test-none-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	limits, b := Limits{Memory: 1 << 30, Processes: 10, CPU: 1}, block(t)
	with, err := g.Create("with", b, limits)
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.parents {
		g.parents[i].controllers = nil
	}
	without, err := g.Create("without", b, limits)
	if err != nil {
		t.Fatal(err)
	}
	if len(with.Lacks) == 3 || len(without.Lacks) != 3 {
		t.Errorf("with controllers %q, without %q", with.Lacks, without.Lacks)
	}
	for _, lack := range without.Lacks {
		if !strings.Contains(lack, "no hierarchy of control groups here has the controller") {
			t.Errorf("%q", lack)
		}
	}
	if err := errors.Join(with.Remove(), without.Remove(), g.Remove()); err != nil {
		t.Error(err)
	}
}
