package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The limits of launch.yaml are added to those that humans signed, in the control group of an
// attempt. The control is another value.
func TestLimitsOfTheSettingsAreThoseOfTheGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	for _, own := range []int{77, 78} {
		w.cfg.System.Settings.Worker.Processes = own
		l := p.given(w.launcher())
		m := w.manifest("edit")
		a := w.attempt(m)
		touch(t, a, "stay")
		proc, err := l.Worker(t.Context(), a)
		must(t, err)
		var found []string
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"} {
			list, err := filepath.Glob(filepath.Join(mount, fmt.Sprintf("bailiwick-launch-test-%d-*", os.Getpid()), "block-*", "pids.max"))
			must(t, err)
			for _, name := range list {
				b, err := os.ReadFile(name) //nolint:gosec // G304: of the kernel
				must(t, err)
				found = append(found, strings.TrimSpace(string(b)))
			}
		}
		if want := strconv.Itoa(m.Limits.Processes + own); len(proc.Lacks) == 0 && (len(found) != 1 || found[0] != want) {
			t.Errorf("pids.max is %v, want %s", found, want)
		}
		must(t, l.sys.blocks.end(Running{m.ID, 1}))
		must(t, proc.Wait())
	}
}
