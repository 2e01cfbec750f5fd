//go:build linux

package jail

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestAScopeIsRequestedWithTheLimits(t *testing.T) {
	call := strings.Join(scopeCall("unix:path=/run/user/1/bus", "bailiwick-jail-x.scope", 7, Limits{Memory: 64 << 20, Processes: 10, CPU: 0.5}), " ")
	want := "--address=unix:path=/run/user/1/bus --timeout=5 call org.freedesktop.systemd1 /org/freedesktop/systemd1 " +
		"org.freedesktop.systemd1.Manager StartTransientUnit ssa(sv)a(sa(sv)) bailiwick-jail-x.scope fail 6 PIDs au 1 7 " +
		"MemoryMax t 67108864 MemorySwapMax t 0 TasksMax t " + strconv.Itoa(10+initThreads) + " CollectMode s inactive-or-failed CPUQuotaPerSecUSec t 500000 0"
	if call != want {
		t.Errorf("%s\nwant\n%s", call, want)
	}
}

// A scope holds a limit only if the kernel says so.
//
// proves R-S2
func TestAScopeHoldsTheLimitsThatAreInForce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := Limits{Memory: 64<<20 + 1, Processes: 10, CPU: 1}
	tasks := strconv.Itoa(l.Processes+initThreads) + "\n"
	for _, c := range []struct {
		memory, pids, cpu string
		want              []controller
	}{
		{"67108864\n", tasks, "100000 100000\n", []controller{cpuGroup, memoryGroup, processGroup}},
		{"max\n", tasks, "max 100000\n", []controller{processGroup}},
		{"67108864\n", "max\n", "max 100000\n", []controller{memoryGroup}},
		{"134217728\n", "", "", nil},
	} {
		write("memory.max", c.memory)
		write("pids.max", c.pids)
		write("cpu.max", c.cpu)
		g := &cgroup{where: map[controller]groupDir{}}
		g.take(groupDir{hierarchy: hierarchy{version: 2}, path: dir}, l)
		var got []controller
		for have := range g.where {
			got = append(got, have)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || g.sockets != slices.Contains(got, memoryGroup) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// proves R-S2
func TestAScopeWithoutMemoryLeavesItToTheWatchdog(t *testing.T) {
	root := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root); err != nil {
		root = "/sys/fs/cgroup"
	}
	for name, request := range map[string]scopeMaker{
		"refused": func(context.Context, string, int, Limits) error { return os.ErrPermission },
		"without controllers": func(_ context.Context, name string, pid int, _ Limits) error { // for root, else refused
			dir := filepath.Join(root, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			t.Cleanup(func() { _ = os.Remove(dir) })
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/usr/bin/sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			g := &cgroup{where: map[controller]groupDir{}}
			g.enterScope(t.Context(), Spec{Limits: Limits{}.withDefaults(), scope: request}, cmd.Process.Pid)
			if len(g.where) > 0 || g.sockets {
				t.Errorf("counts on %+v", g.where)
			}
		})
	}
}
