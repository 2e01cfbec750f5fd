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
	tell := func(r *relay) (waiting []api.DispatchID) {
		for _, d := range []api.Dispatch{{ID: "d-of-a-run", Run: "r-1"}, {ID: "d-alone"}, {ID: "d-another", Run: "r-2"}} {
			r.Ended(d)
		}
		for _, d := range r.waiting {
			waiting = append(waiting, d.ID)
		}
		return waiting
	}
	if got := tell(&relay{Observer: observer, wanted: true}); !slices.Equal(got, []api.DispatchID{"d-of-a-run", "d-another"}) {
		t.Errorf("kept are %q", got)
	}
	if got := tell(&relay{Observer: observer}); got != nil {
		t.Errorf("without an orchestrator %q are kept", got)
	}
}
