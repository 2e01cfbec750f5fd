package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// fillDigests puts another digest wherever a value of v's type can have one,
// and returns them.
func fillDigests(v reflect.Value) (all []api.Digest) {
	switch v.Kind() { //nolint:exhaustive // nothing else holds one
	case reflect.String:
		if v.Type() == reflect.TypeFor[api.Digest]() {
			d := api.DigestOf(fmt.Appendf(nil, "%p", v.Addr().Interface()))
			v.SetString(string(d))
			return []api.Digest{d}
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && v.Type() != reflect.TypeFor[*time.Time]() {
			v.Set(reflect.New(v.Type().Elem()))
			return fillDigests(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			return append(fillDigests(v.Index(0)), fillDigests(v.Index(1))...)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for _, f := range v.Fields() {
			all = append(all, fillDigests(f)...)
		}
	}
	return all
}

// Whatever a record can refer to is found, also what will be added to it.
func TestEveryDigestOfARecordIsReferenced(t *testing.T) {
	var d api.Dispatch
	want := fillDigests(reflect.ValueOf(&d).Elem())
	if len(want) < 12 {
		t.Fatalf("the record has only %d digests: the test is blind", len(want))
	}
	d.State = api.EventFinished
	want = slices.DeleteFunc(want, func(w api.Digest) bool { return w == d.ReuseKey || w == d.Reused.Key }) // of no content
	var i retention.Item
	if err := (&retained{}).addReferences(t.Context(), &i, d, marks{}); err != nil {
		t.Fatal(err)
	}
	got := slices.Concat(i.Content, i.Evidence)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("refers to %d, want %d", len(got), len(want))
	}
	if slices.Contains(i.Content, d.Manifest) || slices.Contains(i.Content, d.Result) || slices.Contains(i.Content, d.Statement) || len(i.Evidence) != 3 {
		t.Errorf("evidence %v", i.Evidence)
	}
}

// What is marked is final, ended and not pinned; a mark and a pin outlive
// whatever else is written of the dispatch.
func TestOnlyRemovableDispatchesAreMarkedRemoved(t *testing.T) {
	g := newGate(t)
	ended := time.Now()
	add := func(id api.DispatchID, state api.Event, pinned bool) row {
		r := testRow(id)
		r.record.Input, r.record.State = api.DigestOf([]byte("input")), api.EventAccepted
		if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
			if err := insert(tx, r); err != nil {
				return err
			}
			if pinned {
				if err := saveMarks(tx, id, marks{pin: &api.Pin{By: "local:ann", At: ended}}); err != nil {
					return err
				}
			}
			r.record.State = api.EventStarted
			if err := update(tx, r); err != nil {
				return err
			}
			r.record.State = state
			if r.record.State.Ended() {
				r.record.EndedAt = &ended
			}
			return update(tx, r)
		}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	add("d-runs", api.EventStarted, false)
	add("d-waits", api.EventNeedsInput, false)
	add("d-pinned", api.EventFinished, true)
	add("d-done", api.EventFailed, false)
	mark := func(id api.DispatchID, c api.Class) error {
		return g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
			return g.MarkRemoved(tx, id, api.Removal{Class: c, At: ended, Rule: "r"})
		})
	}
	for _, id := range []api.DispatchID{"d-runs", "d-waits", "d-pinned", "d-absent"} {
		if err := mark(id, api.ClassContent); !errors.Is(err, retention.ErrNotRemovable) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := mark("d-done", api.ClassContent); err != nil { // the control
		t.Fatal(err)
	}
	if err := mark("d-done", api.ClassContent); !errors.Is(err, retention.ErrNotRemovable) {
		t.Errorf("marked twice: %v", err)
	}
	k, err := g.marks(t.Context(), "d-done")
	if err != nil || len(k.removed) != 1 || removal(k.removed, api.ClassEvidence) != nil {
		t.Errorf("%+v %v", k, err)
	}
	if k, err = g.marks(t.Context(), "d-pinned"); err != nil || k.pin == nil {
		t.Errorf("%+v %v", k, err)
	}
}

// BenchmarkItems is what one record costs to look at.
func BenchmarkItems(b *testing.B) {
	d := testRow("d-bench").record
	d.State, d.Input, d.Result, d.Outcome = api.EventFinished, d.Manifest, d.Manifest, &api.ResultSummary{
		Patch: &api.Artifact{Digest: d.Manifest}, Outputs: []api.Artifact{{Digest: d.Manifest}, {Digest: d.Manifest}}, Log: []api.LogPart{{Digest: d.Manifest}},
	}
	text, err := json.Marshal(d)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		var got api.Dispatch
		if err := (jsonText{&got}).Scan(string(text)); err != nil {
			b.Fatal(err)
		}
		if _, err := (&retained{}).item(b.Context(), got, marks{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOnlyTheOperatorRemovesTheOperatorsPin(t *testing.T) {
	g := newGate(t)
	g.cfg.Operator, g.cfg.Dirs.Data = "local:op", t.TempDir()
	g.readCatalog(t)
	r := testRow("d-one")
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return insert(tx, r) }); err != nil {
		t.Fatal(err)
	}
	entries := func() uint64 {
		n, err := g.cfg.Ledger.Len(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, step := range []struct {
		who    api.Principal
		on     bool
		code   api.Code      // of a refusal
		by     api.Principal // of the pin afterwards
		logged bool
	}{
		{"local:ann", true, "", "local:ann", true},
		{"local:ann", true, "", "local:ann", false}, // again: nothing changes
		{"local:bob", true, api.CodeNotFound, "local:ann", true},
		{"local:bob", false, api.CodeNotFound, "local:ann", true},
		{"local:ann", false, "", "", true},
		{"local:ann", false, "", "", false},
		{"local:ann", true, "", "local:ann", true},
		{"local:op", true, "", "local:op", true}, // the operator's takes its place
		{"local:ann", true, "", "local:op", false},
		{"local:ann", false, api.CodeDenied, "local:op", true},
		{"local:op", false, "", "", true},
		{"local:ann", true, "", "local:ann", true},
		{"local:op", false, "", "", true},
	} {
		before := entries()
		d, err := g.Pin(t.Context(), step.who, "d-one", step.on)
		if (err != nil || step.code != "") && api.CodeOf(err) != step.code {
			t.Errorf("step %d: %v, want %q", i, err, step.code)
		}
		k, kErr := g.marks(t.Context(), "d-one")
		if kErr != nil || (k.pin == nil) != (step.by == "") || k.pin != nil && k.pin.By != step.by || err == nil && !reflect.DeepEqual(d.Pinned, k.pin) {
			t.Errorf("step %d: pin %+v, %v, want %q", i, k.pin, kErr, step.by)
		}
		if (entries() > before) != step.logged {
			t.Errorf("step %d: logged %t", i, !step.logged)
		}
	}
}

// items are what retention is told of each dispatch.
func (g gate) items(t *testing.T) map[api.DispatchID]retention.Item {
	t.Helper()
	all := map[api.DispatchID]retention.Item{}
	if err := g.Items(t.Context(), func(i retention.Item) error { all[i.ID] = i; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}
