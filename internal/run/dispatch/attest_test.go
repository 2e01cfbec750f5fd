package dispatch

import (
	"errors"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// over is a dispatch that asked something and was cancelled then.
func (g gate) over(t *testing.T) api.DispatchID {
	t.Helper()
	r := g.asks(t)
	g.cancelled(t, r.record.ID)
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.record.ID
}

func (g gate) attested(t *testing.T) []audit.Committed {
	t.Helper()
	list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchAttested})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Every outcome is attested exactly once. Until then retention keeps the
// dispatch.
//
// takeover system, worker: yes forge evidence
//
// proves R-A8
func TestEveryOutcomeIsAttestedOnce(t *testing.T) {
	g := newGate(t)
	id := g.over(t)
	item := g.items(t)[id]
	if !item.Ended.IsZero() {
		t.Error("it may be removed before it is attested")
	}
	mark := func() error {
		return g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
			return g.MarkRemoved(tx, id, api.Removal{Class: api.ClassEvidence, At: time.Now(), Rule: "test"})
		})
	}
	if err := mark(); !errors.Is(err, retention.ErrNotRemovable) {
		t.Errorf("marked: %v", err)
	}
	for range 3 { // as many services as there may be
		if err := g.attestPending(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.attest(t.Context(), id); !errors.Is(err, errAttested) {
		t.Errorf("a second one: %v", err)
	}
	list := g.attested(t)
	if len(list) != 1 || list[0].Entry.Dispatch != id || list[0].Entry.Run != "" {
		t.Fatalf("%+v", list)
	}
	r, _, err := g.row(t.Context(), id)
	if err != nil || r.record.Statement == "" || r.record.Statement != list[0].Entry.Refs[record.RefStatement] || r.record.State != api.EventCancelled {
		t.Fatalf("%+v, %v", r.record, err)
	}
	envelope, err := g.cfg.Blobs.Get(t.Context(), r.record.Statement, seal.MaxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	payload, _, err := seal.Verify(envelope, seal.Statement, rootOf(g.cfg.Key))
	if err != nil {
		t.Fatal(err)
	}
	s, err := record.ParseStatement(payload)
	if err != nil || s.Predicate.Dispatch.Outcome != api.EventCancelled || s.Predicate.Dispatch.CancelledBy != "local:bob" || s.Subject[0].Name != record.ResourceResult {
		t.Errorf("%+v, %v", s, err)
	}
	// It is bound to what the manifest and the result say.
	m := g.manifestOf(t, r.record)
	signed, err := g.cfg.Blobs.Get(t.Context(), r.record.Result, maxResult)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := seal.Payload(signed, seal.Result)
	if err != nil {
		t.Fatal(err)
	}
	var result record.Result
	if err := canon.DecodeExact(doc, &result); err != nil {
		t.Fatal(err)
	}
	if err := s.Binds(&m, r.record.Manifest, &result, r.record.Result, ""); err != nil {
		t.Error(err)
	}
	item = g.items(t)[id]
	if item.Ended.IsZero() || len(item.Evidence) != 3 {
		t.Errorf("%+v", item)
	}
	if err := mark(); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// A failed attestation is logged and stays queued.
//
// proves R-A8, R-A2
func TestFailedAttestationIsRetried(t *testing.T) {
	g := newGate(t)
	id := g.over(t)
	r, _, err := g.row(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	good, err := g.cfg.Blobs.Get(t.Context(), r.record.Manifest, maxManifest)
	if err != nil {
		t.Fatal(err)
	}
	g.overwrite(t, r.record.Manifest, "not what was signed")
	if err := g.attestPending(t.Context()); err == nil || len(g.attested(t)) != 0 {
		t.Errorf("attested with an unsigned manifest: %v", err)
	}
	g.overwrite(t, r.record.Manifest, string(good))
	if err := g.attestPending(t.Context()); err != nil || len(g.attested(t)) != 1 {
		t.Errorf("the control: %v", err)
	}
}

// A dispatch is stated with the key for statements, and its manifest may be by
// an earlier key.
//
// proves R-A9
func TestStatementsHaveTheirOwnKey(t *testing.T) {
	g := newGate(t)
	id := g.over(t)
	fresh, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	ecdsa, err := seal.CreateKey(t.TempDir()+"/k", seal.NewKey{Unencrypted: true, Algorithm: seal.ECDSAP256})
	if err != nil {
		t.Fatal(err)
	}
	rotation := seal.KeyRotation{V: 1, Log: g.cfg.Keys.Log, Old: g.cfg.Key.KeyID(), New: seal.KeyOf(fresh, ""), Entry: 9}
	envelope, err := rotation.Sign(t.Context(), g.cfg.Key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := g.cfg
	if cfg.Keys, err = cfg.Keys.Rotate(envelope); err != nil {
		t.Fatal(err)
	}
	cfg.Key, cfg.Statements = fresh, ecdsa
	next := newService(t.Context(), cfg)
	t.Cleanup(func() { _ = next.Close() })
	if err := next.attestPending(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _, err := next.row(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := next.cfg.Blobs.Get(t.Context(), r.record.Statement, seal.MaxEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := seal.Verify(signed, seal.Statement, rootOf(ecdsa)); err != nil {
		t.Error(err)
	}
	if _, _, err := seal.Verify(signed, seal.Statement, rootOf(fresh)); err == nil {
		t.Error("the control: it is also by the service's key")
	}
	cfg.Keys = seal.NewHistory(seal.KeyOf(fresh, "")) // one that forgot its keys
	forgot := newService(t.Context(), cfg)
	t.Cleanup(func() { _ = forgot.Close() })
	if _, err := forgot.manifest(t.Context(), r.record.Manifest); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("a manifest by a key that is in no list: %v", err)
	}
}
