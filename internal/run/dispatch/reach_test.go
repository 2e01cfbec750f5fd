package dispatch

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// What the worker of a running attempt says about its model is in the record that a caller
// gets and in the reports of its run. It is not stored, and gone with the attempt.
func TestARunningAttemptShowsThatItsModelIsUnreachable(t *testing.T) {
	g := newStopGate(t)
	r := g.running(t, "d-reach")
	owner, id := r.record.Principal, r.record.ID
	a := &active{l: g.lifecycle, row: r, ended: make(chan struct{})}
	g.mu.Lock()
	g.active[id] = a
	g.mu.Unlock()
	defer func() { // it has no worker that the service could close
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.active, id)
	}()
	want := &api.Unreachable{Model: "local", Host: "api.example:443", Error: "connection refused", Tries: 3}
	shown := func() *api.Unreachable {
		t.Helper()
		d, err := g.Describe(t.Context(), owner, id, 0)
		reports, err2 := g.Reports(t.Context(), []api.DispatchID{id})
		if err != nil || err2 != nil || reports[id].Unreachable != d.Unreachable {
			t.Fatal(err, err2, d.Unreachable, reports)
		}
		return d.Unreachable
	}
	if u := shown(); u != nil {
		t.Errorf("before: %+v", u)
	}
	a.handle(record.WorkerMessage{Event: "model", Unreachable: want})
	if u := shown(); u == nil || *u != *want {
		t.Errorf("shown %+v, want %+v", u, want)
	}
	if now, _, err := g.row(t.Context(), id); err != nil || now.record.Unreachable != nil {
		t.Errorf("stored: %+v, %v", now.record.Unreachable, err)
	}
	a.handle(record.WorkerMessage{Event: "model"})
	if u := shown(); u != nil {
		t.Errorf("once it is reached: %+v", u)
	}
	a.handle(record.WorkerMessage{Event: "model", Unreachable: want})
	if err := g.end(t.Context(), r, outcome{event: api.EventFinished}, update); err != nil {
		t.Fatal(err)
	}
	if d, err := g.Describe(t.Context(), owner, id, 0); err != nil || d.Unreachable != nil {
		t.Errorf("after the end: %+v, %v", d.Unreachable, err)
	}
}
