package account

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// OwnGroups returns the place for control groups below the one of this process, which it moves to
// a group of its own: one with processes delegates nothing.
func OwnGroups() (*Groups, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := "bailiwick" // where there is no version 2, or this process is in its root
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && path != "" {
			own = strings.TrimSuffix(path, "/launcher")
			if err := enterGroup(filepath.Join("/sys/fs/cgroup", own, "launcher")); err != nil {
				return nil, err
			}
		}
	}
	return OpenGroups(filepath.Join(own, "attempts"))
}

func enterGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // G301: as every control group
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0) //nolint:gosec // G306: it exists
}
