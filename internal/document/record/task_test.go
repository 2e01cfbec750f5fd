package record

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// taskEvents lists the events of the table.
func taskEvents() (list []TaskEvent) {
	for _, t := range TaskTransitions() {
		if !slices.Contains(list, t.Event) {
			list = append(list, t.Event)
		}
	}
	return list
}

func TestTaskTransitions(t *testing.T) {
	want := map[string]string{
		"pending deps": "ready", "pending skip": "skipped", "pending cancel": "cancelled",
		"ready start": "running", "ready cancel": "cancelled",
		"running done": "done", "running fail": "failed", "running deny": "denied", "running ask": "waiting", "running backoff": "waiting", "running cancel": "cancelled",
		"waiting answer": "ready", "waiting due": "ready", "waiting approve": "ready", "waiting fail": "failed", "waiting cancel": "cancelled",
		"pending grow": "growing", "pending fail": "failed", "pending ask": "waiting", "running grow": "growing",
		"waiting done": "done", "waiting deny": "denied", "growing grow": "growing", "growing done": "done", "growing fail": "failed", "growing cancel": "cancelled",
	}
	if len(TaskTransitions()) != len(want) {
		t.Errorf("%d transitions, want %d", len(TaskTransitions()), len(want))
	}
	for _, from := range append(api.TaskStates(), "unknown") {
		for _, e := range append(taskEvents(), "unknown") {
			to, ok := NextTask(from, e)
			if wanted, allowed := want[fmt.Sprintf("%s %s", from, e)]; ok != allowed || string(to) != wanted {
				t.Errorf("%s of a %s task: %q, %v; want %q", e, from, to, ok, wanted)
			}
			if from.Settled() && ok {
				t.Errorf("%s leaves the settled state %s", e, from)
			}
		}
	}
}

func TestEveryTaskStateIsReachedAndOnlySettledStatesAreFinal(t *testing.T) {
	reached := map[api.TaskState]bool{api.TaskPending: true}
	for range api.TaskStates() {
		for _, tr := range TaskTransitions() {
			reached[tr.To] = reached[tr.To] || reached[tr.From]
		}
	}
	for _, s := range api.TaskStates() {
		leaves := slices.ContainsFunc(TaskTransitions(), func(tr TaskTransition) bool { return tr.From == s })
		if !reached[s] || leaves == s.Settled() {
			t.Errorf("%s: reached %v, left %v", s, reached[s], leaves)
		}
	}
}
