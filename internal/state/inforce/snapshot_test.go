package inforce

import (
	"fmt"
	"log/slog"
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
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// world is a service's state and a catalog on disk.
type world struct {
	t      *testing.T
	cfg    Config
	signer seal.Signer
	blobs  *blob.Store
	signed map[uint64][]any // the index entries of each revision
	docs   map[uint64]api.Digest
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newWorld returns a world without a catalog.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	seen := store.Migration{Owner: "seen", Steps: []string{"CREATE TABLE catalog_seen (one INTEGER PRIMARY KEY, number INTEGER NOT NULL, digest TEXT NOT NULL) STRICT;"}}
	st := must[*store.Store](t)(store.Create(t.Context(), store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration(), seen}}))
	t.Cleanup(func() { _ = st.Close() })
	ledger := must[*audit.Ledger](t)(audit.Open(t.Context(), audit.Config{Store: st, Now: time.Now}))
	return &world{
		t: t, signer: must[seal.Signer](t)(seal.NewEphemeral()), signed: map[uint64][]any{}, docs: map[uint64]api.Digest{},
		cfg: Config{
			Dirs:  api.Dirs{Data: filepath.Join(dir, "data"), Config: filepath.Join(dir, "config")},
			Store: st, Ledger: ledger, Operator: "local:root", Logger: slog.New(slog.DiscardHandler),
		},
	}
}

func (w *world) put(b []byte, err error) []byte {
	w.t.Helper()
	if err == nil {
		_, err = w.blobs.Put(w.t.Context(), b)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// sign adds a revision whose roles are r1 to rN.
func (w *world) sign(number uint64) {
	w.t.Helper()
	if w.blobs == nil {
		w.blobs = must[*blob.Store](w.t)(blob.Create(blob.Config{Dir: w.cfg.Dirs.Catalog()}))
		w.t.Cleanup(func() { _ = w.blobs.Close() })
		root := must[[]byte](w.t)(seal.RootOf(seal.KeyOf(w.signer, "ann")).Encode())
		w.write(w.cfg.Dirs.TrustRoot(), root)
		w.put([]byte("{}"), nil)
	}
	set, doc := catalog.NewSet(), api.Revision{V: 1, Number: number, Previous: w.docs[number-1], CreatedAt: time.Unix(int64(number), 0).UTC(), Author: "ann", Artifacts: map[api.Ref]api.Entry{}} //nolint:gosec // G115: few
	for i := range number {
		name := api.Name(fmt.Sprintf("r%d", i+1))
		b := w.put(canon.Marshal(api.Role{Name: name}))
		if err := set.Add(api.RefTo(api.KindRole, name), b); err != nil {
			w.t.Fatal(err)
		}
		doc.Artifacts[api.RefTo(api.KindRole, name)] = api.Entry{Digest: api.DigestOf(b)}
	}
	b := w.put(canon.Marshal(doc))
	manifest := w.put(catalog.Manifest(b, set))
	envelope := w.put(seal.Sign(w.t.Context(), seal.Revision, b, w.signer))
	signature := w.put(catalog.SignatureManifest(manifest, envelope))
	w.docs[number] = api.DigestOf(b)
	w.signed[number] = []any{catalog.IndexEntry(manifest, "current"), catalog.IndexEntry(manifest, catalog.TagOf(number)), catalog.SignatureEntry(signature, api.DigestOf(manifest))}
}

// current makes a revision the one of the catalog's index, with those before it.
func (w *world) current(number uint64) {
	w.t.Helper()
	entries := w.signed[number]
	for n := number - 1; n > 0; n-- {
		entries = append(slices.Clip(entries), w.signed[n][1:]...)
	}
	w.write(filepath.Join(w.cfg.Dirs.Catalog(), "index.json"), must[[]byte](w.t)(canon.Marshal(map[string]any{"schemaVersion": 2, "manifests": entries})))
}

func (w *world) write(path string, b []byte) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() *Reader {
	w.t.Helper()
	return must[*Reader](w.t)(Open(w.t.Context(), w.cfg))
}

// entries returns how many entries of a kind the log has.
func (w *world) entries(kind record.Kind) int {
	w.t.Helper()
	return len(must[[]audit.Committed](w.t)(w.cfg.Ledger.List(w.t.Context(), audit.Query{Kind: kind})))
}

func (w *world) checkSeen() error {
	return w.cfg.Store.Read(w.t.Context(), func(v *store.View) error { return CheckSeen(v) })
}

// number returns the number of the revision in force.
func (w *world) number(r *Reader) uint64 {
	w.t.Helper()
	return must[Snapshot](w.t)(r.Current(w.t.Context())).Number()
}

// refused fails unless the catalog is refused for a reason.
func (w *world) refused(r *Reader, why string) {
	w.t.Helper()
	s, err := r.Current(w.t.Context())
	if api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), why) || s.Revision != nil || s.Engine != nil {
		w.t.Errorf("%v, revision %d: want a refusal with %q", err, s.Number(), why)
	}
}

