//go:build linux

package jail

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// means are the beginnings of what holds says.
var means = []string{
	"cgroup v1", "cgroup v2", "watchdog", "refused", "rlimit", "tmpfs size", "tmpfs inodes", "user namespace", "own host uids", "whole processors", notHeld,
}

// namespaceLimitsSockets reports whether the kernel has limits of sockets for each network
// namespace, by asking in a new one.
func namespaceLimitsSockets() bool {
	cmd := exec.Command("test", "-e", "/proc/sys/net/core/wmem_max")
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: id}
	return cmd.Run() == nil
}

// proves R-S2
func TestLimitsAreHeldAsTheTableSays(t *testing.T) {
	for _, noCgroup := range []bool{false, true} {
		j := mustStart(t, Spec{Limits: Limits{CPU: 1}, noCgroup: noCgroup})
		table := map[string]string{}
		for _, line := range j.Isolation().Limits {
			name, by, ok := strings.Cut(line, ": ")
			if !ok || !slices.ContainsFunc(means, func(m string) bool { return strings.HasPrefix(by, m) }) {
				t.Errorf("%q names no means", line)
			}
			table[name] = by
		}
		// taking runs an attack in a jail of its own and says by what it ended.
		taking := func(attack string) string {
			j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Limits: Limits{Memory: takeLimit}, noCgroup: noCgroup})
			var out bytes.Buffer
			exit, _ := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, attack}, Env: append(plainEnv(), "GOMAXPROCS=2"), Stdout: &out, Stderr: &out})
			switch {
			case exit.Why != "":
				return "watchdog"
			case slices.Contains(exit.Hit, HitMemory):
				return "cgroup"
			case exit.Code == 10 && strings.Contains(out.String(), "after 4 MiB"), exit.Code == 10 && strings.Contains(out.String(), "after 3 MiB"):
				return "cgroup" // a sixteenth of the limit
			case exit.Code == 10:
				return "refused"
			default:
				return notHeld
			}
		}
		for limit, attack := range map[string]string{
			"memory": "take files", "shared memory": "take shared mappings", "socket buffers": "take udp", "huge pages": "take huge pages",
		} {
			got := taking(attack)
			// Older kernels keep the limits of sockets for all namespaces. What the table then
			// does not promise may be held all the same, by their defaults.
			if limit == "socket buffers" && strings.HasPrefix(table[limit], notHeld+" (the network namespace") {
				if namespaceLimitsSockets() {
					t.Errorf("%s: %s, but a network namespace has limits of its own here", limit, table[limit])
				}
				continue
			}
			if !strings.HasPrefix(table[limit], got) {
				t.Errorf("%s: %s, but %q ended by: %s", limit, table[limit], attack, got)
			}
		}
		said := keeping(t, Spec{noCgroup: noCgroup}, "keep inotify instances")()
		if !strings.HasPrefix(said, "took 16 ") || !strings.Contains(table["inotify"], "(16 instances") {
			t.Errorf("inotify: %s, but %s", table["inotify"], said)
		}
		if out, _ := shell(t, j, "touch mine; ulimit -u; nproc"); out == "" {
			t.Error("no limits")
		}
		var mine unix.Stat_t
		if err := unix.Fstatat(int(j.Workspace().Fd()), "mine", &mine, 0); err != nil {
			t.Fatal(err)
		}
		if got := table["descriptors in flight, epoll items, pipe buffers"]; strings.HasPrefix(got, notHeld) != (int(mine.Uid) == os.Geteuid()) {
			t.Errorf("uid %d of %d: %s", mine.Uid, os.Geteuid(), got)
		}
		report := Probe(t.Context())
		if noCgroup {
			continue // Probe has none of this
		}
		for _, line := range j.Isolation().Limits {
			name, by, _ := strings.Cut(line, ": ")
			if name == "cpu" {
				continue // of the limit in this test
			}
			i := slices.IndexFunc(report.Layers, func(l Layer) bool { return l.Name == "limit "+name })
			if i < 0 || report.Layers[i].Detail != by || report.Layers[i].Active == strings.HasPrefix(by, notHeld) || !report.Layers[i].Active && report.Layers[i].Fix == "" {
				t.Errorf("the probe lacks, or contradicts, %q: %+v", line, report.Layers)
			}
		}
	}
}

