package account

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Place is where the groups of attempts are if nothing else says so: one directory, so that its removal leaves nothing.
const Place = "bailiwick"

// OwnGroups returns the place for the control groups of attempts. Under a unit of systemd
// that is beside the unit's group, in its slice: systemd cannot start a unit again whose
// group delegates controllers to groups with processes, and attempts outlive the launcher.
// Elsewhere it is below the group of this process, which it moves to a group of its own, or
// [Place] where the process is in the root of version 2, or that is not mounted.
func OwnGroups() (*Groups, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own, within := place(string(text))
	if own == "" {
		return OpenGroups(Place)
	}
	if within {
		if err := enterGroup(filepath.Join("/sys/fs/cgroup", own, "launcher")); err != nil {
			return nil, err
		}
	}
	return OpenGroups(filepath.Join(own, "attempts"))
}

// place returns the group of version 2 that attempts belong below, as /proc/PID/cgroup has
// that of a process, and whether it is the process's own; empty where no group has one.
func place(text string) (own string, within bool) {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok || path == "" {
			continue
		}
		if slice, unit := filepath.Split(path); strings.HasSuffix(unit, ".service") && strings.HasSuffix(slice, ".slice/") {
			return filepath.Clean(slice), false
		}
		return strings.TrimSuffix(path, "/launcher"), true
	}
	return "", false
}

func enterGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // G301: as every control group
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0) //nolint:gosec // G306: it exists
}
