package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What says whose signatures count is refused where another account can change or
// replace it: by the service at its start, while it runs, by a worker, by the
// deploy program, and doctor says so. The controls: files of root, a sticky
// directory, and the same files as they were.
//
// proves R-B1, R-B5
func TestTrustOfAnotherAccountIsRefused(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "edit", script: "true"})
		const data, trust, operators = "data/bailiwick", "data/bailiwick/trust.json", "data/bailiwick/operators.json"
		owner := func(name string, uid int) func() { return func() { must(t, os.Chown(w.path(name), uid, uid)) } }
		mode := func(name string, mode os.FileMode) func() { return func() { must(t, os.Chmod(w.path(name), mode)) } }
		const stranger = 64999
		for what, c := range map[string]struct {
			do, undo func()
			words    string // empty: a control
			deploy   bool   // the deploy program reads it too
		}{
			"untouched":                      {func() {}, func() {}, "", true},
			"trust root of root":             {owner(trust, 0), owner(trust, uid), "", true},
			"a sticky data directory":        {mode(data, 0o1777|os.ModeSticky), mode(data, 0o755), "", true},
			"trust root of a stranger":       {owner(trust, stranger), owner(trust, uid), "owned by another account", true},
			"operators of a stranger":        {owner(operators, stranger), owner(operators, uid), "owned by another account", false},
			"trust root that others write":   {mode(trust, 0o646), mode(trust, 0o644), "writable by other accounts", true},
			"data directory of a stranger":   {owner(data, stranger), owner(data, uid), "owned by another account", true},
			"data directory, mode 0777":      {mode(data, 0o777), mode(data, 0o755), "writable by other accounts (mode 0777)", true},
			"data directory, group-writable": {mode(data, 0o775), mode(data, 0o755), "writable by other accounts (mode 0775)", true},
		} {
			c.do()
			up, doctor, plan := w.try("up"), w.try("doctor"), w.try("catalog", "verify")
			w.try("down")
			if c.words == "" {
				if up.status != 0 || strings.Contains(doctor.stdout, "INVALID") || plan.status != 0 {
					t.Errorf("the control: %s: %s\n%s\n%s", what, up, doctor, plan)
				}
			} else {
				if up.status != 1 || !strings.Contains(up.stderr, c.words) {
					t.Errorf("%s: the start: %s", what, up)
				}
				if doctor.status != 1 || !strings.Contains(doctor.stdout, "INVALID") || !strings.Contains(doctor.stdout, c.words) {
					t.Errorf("%s: doctor: %s", what, doctor)
				}
				if c.deploy && (plan.status == 0 || !strings.Contains(plan.stderr, "trust root")) {
					t.Errorf("%s: the deploy program: %s", what, plan)
				}
			}
			c.undo()
		}
		// While it runs.
		w.up()
		wantEnd(t, w.dispatch("edit"), api.EventFinished, "")
		must(t, os.Chmod(w.path(data), 0o777))
		w.refused(1, []string{"the catalog is refused", "writable by other accounts"}, "dispatch", "run", "edit", "-q")
		must(t, os.Chmod(w.path(data), 0o755))
		wantEnd(t, w.dispatch("edit"), api.EventFinished, "")
	})
}
