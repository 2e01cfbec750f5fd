package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Without an engine every run is shown as its rows have it, open ones as undriven,
// to the principals who may see it, and OpenRuns counts them.
//
// proves R-O1
func TestRunsAreReadableWithoutAnEngine(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		_, err := w.offer(as(ann), fan("r0", 3))
		w.must(err)
		w.finishAll()
		_, err = w.offer(as(ann), fan("r1", 4))
		w.must(err)
		synctest.Wait()
		driven, err := w.o.Describe(ctx, ann, "r1", "", 0)
		w.must(err)
		if driven.Undriven || driven.StartWith != "" {
			t.Error("positive control: the engine drives r1")
		}
		w.desk.freeze()
		w.must(w.o.Close())
		a := orchestrator.NewArchive(orchestrator.ArchiveConfig{Store: w.store, Ledger: w.ledger, Rules: w.desk.sit(), Now: w.config.Now, Mode: api.ModeSystem})
		list, err := a.List(ctx, ann, api.RunFilter{Limit: 10})
		w.must(err)
		var got []api.RunID
		for _, r := range list {
			got = append(got, r.RunID)
			if r.Undriven != (r.RunID == "r1") || r.Total != map[api.RunID]int{"r0": 3, "r1": 4}[r.RunID] {
				t.Errorf("the list has %+v", r)
			}
		}
		if !slices.Equal(got, []api.RunID{"r1", "r0"}) {
			t.Errorf("the list has %v", got)
		}
		r, err := a.Describe(ctx, ann, "r1", "", 0)
		w.must(err)
		if !r.Undriven || r.StartWith != api.StartRuns(api.ModeSystem) || len(r.Tasks) != 4 || r.Counts[api.TaskRunning] != driven.Counts[api.TaskRunning] {
			t.Errorf("r1 is %+v, and was %+v", r, driven)
		}
		events, err := a.Events(ctx, ann, "r0", "", 0)
		w.must(err)
		if !events.Done || len(events.Events) == 0 {
			t.Errorf("the events of r0 are %+v", events)
		}
		if n, err := a.OpenRuns(ctx); err != nil || n != 1 {
			t.Errorf("%d open runs, %v", n, err)
		}
		if _, err := a.Describe(ctx, ben, "r1", "", 0); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("to a principal who may not see it: %v", err)
		}
		w.o = nil
		w.must(w.stop())
	})
}

// A run that is removed while its retry is admitted is not retried: the evidence of
// the retry needs it. The control is a run that stays.
//
// proves R-A7
func TestARunThatExpiresMeanwhileIsNotRetried(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		for _, id := range []api.RunID{"r0", "r1"} {
			_, err := w.offer(as(ann), fan(id, 3))
			w.must(err)
		}
		w.finishAll()
		task := fan("r0", 3).Tasks[0].ID
		w.remember(fan("again1", 3))
		if _, err := w.o.Retry(ctx, as(ann), "r1", api.RunRetry{RunID: "again1", From: []api.TaskID{task}}); err != nil {
			t.Fatalf("control: %v", err)
		}
		w.desk.vetted = func() {
			w.desk.vetted = func() {}
			w.must(w.store.Update(ctx, func(tx *store.Tx) error { return w.o.Remove(tx, "r0") }))
		}
		if _, err := w.o.Retry(ctx, as(ann), "r0", api.RunRetry{RunID: "again0", From: []api.TaskID{task}}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("retry of a removed run: %v", err)
		}
		if err := w.store.Update(ctx, func(tx *store.Tx) error { return w.o.Remove(tx, "r1") }); !errors.Is(err, retention.ErrNotRemovable) {
			t.Errorf("a run that is retried can be removed: %v", err)
		}
		w.finishAll()
	})
}

// The values of parameters are in the entry, cut to its bounds, and not once more in
// the row of the run: lists read the rows of a thousand runs.
//
// proves R-O2
func TestValuesOfParametersAreNotStoredInRows(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		raw := bytes.Replace(w.remember(fan("r0", 3)), []byte("{"), []byte(`{"parameters":{"properties":{"pad":{"type":"string"}}},`), 1)
		pad := json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
		_, err := w.o.Submit(ctx, as(ann), api.RunRequest{Plan: raw, Parameters: map[string]json.RawMessage{"pad": pad}})
		w.must(err)
		list, err := w.ledger.List(ctx, audit.Query{Run: "r0", Kind: record.KindRunSubmitted, Limit: 1})
		w.must(err)
		if said := list[0].Entry.Detail.(record.RunRequest).Parameters; len(said) != 1 || !strings.HasPrefix(said[0], `pad="xxx`) {
			t.Errorf("the entry has the parameters %.100q", said)
		}
		var size int
		w.must(w.store.Read(ctx, func(v *store.View) error { return v.Get("SELECT length(doc) FROM run WHERE id = 'r0'", nil, &size) }))
		if size > 10_000 {
			t.Errorf("the row has %d bytes beside the plan", size)
		}
		w.finishAll()
	})
}
