package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// limits.disk bounds the checkout, before a file of it is written, and what is kept of
// the outputs, each file at its full size. The controls are the same work with room.
//
// proves R-S2
func TestDiskLimitBoundsCheckoutAndOutputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "big": strings.Repeat("x", 2<<20)})
	const holes = "for i in 1 2 3 4; do truncate -s 900K outputs/$i; done"
	w.catalog(
		subagent{name: "small", script: holes, more: "    limits: {disk: 1MiB, fileSize: 1MiB}\n"},
		subagent{name: "edit", script: holes},
	)
	w.up()
	d := w.dispatch("small", "--source", "repo")
	wantEnd(t, d, api.EventFailed, api.ReasonLimit)
	for _, want := range []string{"limits.disk is 1048576", "largest: big, 2097152 bytes", "raise limits.disk"} {
		if !strings.Contains(d.Message, want) {
			t.Errorf("%q is missing from %s", want, d.Message)
		}
	}
	if list, _ := os.ReadDir(w.path("state/bailiwick/checkouts")); len(list) > 1 { // at most its lock
		t.Errorf("a checkout was begun: %v", list)
	}
	for name, want := range map[string]int{"small": 1, "edit": 4} {
		args := []string{name}
		if name == "edit" {
			args = append(args, "--source", "repo")
		}
		d := w.dispatch(args...)
		wantEnd(t, d, api.EventFinished, "")
		if d.Outcome == nil || len(d.Outcome.Outputs) != want || len(d.Outcome.LeftOut) != 4-want {
			t.Errorf("%s: %+v", name, d.Outcome)
		} else if want < 4 && !strings.Contains(d.Outcome.LeftOut[0].Why, "raise limits.disk") {
			t.Errorf("%s: left out %+v", name, d.Outcome.LeftOut)
		}
	}
}
