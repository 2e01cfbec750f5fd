package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// attacker can write every file of the store and knows the format.
type attacker struct {
	*fixture
	store *blob.Store
}

func newAttacker(f *fixture) *attacker {
	f.t.Helper()
	s, err := blob.Open(blob.Config{Dir: f.cfg.Dir})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = s.Close() })
	return &attacker{f, s}
}

func (a *attacker) put(b []byte) []byte {
	a.t.Helper()
	if _, err := a.store.Put(a.t.Context(), b); err != nil {
		a.t.Fatal(err)
	}
	return b
}

func (a *attacker) index() ocispec.Index {
	a.t.Helper()
	b, err := a.store.Index(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	var idx ocispec.Index
	if err := json.Unmarshal(b, &idx); err != nil {
		a.t.Fatal(err)
	}
	return idx
}

func (a *attacker) setIndex(idx ocispec.Index) {
	a.t.Helper()
	b, err := canon.Marshal(idx)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.cfg.Dir, "index.json"), b, 0o644); err != nil {
		a.t.Fatal(err)
	}
}

// forge publishes a revision by hand with the given envelopes.
func (a *attacker) forge(doc api.Revision, set *catalog.Set, sign func(doc []byte) [][]byte) {
	a.t.Helper()
	b, err := canon.Marshal(doc)
	if err != nil {
		a.t.Fatal(err)
	}
	manifest, err := catalog.Manifest(a.put(b), set)
	if err != nil {
		a.t.Fatal(err)
	}
	idx := a.index()
	idx.Manifests = slices.DeleteFunc(idx.Manifests, func(d ocispec.Descriptor) bool {
		tag := d.Annotations[ocispec.AnnotationRefName]
		return tag == catalog.TagCurrent || tag == catalog.TagOf(doc.Number)
	})
	for _, tag := range []string{catalog.TagCurrent, catalog.TagOf(doc.Number)} {
		idx.Manifests = append(idx.Manifests, catalog.IndexEntry(a.put(manifest), tag))
	}
	for _, e := range sign(b) {
		m, err := catalog.SignatureManifest(manifest, a.put(e))
		if err != nil {
			a.t.Fatal(err)
		}
		idx.Manifests = append(idx.Manifests, catalog.SignatureEntry(a.put(m), api.DigestOf(manifest)))
	}
	a.setIndex(idx)
}

func by(t *testing.T, pt seal.PayloadType, signers ...Signer) func([]byte) [][]byte {
	return func(doc []byte) [][]byte {
		var all [][]byte
		for _, s := range signers {
			b, err := seal.Sign(t.Context(), pt, doc, s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		return all
	}
}

// takeover both modes, one operator key: no define
// takeover both modes, one deploy key: no replay
//
// proves R-B5
func TestForgedRevisionsAreRefusedWithTheirFault(t *testing.T) {
	stranger, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		sign func(f *fixture) func([]byte) [][]byte
		want catalog.Fault // "" is the positive control
	}{
		{"both keys", func(f *fixture) func([]byte) [][]byte { return by(f.t, seal.Revision, f.signers...) }, ""},
		{"unsigned", func(f *fixture) func([]byte) [][]byte { return by(f.t, seal.Revision) }, catalog.FaultUnsigned},
		{"foreign key", func(f *fixture) func([]byte) [][]byte { return by(f.t, seal.Revision, stranger) }, catalog.FaultForeign},
		{"one of two", func(f *fixture) func([]byte) [][]byte { return by(f.t, seal.Revision, f.signers[0]) }, catalog.FaultThreshold},
		{"one key twice", func(f *fixture) func([]byte) [][]byte {
			return by(f.t, seal.Revision, f.signers[0], f.signers[0])
		}, catalog.FaultThreshold},
		{"one known, one foreign", func(f *fixture) func([]byte) [][]byte {
			return by(f.t, seal.Revision, f.signers[0], stranger)
		}, catalog.FaultThreshold},
		{"signatures over another payload type", func(f *fixture) func([]byte) [][]byte {
			return by(f.t, seal.Manifest, f.signers...)
		}, catalog.FaultMalformed},
		{"payload type swapped afterwards", func(f *fixture) func([]byte) [][]byte {
			return func(doc []byte) [][]byte {
				all := by(f.t, seal.Manifest, f.signers...)(doc)
				for i := range all {
					all[i] = bytes.Replace(all[i], []byte(seal.Manifest), []byte(seal.Revision), 1)
				}
				return all
			}
		}, catalog.FaultSignature},
		{"signatures of another document", func(f *fixture) func([]byte) [][]byte {
			return func([]byte) [][]byte { return by(f.t, seal.Revision, f.signers...)([]byte("{}")) }
		}, catalog.FaultMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, 2, 2)
			f.apply(f.signers...)
			r, err := f.current()
			if err != nil {
				t.Fatal(err)
			}
			doc := r.Document()
			doc.Number, doc.Previous, doc.Reason = 2, r.Digest(), "forged"
			newAttacker(f).forge(doc, r.Set(), tt.sign(f))
			_, err = f.current()
			if catalog.FaultOf(err) != tt.want || (tt.want == "") != (err == nil) {
				t.Fatalf("err = %v (%s), want %q", err, catalog.FaultOf(err), tt.want)
			}
			if _, verr := f.open().Reader().Verify(t.Context()); (verr == nil) != (tt.want == "") {
				t.Fatalf("verify: %v", verr)
			}
		})
	}
}

