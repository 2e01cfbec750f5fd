package runverbs

import (
	"maps"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The last fix of a gate replaces the patch of its task and of the fixes before; what
// only looks like a fix replaces nothing.
func TestTheLastFixReplacesThePatch(t *testing.T) {
	t.Parallel()
	tasks := []api.RunTask{
		{Task: "part"},
		{Task: "plain.fix3"},
		{Task: "part[a]", GrewFrom: "part"},
		{Task: "part[b]", GrewFrom: "part"},
		{Task: "part[a].gate1", GrewFrom: "part[a]"},
		{Task: "part[a].fix1", GrewFrom: "part[a]"},
		{Task: "part[a].gate2", GrewFrom: "part[a]"},
		{Task: "part[a].fix2", GrewFrom: "part[a]"},
		{Task: "part[b].gate1", GrewFrom: "part[b]"},
	}
	want := map[api.TaskID]api.TaskID{"part[a]": "part[a].fix2", "part[a].fix1": "part[a].fix2"}
	if by := replacements(tasks); !maps.Equal(by, want) {
		t.Errorf("replacements = %v", by)
	}
	for id, n := range map[api.TaskID]int{"part": 8, "part[a]": 5, "part[b]": 2, "plain.fix3": 1, "none": 0} {
		if list := withGrown(tasks, id); len(list) != n {
			t.Errorf("%d tasks grew from %s, with itself, want %d: %v", len(list), id, n, list)
		}
	}
}
