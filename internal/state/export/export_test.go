package export

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newExporter returns an Exporter over an empty log.
func newExporter(t *testing.T) (*Exporter, *audit.Ledger) {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration()}})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	ledger, err := audit.Open(t.Context(), audit.Config{Store: st, Now: time.Now})
	must(t, err)
	blobs, err := blob.Create(blob.Config{Dir: filepath.Join(dir, "blobs")})
	must(t, err)
	return New(Config{Ledger: ledger, Blobs: blobs}), ledger
}

// proves R-A7 (the service's half): evidence exists only about runs and
// dispatches that the log has and that have ended.
func TestBundleNeedsARunOrDispatchThatHasEnded(t *testing.T) {
	x, ledger := newExporter(t)
	_, err := ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchStarted, Dispatch: "d-begun", Detail: record.DispatchStart{}}, nil)
	must(t, err)
	for _, c := range []struct {
		req  Request
		code api.Code
		text string
	}{
		{Request{Dispatch: "d-none"}, api.CodeNotFound, "the log has no dispatch d-none"},
		{Request{Dispatch: "d-begun"}, api.CodeNotFound, "the log has no dispatch d-begun"},
		{Request{Run: "none"}, api.CodeNotFound, "the log has no run none"},
	} {
		if b, err := x.Bundle(t.Context(), c.req); api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, %v", c.req, b, err)
		}
	}
}

// A document that retention has removed is named, with a hint.
func TestAMissingDocumentIsNamed(t *testing.T) {
	x, _ := newExporter(t)
	g := &builder{x: x}
	e := record.Entry{Kind: record.KindDispatchAttested, Refs: map[string]api.Digest{record.RefStatement: api.DigestOf([]byte("gone"))}}
	err := g.named(t.Context(), &e)
	if api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "no longer stored") {
		t.Errorf("%v", err)
	}
}

// An admission may have been decided by the revision before the newest one, for
// record.RevisionGrace after that was published.
func TestInForceIncludesTheEarlierRevisionWithinTheGrace(t *testing.T) {
	published := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	first, second := api.DigestOf([]byte("first")), api.DigestOf([]byte("second"))
	for after, want := range map[time.Duration][]api.Digest{
		time.Second:              {second, first},
		2 * record.RevisionGrace: {second},
	} {
		g := &builder{seqs: []uint64{0, 1, 2}, entries: map[uint64]audit.Committed{
			0: {Entry: record.Entry{Kind: record.KindCatalogRevision, At: published.Add(-time.Hour), Refs: map[string]api.Digest{record.RefRevision: first}}},
			1: {Entry: record.Entry{Kind: record.KindCatalogRevision, At: published, Refs: map[string]api.Digest{record.RefRevision: second}}},
			2: {Entry: record.Entry{Kind: record.KindDispatchAccepted, At: published.Add(after)}},
		}}
		if got := g.inForce(); !slices.Equal(got, want) {
			t.Errorf("%s after the second: %v, want %v", after, got, want)
		}
	}
}

// Evidence of a dispatch that has ended waits for its statement, and is refused
// without it. One whose documents retention has removed says so at once.
//
// proves R-A7
func TestEvidenceWaitsForTheStatement(t *testing.T) {
	x, ledger := newExporter(t)
	x.cfg.Attest = 50 * time.Millisecond
	engine, err := policy.New(policy.Rules{Operator: "local:root"})
	must(t, err)
	allowed := engine.Decide(policy.Request{Principal: "local:root", Action: policy.ActionAuditRead, Resource: "log"})
	manifest, err := x.cfg.Blobs.Put(t.Context(), []byte("{}"))
	must(t, err)
	ended := func(id api.DispatchID, manifest api.Digest) {
		_, err := ledger.Commit(t.Context(), allowed, record.Entry{
			Kind: record.KindDispatchAccepted, Dispatch: id, Attempt: 1, Refs: map[string]api.Digest{record.RefManifest: manifest}, Detail: record.DispatchRequest{},
		}, nil)
		must(t, err)
		_, err = ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchFailed, Dispatch: id, Attempt: 1, Detail: record.DispatchEnd{Reason: "lost"}}, nil)
		must(t, err)
	}
	collect := func(id api.DispatchID) error {
		g := &builder{x: x, entries: map[uint64]audit.Committed{}, dispatches: map[api.DispatchID]bool{}, b: &bundle.Bundle{Documents: map[api.Digest][]byte{}}}
		_, err := g.dispatchEntries(t.Context(), id)
		return err
	}
	ended("d-1", manifest)
	if err := collect("d-1"); api.CodeOf(err) != api.CodeNotFinished || !strings.Contains(err.Error(), "statement is not signed") {
		t.Errorf("without its statement: %v", err)
	}
	_, err = ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchAttested, Dispatch: "d-1", Attempt: 1, Detail: record.DispatchAttested{}}, nil)
	must(t, err)
	if err := collect("d-1"); err != nil {
		t.Errorf("with its statement: %v", err)
	}
	ended("d-2", api.DigestOf([]byte("removed")))
	if err := collect("d-2"); api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "no longer stored") {
		t.Errorf("removed: %v", err)
	}
}