func TestNoCatalogIsNoFailure(t *testing.T) {
	w := newWorld(t)
	r := w.open()
	if s, err := r.Current(t.Context()); err != nil || s.Number() != 0 || s.Engine == nil {
		t.Errorf("%+v, %v", s, err)
	}
	if err := w.checkSeen(); err != nil {
		t.Error(err)
	}
}

// proves R-B5
func TestARevisionIsLoggedBeforeItIsInForceAndOnce(t *testing.T) {
	w := newWorld(t)
	w.sign(1)
	w.current(1)
	r := w.open()
	for range 3 {
		if n := w.number(r); n != 1 {
			t.Fatal(n)
		}
	}
	w.open()
	if n := w.entries(record.KindCatalogRevision); n != 1 {
		t.Errorf("%d entries of a revision that was read four times", n)
	}
	w.sign(2)
	w.current(2)
	if n := w.number(r); n != 2 || r.Highest() != (catalog.Mark{Number: 2, Digest: w.docs[2]}) || w.entries(record.KindCatalogRevision) != 2 {
		t.Errorf("revision %d, highest %v", n, r.Highest())
	}
	if err := w.checkSeen(); err != nil {
		t.Error(err)
	}
}

// proves R-B5
func TestAnOlderCatalogIsRefusedAfterARestartToo(t *testing.T) {
	w := newWorld(t)
	w.sign(1)
	w.sign(2)
	w.current(2)
	r := w.open()
	w.current(1)
	w.refused(r, "older than revision 2")
	w.refused(w.open(), "older than revision 2")
	if err := os.RemoveAll(w.cfg.Dirs.Catalog()); err != nil {
		t.Fatal(err)
	}
	w.refused(w.open(), "refused")
}

// A catalog that does not verify allows nothing, is logged once for each cause, and is
// in force again when it is repaired.
//
// proves R-B5
func TestADamagedCatalogAllowsNothingUntilItIsRepaired(t *testing.T) {
	w := newWorld(t)
	w.sign(1)
	w.current(1)
	w.open()
	path := w.blobs.Path(w.docs[1])
	good := must[[]byte](t)(os.ReadFile(path)) //nolint:gosec // G304: our own file
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.write(path, append([]byte(" "), good...))
	r := w.open() // a reader that has verified it does not read it again
	w.refused(r, "refused")
	w.refused(r, "refused")
	if n := w.entries(record.KindCatalogRefused); n != 1 {
		t.Errorf("%d entries of one cause", n)
	}
	if e := must[*policy.Engine](t)(r.Engine(t.Context())); len(e.Principals()) != 0 {
		t.Errorf("%q have grants while the catalog is refused", e.Principals())
	}
	w.write(path, good)
	if n := w.number(r); n != 1 {
		t.Errorf("revision %d after the repair", n)
	}
}

// A service that forgot the highest revision would accept an older one.
func TestTheHighestRevisionFollowsFromTheLog(t *testing.T) {
	for name, change := range map[string]string{
		"forgotten":      "DELETE FROM catalog_seen",
		"another number": "UPDATE catalog_seen SET number = 1",
		"another digest": "UPDATE catalog_seen SET digest = 'sha256:0'",
	} {
		w := newWorld(t)
		w.sign(1)
		w.sign(2)
		w.current(2)
		w.open()
		if err := w.checkSeen(); err != nil {
			t.Fatalf("control: %v", err)
		}
		if err := w.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec(change)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := w.checkSeen(); api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A run keeps the names of the revision that it was submitted with.
//
// proves R-C4
func TestARunKeepsItsRevision(t *testing.T) {
	w := newWorld(t)
	w.sign(1)
	w.sign(2)
	w.current(2)
	r := w.open()
	for range 2 { // verified, then cached
		s := must[Snapshot](t)(r.At(t.Context(), w.docs[1]))
		if s.Number() != 1 || len(s.Revision.Names(api.KindRole)) != 1 || s.Engine == nil {
			t.Errorf("%d", s.Number())
		}
	}
	if s := must[Snapshot](t)(r.At(t.Context(), w.docs[2])); s.Number() != 2 {
		t.Errorf("%d", s.Number())
	}
	if _, err := r.At(t.Context(), api.DigestOf([]byte("no revision"))); api.CodeOf(err) != api.CodeIntegrity {
		t.Errorf("an unknown revision: %v", err)
	}
	list := must[[]api.CatalogRevision](t)(r.History(t.Context(), 0, 10))
	if len(list) != 2 || list[0].Number != 2 || list[1].Number != 1 {
		t.Errorf("history %+v", list)
	}
	before := must[Step](t)(r.Step(t.Context(), 2, func(Step, func(api.File, int64) ([]byte, error)) {}))
	if before.Before.Number() != 1 || before.Revision.Number() != 2 || before.Current.Number() != 2 {
		t.Errorf("step %+v", before)
	}
}
