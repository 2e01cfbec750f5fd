package dispatch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// running is a dispatch whose worker has started.
func (g gate) running(t *testing.T, id api.DispatchID) row {
	t.Helper()
	r := testRow(id)
	g.admission(t, r)
	r.key, r.record.State = "k", api.EventStarted
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return update(tx, r) }); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(g.files.dir(&r), 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

// logged returns the numbers of the refused requests in the log, and the kinds of the
// other entries after the first, in order.
func (g gate) logged(t *testing.T, id api.DispatchID) (numbers []int64, kinds []record.Kind) {
	t.Helper()
	if err := g.cfg.Store.Read(t.Context(), func(v *store.View) error {
		return audit.Each(v, audit.Query{Dispatch: id}, func(c *audit.Committed) error {
			if d, ok := c.Entry.Detail.(record.EgressRefusal); ok {
				numbers = append(numbers, d.Number)
			}
			kinds = append(kinds, c.Entry.Kind)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return numbers, kinds
}

func refusal(n int64) record.EgressRefusal {
	return record.EgressRefusal{Form: "connect", Host: fmt.Sprintf("h%d.example:443", n), Number: n, Reason: "not in the egress list"}
}

// wrote puts lines of JSON into a file of the worker's directory.
func (g gate) wrote(t *testing.T, r row, name, end string, lines ...any) {
	t.Helper()
	var out strings.Builder
	for _, l := range lines {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	if err := os.WriteFile(filepath.Join(g.files.dir(&r), name), []byte(out.String()+end), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each refused request has one entry: whether the worker reports it once, again on
// each connection and to each service, or was killed and only its files have it.
//
// proves R-S3, R-A3
func TestEachRefusedRequestHasOneEntry(t *testing.T) {
	g := newGate(t)
	r := g.running(t, "dispatch-1")
	live := &refusals{records: g.records, row: r}
	for range 3 { // connections
		for n := int64(1); n <= 250; n++ {
			live.report(t.Context(), refusal(n))
		}
	}
	live.logging.Wait()
	again := &refusals{records: g.records, row: r} // of the next service
	for n := int64(1); n <= 260; n++ {
		again.report(t.Context(), refusal(n))
	}
	again.logging.Wait()
	g.wrote(t, r, record.WorkEvents, `{"at":"2026-`, record.WorkerMessage{Event: "refused", Refused: &record.EgressRefusal{Number: 261}}, record.WorkerMessage{Event: "alive"})
	g.wrote(t, r, record.WorkNetwork, `{"number":264,"ref`, api.NetworkLine{Number: 261, Refused: "no"}, api.NetworkLine{Number: 262}, api.NetworkLine{Number: 263, Refused: "no"})
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	numbers, kinds := g.logged(t, r.record.ID)
	if last := kinds[len(kinds)-1]; last != record.KindDispatchFailed {
		t.Errorf("the last entry is %s, not the end", last)
	}
	slices.Sort(numbers)
	want := []int64{263}
	for n := int64(261); n > 0; n-- {
		want = append([]int64{n}, want...)
	}
	if !slices.Equal(numbers, want) {
		t.Errorf("%d entries: %v", len(numbers), numbers)
	}
	if err := g.files.completeRefusals(t.Context(), r); err != nil { // the row says started, the state not
		t.Error(err)
	}
	if after, _ := g.logged(t, r.record.ID); len(after) != len(numbers) {
		t.Errorf("%d entries after the end", len(after)-len(numbers))
	}
	row, _, err := g.row(t.Context(), r.record.ID)
	if err != nil || row.record.Outcome == nil || row.record.Outcome.Network == nil {
		t.Errorf("the network record of a killed worker is not kept: %+v, %v", row.record.Outcome, err)
	}
}

// However many requests an agent makes, an attempt has MaxRefusals entries of refused
// ones, those that the worker reported; other dispatches do not wait for them.
//
// proves R-S3
func TestFloodOfRefusedRequestsIsBounded(t *testing.T) {
	g := newGate(t)
	flood, other := g.running(t, "dispatch-1"), g.running(t, "dispatch-2")
	live := &refusals{records: g.records, row: flood}
	var from sync.WaitGroup
	for part := range int64(4) {
		from.Go(func() {
			for n := range int64(5000) {
				live.report(t.Context(), refusal(part*5000+n+1))
			}
		})
	}
	if err := g.collect(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	from.Wait()
	live.logging.Wait()
	var lines []any
	for n := range int64(2000) {
		lines = append(lines, api.NetworkLine{Number: 100_000 + n, Refused: strings.Repeat("long ", 10_000)})
	}
	g.wrote(t, flood, record.WorkNetwork, strings.Repeat("x", 3*maxMessage), lines[:1100]...)
	if err := g.collect(t.Context(), flood); err != nil {
		t.Fatal(err)
	}
	numbers, _ := g.logged(t, flood.record.ID)
	slices.Sort(numbers)
	if len(numbers) != record.MaxRefusals || len(slices.Compact(numbers)) != record.MaxRefusals {
		t.Errorf("%d entries, want %d", len(numbers), record.MaxRefusals)
	}
	if n, _ := g.logged(t, other.record.ID); len(n) != 0 {
		t.Errorf("another dispatch has %d entries", len(n))
	}
}
