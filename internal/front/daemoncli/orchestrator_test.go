package daemoncli

import (
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
)

// Completions before the orchestrator is open are kept for it, but not if it is not
// configured, and not of dispatches outside runs.
//
// proves R-O6
func TestEarlyEndsAreKeptForTheOrchestrator(t *testing.T) {
	observer, err := telemetry.New(telemetry.Config{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(e *events) {
		for _, d := range []api.Dispatch{{ID: "d-of-a-run", Run: "r-1"}, {ID: "d-alone"}, {ID: "d-another", Run: "r-2"}} {
			e.Ended(d)
		}
		e.Decided("r-3", "gate")
	}
	kept := &events{Telemetry: observer}
	if tell(kept); len(kept.runs.waiting) != 3 {
		t.Errorf("%d events are kept, want 3", len(kept.runs.waiting))
	}
	dropped := &events{Telemetry: observer}
	tell(dropped)
	dropped.runs.drop()
	if tell(dropped); dropped.runs.waiting != nil {
		t.Error("without an orchestrator events are kept")
	}
}

// A part that opens late is told in order what happened before, then what happens.
func TestALatePartIsToldInOrder(t *testing.T) {
	var l late[*[]int]
	add := func(n int) { l.tell(func(list *[]int) { *list = append(*list, n) }) }
	add(1)
	add(2)
	var got []int
	l.open(&got)
	add(3)
	if !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("told %v", got)
	}
}
