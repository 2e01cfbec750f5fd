//go:build linux

package jail

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// means are the beginnings of what holds says.
var means = []string{
	"cgroup v1", "cgroup v2", "watchdog", "refused", "rlimit", "tmpfs size", "tmpfs inodes", "user namespace", "own host uids", "whole processors", notHeld,
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
			if got := taking(attack); !strings.HasPrefix(table[limit], got) {
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
