package account

import "testing"

// A unit of systemd whose own group has the groups of attempts below it is never started
// again while they run: they are in its slice.
func TestAttemptsAreBesideTheUnitOfTheLauncher(t *testing.T) {
	for _, c := range []struct {
		text, own string
		within    bool
	}{
		{"0::/bailiwick.slice/bailiwick-launch.service\n", "bailiwick.slice", false},
		{"12:pids:/x.service\n0::/system.slice/a.slice/x.service\n", "system.slice/a.slice", false},
		{"0::/user.slice/user-0.slice/session-1.scope\n", "user.slice/user-0.slice/session-1.scope", true},
		{"0::/user.slice/user-0.slice/session-1.scope/launcher\n", "user.slice/user-0.slice/session-1.scope", true},
		{"0::/x.service\n", "x.service", true}, // of a container: beside it is another one's
		{"0::/\n", "", false},
		{"12:pids:/x\n", "", false},
		{"", "", false},
	} {
		if own, within := place(c.text); own != c.own || within != c.within {
			t.Errorf("%q: %q %v, want %q %v", c.text, own, within, c.own, c.within)
		}
	}
}