// What processes share is counted once, so programs that fork do not end early.
func TestTheWatchdogCountsSharedMemoryOnce(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Limits: Limits{Memory: 256 << 20}, noCgroup: true})
	for _, argv := range [][]string{
		{"./" + attackName, attackName, "load large parent"},
		{"sh", "-c", `x=$(head -c 30000000 /dev/zero | tr '\0' a); for i in 1 2 3 4 5 6 7 8; do (sleep 1; :) & done; wait`},
	} {
		var out bytes.Buffer
		exit, err := j.Run(t.Context(), Command{Argv: argv, Env: plainEnv(), Stdout: &out, Stderr: &out})
		if err != nil || exit.Code != 0 || exit.Signal != 0 {
			t.Errorf("%s: %+v %v %s", argv, exit, err, out.String())
		}
	}
}

// proves R-S2
func TestSlowLooksDoNotMakeRareLooks(t *testing.T) {
	w := &watch{}
	if got := w.pause(0, time.Hour); got > watchMax {
		t.Errorf("after a look of an hour the next follows in %v", got)
	}
	if got := w.pause(0, time.Millisecond); got != watchMin {
		t.Errorf("with nothing left the next look follows in %v", got)
	}
	if a, b := (usage{}).left(5, 7), (usage{unsure: true}).left(5, 7); a != 5 || b != 0 {
		t.Errorf("left: %d, and %d where a process was not counted", a, b)
	}
	j := mustStart(t, Spec{noCgroup: true})
	w = j.watchdog()
	list := map[int]process{2: {at: "2/x", anonymous: 3 << 20}, 3: {at: "3/x", anonymous: 4 << 20, kernel: 5}} // no share of theirs is known
	if got, _ := w.divided(list, 0, monotonic()-time.Second); got != 7<<20+5 {
		t.Errorf("after its deadline a division says %d, not what each process has", got)
	}
	if got, _ := w.divided(list, 1<<20, monotonic()+time.Hour); got != 4<<20+5 {
		t.Errorf("a division continues beyond the limit: %d", got)
	}
	for pid := 4; pid < 8; pid++ { // each a child of the one before
		list[pid] = process{at: "x/x", parent: pid - 1, anonymous: 4 << 20}
		want := int64(7<<20+5) + int64(pid-4)<<22
		if got, unsure := w.divided(list, want, monotonic()+time.Hour); !unsure || got != want {
			t.Errorf("with %d new copies of a process: %d, want %d, unsure %v", pid-3, got, want, unsure)
		}
	}
}

// proves R-S2
func TestASocketHoldsNoMoreThanItCounts(t *testing.T) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{137_000, 212_960, 150_000, 60_000, 1} {
			_, _ = unix.Write(pair[0], make([]byte, size))
		}
		var info [9]uint32 // SO_MEMINFO: the third is what the socket has sent
		size := uint32(unsafe.Sizeof(info))
		if err := call(unix.SYS_GETSOCKOPT, uintptr(pair[0]), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size))); err != nil {
			t.Fatal(err)
		}
		if info[2] > socketBytes || kind == unix.SOCK_DGRAM && info[2] < 256<<10 {
			t.Errorf("a socket of kind %d holds %d bytes, and counts as %d", kind, info[2], socketBytes)
		}
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
}

// proves R-S2
func TestTheWatchdogEndsAJailWhenTheMachineHasNoMemoryLeft(t *testing.T) {
	j := mustStart(t, Spec{noCgroup: true})
	w := j.watchdog()
	for _, c := range []struct {
		free int64
		ends bool
	}{{2 << 30, false}, {100 << 20, true}} {
		w.available = func() (int64, int64) { return c.free, 16 << 30 }
		stop, why := make(chan struct{}), make(chan string)
		go func() { why <- w.run(stop) }()
		<-time.After(3 * watchMin)
		close(stop)
		if got := <-why; c.ends != strings.Contains(got, "the machine has 100 MiB of memory left") {
			t.Errorf("with %d MiB left: %q", c.free>>20, got)
		}
	}
}
