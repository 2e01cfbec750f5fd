package dispatch

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// cancelled records a cancel, as Cancel does while a worker lives.
func (g gate) cancelled(t *testing.T, id api.DispatchID) {
	t.Helper()
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
		r, _, err := load(tx, id)
		if err != nil {
			return err
		}
		r.record.CancelBy = "local:bob"
		return update(tx, r)
	}); err != nil {
		t.Error(err)
	}
}

// cancelAtTheEnd lets a cancel come after the end of the worker was read and
// before it is written.
func (g gate) cancelAtTheEnd(t *testing.T, id api.DispatchID) {
	t.Helper()
	done := false
	g.cfg.Now = func() time.Time {
		if !done {
			done = true
			g.cancelled(t, id)
		}
		return time.Now()
	}
}

// ends lists how the dispatches ended, in order.
func (g gate) ends(t *testing.T) (all []record.Kind) {
	t.Helper()
	entries, err := g.cfg.Ledger.List(t.Context(), audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if event, ok := strings.CutPrefix(string(e.Entry.Kind), "dispatch."); ok && api.Event(event).Ended() && slices.Contains(api.Events(), api.Event(event)) {
			all = append(all, e.Entry.Kind)
		}
	}
	return all
}

// A cancel that was taken is in the record, whatever moment it came at.
//
// proves R-D4
func TestCancelDuringCollectIsInTheOutcome(t *testing.T) {
	g := newGate(t)
	r := testRow("dispatch-1")
	g.admission(t, r)
	g.cancelAtTheEnd(t, r.record.ID)
	if err := os.MkdirAll(g.files.dir(&r), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got, _, err := g.row(t.Context(), r.record.ID)
	if err != nil || got.record.State != api.EventCancelled || got.record.CancelBy != "local:bob" {
		t.Errorf("record %+v, %v", got.record, err)
	}
	if ends := g.ends(t); !slices.Equal(ends, []record.Kind{record.KindDispatchCancelled}) {
		t.Errorf("ends %v", ends)
	}
}

// A question of a cancelled dispatch does not wait for an answer.
//
// proves R-D4, R-D6
func TestQuestionOfCancelledDispatchDoesNotWait(t *testing.T) {
	for name, cancel := range map[string]func(gate, *testing.T, api.DispatchID){
		"before the end is read":    gate.cancelled,
		"before the end is written": gate.cancelAtTheEnd,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			r := g.asks(t)
			cancel(g, t, r.record.ID)
			if err := g.collect(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			got, _, err := g.row(t.Context(), r.record.ID)
			if err != nil || got.record.State != api.EventCancelled || got.record.CancelBy != "local:bob" || got.record.AnswerBy != nil || got.record.Result == "" {
				t.Errorf("record %+v, %v", got.record, err)
			}
			if ends := g.ends(t); !slices.Equal(ends, []record.Kind{record.KindDispatchNeedsInput, record.KindDispatchCancelled}) {
				t.Errorf("ends %v", ends)
			}
		})
	}
	// The control: without a cancel it does wait.
	g := newGate(t)
	r := g.asks(t)
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got, _, err := g.row(t.Context(), r.record.ID); err != nil || got.record.State != api.EventNeedsInput || got.record.AnswerBy == nil {
		t.Errorf("record %+v, %v", got.record, err)
	}
}

// asks admits a dispatch whose worker has sealed a question and exited.
func (g gate) asks(t *testing.T, change ...func(*api.Dispatch, *record.Manifest, *record.Result)) row {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	worker, err := seal.NewEphemeral()
	must(err)
	r := testRow("dispatch-1")
	m := record.Manifest{
		V: 1, ID: r.record.ID, Attempt: 1, Principal: r.record.Principal, Subagent: r.record.Subagent, Role: r.record.Role, Target: r.record.Target,
		RevisionDigest: r.record.Manifest, Input: r.record.Manifest, Limits: api.DefaultLimits(),
	}
	result := record.Result{V: 1, ID: r.record.ID, Attempt: 1, Outcome: api.EventNeedsInput}
	for _, c := range change {
		c(&r.record, &m, &result)
	}
	r.record.Manifest, err = g.admitter.storeManifest(t.Context(), m)
	must(err)
	g.admission(t, r)
	r.key, r.record.State = base64.StdEncoding.EncodeToString(worker.Public()), api.EventStarted
	must(g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return update(tx, r) }))

	dir := g.files.dir(&r)
	must(os.MkdirAll(filepath.Join(dir, record.WorkOut), 0o700))
	question := []byte(`{"options":["this","that"],"question":"Which?"}`)
	digest := api.DigestOf(question)
	must(os.WriteFile(filepath.Join(dir, record.WorkOut, digest.Hex()), question, 0o600))
	if result.Manifest == "" {
		result.Manifest = r.record.Manifest
	}
	result.Summary = api.ResultSummary{Question: &api.Artifact{Digest: digest, Size: int64(len(question))}}
	doc, err := canon.Marshal(result)
	must(err)
	envelope, err := seal.Sign(t.Context(), seal.Result, doc, worker)
	must(err)
	must(os.WriteFile(filepath.Join(dir, record.WorkResult), envelope, 0o600))
	return r
}
