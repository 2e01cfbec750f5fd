//go:build linux

package jail

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// machineFiles are files of /proc that tell what the machine is, or what others do on it.
func machineFiles() []string {
	return []string{
		"cmdline", "vmstat", "zoneinfo", "buddyinfo", "diskstats", "partitions", "locks", "interrupts", "softirqs", "devices", "misc",
		"crypto", "iomem", "ioports", "kallsyms", "cgroups", "key-users", "tty/drivers", "sysvipc/shm",
		"sys/fs/file-nr", "sys/fs/inode-nr", "sys/fs/dentry-state", "sys/fs/aio-nr", "sys/kernel/core_pattern", "sys/kernel/tainted",
		"sys/kernel/pty/nr", "sys/kernel/printk", "sys/vm/swappiness",
	}
}

// machineFile begins the names of attacks that read one of them.
const machineFile = "read /proc/"

// procAttacks read facts about the machine.
func procAttacks() map[string]func(facts) error {
	read := func(name string) string {
		text, _ := os.ReadFile("/proc/" + name)
		return strings.TrimSpace(string(text))
	}
	all := map[string]func(facts) error{
		"the boot id": func(f facts) error {
			if read("sys/kernel/random/boot_id") != f.Boot {
				return errBlocked
			}
			return nil
		},
		"the memory of the machine": func(f facts) error {
			if line, _, _ := strings.Cut(read("meminfo"), "\n"); line != f.Memory {
				return errBlocked
			}
			return nil
		},
		"the load of the machine": func(facts) error {
			if strings.HasPrefix(read("loadavg"), "0.00 0.00 0.00 ") && !strings.ContainsAny(read("pressure/cpu"), "123456789") && strings.Contains(read("stat")+"\n", "\nctxt 0\n") {
				return errBlocked
			}
			return nil
		},
	}
	for _, name := range machineFiles() {
		all[machineFile+name] = func(facts) error {
			text, err := os.ReadFile("/proc/" + name)
			if err == nil && len(text) == 0 {
				return errBlocked
			}
			return err
		}
	}
	return all
}

// readable lists the files below /proc, outside processes, that say something.
const readable = `find /proc -path '/proc/[0-9]*' -prune -o -type f -exec sh -c 'for f; do [ -n "$(head -c 1 "$f" 2>/dev/null)" ] && echo "$f"; done' _ {} +; true`

// proves R-S1, R-S2
func TestProcShowsOnlyWhatIsListed(t *testing.T) {
	j := mustStart(t, Spec{})
	out, exit := shell(t, j, readable)
	shown := strings.Fields(out)
	allowed := []string{"/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/swaps", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/random/uuid"}
	for name := range liveEntries() {
		allowed = append(allowed, "/proc/"+name)
	}
	for _, name := range settings() {
		allowed = append(allowed, "/proc/sys/"+name)
	}
	for _, path := range shown {
		if !slices.Contains(allowed, path) {
			t.Errorf("%s is shown", path)
		}
	}
	if exit.Code != 0 || len(shown) < 20 {
		t.Errorf("%+v %q", exit, shown)
	}
	host, err := exec.Command("find", "/proc/sys/fs", "/proc/vmstat", "-type", "f").Output() // the control
	if err != nil || len(strings.Fields(string(host))) < 10 {
		t.Errorf("%v %s", err, host)
	}
}

// Runtimes size themselves by these, so they tell of the jail.
func TestProcTellsOfTheJail(t *testing.T) {
	const limit = 256 << 20
	ids := map[string]bool{}
	for range 2 {
		j := mustStart(t, Spec{Limits: Limits{Memory: limit}})
		out, _ := shell(t, j, "cd /proc/sys/kernel; cat hostname random/boot_id random/uuid random/uuid; grep -c '^cpu[0-9]' /proc/stat; grep MemTotal: /proc/meminfo; grep MemAvailable: /proc/meminfo; free >/dev/null && nproc >/dev/null && echo ok")
		lines := strings.Split(out, "\n")
		if len(lines) < 8 || lines[0] != hostName || len(lines[1]) != 36 || lines[2] == lines[3] || lines[7] != "ok" {
			t.Fatalf("%q", lines)
		}
		ids[lines[1]] = true
		cpus, err := os.ReadFile("/proc/stat")
		if want := fmt.Sprint(bytes.Count(cpus, []byte("\ncpu"))); err != nil || lines[4] != want {
			t.Errorf("%v: %s processors, want %s", err, lines[4], want)
		}
		for i, name := range []string{"MemTotal:", "MemAvailable:"} {
			if want := []string{name, fmt.Sprint(limit / 1024), "kB"}; !slices.Equal(strings.Fields(lines[5+i]), want) {
				t.Errorf("%q, want %q", lines[5+i], want)
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("jails share a boot id: %v", ids)
	}
}