// proves R-B5
func TestRollbacksAreRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	old := snapshot(t, f.cfg.Dir)
	first, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	f.edit("tier: reversible", "tier: stateful")
	f.apply(f.signers[0])
	second, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	r := f.open().Reader()
	for _, seen := range []Mark{{}, first.Mark(), second.Mark()} { // positive controls
		if err := r.CheckHighWater(t.Context(), seen, second); err != nil {
			t.Fatalf("seen %+v: %v", seen, err)
		}
	}
	bad := map[string]Mark{
		"a later one":             {Number: 3, Digest: second.Digest()},
		"the same number, other":  {Number: 2, Digest: first.Digest()},
		"a history without it":    {Number: 1, Digest: second.Digest()},
		"number 0 with a digest":  {Number: 0, Digest: first.Digest()},
		"a number with no digest": {Number: 2},
	}
	for name, seen := range bad {
		if err := r.CheckHighWater(t.Context(), seen, second); catalog.FaultOf(err) != catalog.FaultRollback {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	// Replay of yesterday's store, in which every signature is valid.
	for path, b := range old {
		if err := os.WriteFile(path, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	replayed, err := f.current()
	if err != nil {
		t.Fatalf("yesterday's store: %v", err)
	}
	if err := r.CheckHighWater(t.Context(), second.Mark(), replayed); catalog.FaultOf(err) != catalog.FaultRollback {
		t.Fatalf("replay: err = %v", err)
	}
	if err := r.CheckHighWater(t.Context(), second.Mark(), nil); catalog.FaultOf(err) != catalog.FaultRollback {
		t.Fatalf("an emptied store: err = %v", err)
	}
}

// proves R-B5
func TestAManipulatedIndexResolvesNothing(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	f.edit("tier: reversible", "tier: stateful")
	f.apply(f.signers[0])
	a := newAttacker(f)
	good := a.index()
	tagged := func(tag string) *ocispec.Descriptor {
		idx := a.index()
		for i := range idx.Manifests {
			if idx.Manifests[i].Annotations[ocispec.AnnotationRefName] == tag {
				return &idx.Manifests[i]
			}
		}
		t.Fatalf("no tag %s", tag)
		return nil
	}
	retag := func(d *ocispec.Descriptor, tag string) func(*ocispec.Index) {
		return func(idx *ocispec.Index) {
			for i := range idx.Manifests {
				if idx.Manifests[i].Annotations[ocispec.AnnotationRefName] == tag {
					idx.Manifests[i].Digest, idx.Manifests[i].Size = d.Digest, d.Size
				}
			}
		}
	}
	drop := func(which func(ocispec.Descriptor) bool) func(*ocispec.Index) {
		return func(idx *ocispec.Index) { idx.Manifests = slices.DeleteFunc(idx.Manifests, which) }
	}
	r1, r2 := tagged("r1"), tagged("r2")
	cases := map[string]func(*ocispec.Index){
		"current is revision 1":         retag(r1, "current"),
		"r2 is revision 1":              retag(r1, "r2"),
		"current and r2 are revision 1": func(idx *ocispec.Index) { retag(r1, "current")(idx); retag(r1, "r2")(idx) },
		"current is the signature":      retag(&good.Manifests[1], "current"),
		"current is gone":               drop(func(d ocispec.Descriptor) bool { return d.Annotations[ocispec.AnnotationRefName] == "current" }),
		"signatures are gone":           drop(func(d ocispec.Descriptor) bool { return d.ArtifactType == catalog.SignatureType }),
		"current has another size": func(idx *ocispec.Index) {
			retag(&ocispec.Descriptor{Digest: r2.Digest, Size: r2.Size + 1}, "current")(idx)
		},
		"duplicate tag current":     func(idx *ocispec.Index) { idx.Manifests = append(idx.Manifests, *tagged("current")) },
		"schema of another version": func(idx *ocispec.Index) { idx.SchemaVersion = 3 },
		"an invalid digest":         retag(&ocispec.Descriptor{Digest: "sha256:../../../etc/passwd", Size: 1}, "current"),
	}
	for name, spoil := range cases {
		idx := a.index()
		spoil(&idx)
		a.setIndex(idx)
		if r, err := f.current(); err == nil {
			t.Errorf("%s: resolved revision %d", name, r.Number())
		}
		a.setIndex(good)
	}
	if _, err := f.current(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	if _, err := f.open().Reader().Verify(t.Context()); err != nil {
		t.Fatalf("positive control: %v", err)
	}
}

// proves R-B5
func TestMixedRevisionsAndSwappedArtifactsAreRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	first, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	f.edit("tier: reversible", "tier: stateful")
	f.apply(f.signers[0])
	second, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	a := newAttacker(f)
	// The new document with the manifest of the old artifacts: each blob is signed,
	// the combination is not.
	doc, err := canon.Marshal(second.Document())
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := catalog.Manifest(doc, first.Set())
	if err != nil {
		t.Fatal(err)
	}
	envelope := by(t, seal.Revision, f.signers...)(doc)[0]
	sig, err := catalog.SignatureManifest(a.put(mixed), a.put(envelope))
	if err != nil {
		t.Fatal(err)
	}
	idx := a.index()
	idx.Manifests = []ocispec.Descriptor{
		catalog.IndexEntry(mixed, "current"), catalog.IndexEntry(mixed, "r2"), catalog.SignatureEntry(a.put(sig), api.DigestOf(mixed)),
	}
	a.setIndex(idx)
	if _, err := f.current(); catalog.FaultOf(err) != catalog.FaultMalformed {
		t.Fatalf("mixed: err = %v", err)
	}

	// The file of one signed artifact under the name of another.
	g := newFixture(t, 1, 1)
	g.apply(g.signers[0])
	r, err := g.current()
	if err != nil {
		t.Fatal(err)
	}
	d := r.Document()
	roleFile := filepath.Join(g.cfg.Dir, "blobs/sha256", d.Artifacts["role/quality"].Digest.Hex())
	b, err := os.ReadFile(filepath.Join(g.cfg.Dir, "blobs/sha256", d.Artifacts["role/transform"].Digest.Hex()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(roleFile, b, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = g.current()
	if catalog.FaultOf(err) != catalog.FaultCorrupt || !strings.Contains(err.Error(), roleFile) {
		t.Fatalf("swapped: err = %v", err)
	}

	// A signed document that gives one artifact's digest to another name.
	h := newFixture(t, 1, 1)
	h.apply(h.signers[0])
	r, err = h.current()
	if err != nil {
		t.Fatal(err)
	}
	d = r.Document()
	d.Number, d.Previous = 2, r.Digest()
	d.Artifacts["role/quality"] = d.Artifacts["role/transform"]
	newAttacker(h).forge(d, r.Set(), by(t, seal.Revision, h.signers...))
	if _, err := h.current(); catalog.FaultOf(err) != catalog.FaultMalformed {
		t.Fatalf("misnamed: err = %v", err)
	}
}

// every thins out the bits of the store that are flipped; make soak flips them all.
var every = flag.Int("every", 5, "of the bits of the store, each so many is flipped")

// Flips a bit in every third byte of the index, every byte of the smallest files and
// every 61st byte of the others, of a catalog with two revisions, a threshold and a
// proposal. Verify detects each, and none changes what resolves.
//
// proves R-B5
func TestEveryFlippedBitInTheStoreIsDetected(t *testing.T) {
	f := newFixture(t, 2, 2)
	f.apply(f.signers...)
	f.edit("tier: reversible", "tier: stateful")
	f.apply(f.signers...)
	f.edit("tier: stateful", "tier: observe")
	f.edit("    verify: {command: [go, test, ./...], timeout: 10m}\n", "")
	f.apply(f.signers[0])
	want, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	files := snapshot(t, f.cfg.Dir)
	silent, flips := 0, 0
	for path, b := range files {
		step := 1
		switch {
		case strings.HasSuffix(path, "index.json"):
			step = 3
		case len(b) > 50:
			step = 61 // the digest covers all bytes
		}
		for i := 0; i < len(b); i += step * *every {
			flips++
			flipped := []byte(b)
			flipped[i] ^= 1 << (i % 8)
			if err := os.WriteFile(path, flipped, 0o644); err != nil {
				t.Fatal(err)
			}
			if found := f.flipFound(want); !found {
				silent++
				t.Logf("not found, and resolves the same: %s byte %d: %q → %q", filepath.Base(path), i, b[max(0, i-20):i+1], flipped[max(0, i-20):i+1])
			}
		}
		if err := os.WriteFile(path, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d flips", flips)
	if silent > 0 {
		t.Errorf("%d of %d flips were not detected", silent, flips)
	}
	if f.flipFound(want) {
		t.Fatal("positive control: the whole catalog does not verify")
	}
}

// flipFound reports whether verify refuses the store. Otherwise the store must
// resolve to want.
func (f *fixture) flipFound(want *Revision) bool {
	f.t.Helper()
	c, err := Open(f.cfg)
	if err != nil {
		return true
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Reader().Verify(f.t.Context()); err != nil {
		return true
	}
	got, err := c.Reader().Current(f.t.Context())
	if err != nil || got.Mark() != want.Mark() {
		f.t.Errorf("verify passes and the catalog resolves to %v, err %v", got, err)
	}
	return false
}

// TestMain lets the test binary run an apply that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DEPLOY_TEST_APPLY"); dir != "" {
		os.Exit(applyAndHang(dir))
	}
	os.Exit(m.Run())
}

// applyAndHang applies until just before the index is replaced, reports it, and
// waits to be killed.
func applyAndHang(dir string) int {
	key, err := seal.OpenSigner(background(), filepath.Join(dir, "key"), nil)
	if err != nil {
		return 1
	}
	c, err := Open(Config{
		Dir: filepath.Join(dir, "catalog"), TrustRoot: seal.RootOf(seal.KeyOf(key, "")), Now: time.Now,
		beforePublish: func() {
			_, _ = os.Stdout.WriteString("written\n")
			select {}
		},
	})
	if err != nil {
		return 1
	}
	m, err := Load(background(), filepath.Join(dir, "manifest", "bailiwick.yaml"))
	if err != nil {
		return 1
	}
	p, err := c.Plan(background(), m, Options{})
	if err != nil {
		return 1
	}
	_, err = c.Apply(background(), p, Approval{Author: "x", Signers: []Signer{key}})
	if err != nil {
		return 1
	}
	return 0
}

func TestAKilledApplyLeavesTheOldRevisionAndNoLock(t *testing.T) {
	f := newFixture(t, 1, 1)
	dir := t.TempDir()
	key, err := seal.CreateKey(filepath.Join(dir, "key"), seal.NewKey{Unencrypted: true})
	if err != nil {
		t.Fatal(err)
	}
	f.signers = []Signer{key}
	f.cfg.Dir, f.cfg.TrustRoot = filepath.Join(dir, "catalog"), seal.RootOf(seal.KeyOf(key, ""))
	c, err := Create(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := os.Rename(f.dir, filepath.Join(dir, "manifest")); err != nil {
		t.Fatal(err)
	}
	f.dir = filepath.Join(dir, "manifest")
	repository(t, filepath.Join(dir, "service"))
	first := f.apply(key)
	f.edit("tier: reversible", "tier: stateful")
	f.cfg.lockWait = time.Millisecond

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "DEPLOY_TEST_APPLY="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("written\n"))
	if _, err := out.Read(line); err != nil || string(line) != "written\n" {
		t.Fatalf("child wrote %q, err %v", line, err)
	}
	if _, err := f.open().Apply(t.Context(), f.plan(Options{}), Approval{Author: "b", Signers: f.signers}); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("beside a running writer: err = %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("child: %v", err)
	}
	r, err := f.current()
	if err != nil || r.Digest() != first.Digest {
		t.Fatalf("after the kill: %v, err %v", r, err)
	}
	if _, err := f.open().Reader().Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := f.apply(key); done.Number != 2 || done.Proposal {
		t.Fatalf("after the kill: %+v", done)
	}
}

func background() context.Context { return context.Background() }
