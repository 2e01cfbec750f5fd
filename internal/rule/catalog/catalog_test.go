package catalog

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// lyingStore returns content without verifying its digest. The catalog must not
// depend on the store for that.
type lyingStore struct {
	index []byte
	blobs map[api.Digest][]byte
}

func (s lyingStore) Index(context.Context) ([]byte, error) { return s.index, nil }

func (s lyingStore) Get(_ context.Context, d api.Digest, _ int64) ([]byte, error) {
	if b, ok := s.blobs[d]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (s lyingStore) Stat(_ context.Context, d api.Digest) (int64, error) {
	return int64(len(s.blobs[d])), nil
}

func (s lyingStore) List(context.Context, func(api.Digest) error) error { return nil }

func (s lyingStore) put(b []byte) []byte {
	s.blobs[api.DigestOf(b)] = b
	return b
}

// smallCatalog returns a catalog with one signed revision that has one role.
func smallCatalog(t testing.TB) (lyingStore, seal.TrustRoot) {
	t.Helper()
	must := func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	signer, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	s := lyingStore{blobs: map[api.Digest][]byte{}}
	role := s.put(must(canon.Marshal(api.Role{Name: "quality"})))
	set := NewSet()
	if err := set.Add("role/quality", role); err != nil {
		t.Fatal(err)
	}
	doc := s.put(must(canon.Marshal(api.Revision{
		V: 1, Number: 1, CreatedAt: time.Unix(0, 0).UTC(), Author: "ann",
		Artifacts: map[api.Ref]api.Entry{"role/quality": {Digest: api.DigestOf(role)}},
	})))
	manifest := s.put(must(Manifest(doc, set)))
	envelope := s.put(must(seal.Sign(t.Context(), seal.Revision, doc, signer)))
	signature := s.put(must(SignatureManifest(manifest, envelope)))
	s.put([]byte("{}"))
	s.index = must(canon.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{
		IndexEntry(manifest, "current"), IndexEntry(manifest, "r1"), SignatureEntry(signature, api.DigestOf(manifest)),
	}}))
	return s, seal.RootOf(seal.KeyOf(signer, "ann"))
}

func current(t testing.TB, s lyingStore, root seal.TrustRoot) (*Revision, error) {
	t.Helper()
	c, err := Open(s, root)
	if err != nil {
		t.Fatal(err)
	}
	return c.Current(t.Context())
}

// proves R-B5
func TestContentIsVerifiedWhateverTheStoreReturns(t *testing.T) {
	s, root := smallCatalog(t)
	if r, err := current(t, s, root); err != nil || r.Number() != 1 {
		t.Fatalf("positive control: %v", err)
	}
	for d, b := range s.blobs {
		if string(b) == "{}" {
			continue // the empty config of the signature: its content is fixed and never read
		}
		s.blobs[d] = append([]byte(" "), b...)
		if _, err := current(t, s, root); FaultOf(err) != FaultCorrupt {
			t.Errorf("%.60q: err = %v", b, err)
		}
		delete(s.blobs, d)
		if _, err := current(t, s, root); FaultOf(err) != FaultCorrupt || api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%.60q missing: err = %v", b, err)
		}
		s.blobs[d] = b
	}
}

func TestOpenRequiresAStoreAndATrustRoot(t *testing.T) {
	s, root := smallCatalog(t)
	if _, err := Open(nil, root); err == nil {
		t.Error("accepted without a store")
	}
	if _, err := Open(s, seal.TrustRoot{}); FaultOf(err) != FaultMalformed {
		t.Errorf("without a trust root: err = %v", err)
	}
}

func TestUnresolvedAndDuplicateReferencesAreProblems(t *testing.T) {
	set := NewSet()
	doc, err := canon.Marshal(api.Subagent{Name: "x", Agent: "command", Role: "none", Capabilities: []api.Name{"a", "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Add("subagent/x", doc); err != nil {
		t.Fatal(err)
	}
	if got := set.Problems(); len(got) != 4 { // twice a, which is missing and repeated; the role
		t.Fatalf("problems %v", got)
	}
	if err := set.Add("subagent/x", doc); err == nil {
		t.Error("a duplicate ref was accepted")
	}
	if err := set.Add("subagent/y", doc); err == nil {
		t.Error("a name other than the document's was accepted")
	}
	if err := set.Add("pirate/x", doc); err == nil {
		t.Error("an unknown kind was accepted")
	}
	other := strings.Replace(string(doc), `"agent"`, `"Agent"`, 1)
	if err := NewSet().Add("subagent/x", []byte(other)); err == nil {
		t.Error("a member in another case was accepted")
	}
}

// proves R-C1
func TestUnsafeBundlePathsAreRefused(t *testing.T) {
	for _, p := range []string{"a", "a/b.txt", ".claude/skills/x", "ünïcode", "..a", "a..b"} {
		if err := CheckPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{
		"", ".", "..", "/a", "../a", "a/../b", "a/..", "a//b", "a/", "./a", "a\\b", "a\x00b", "a\nb", "\xff", "a\u202eb",
		".git", ".git/config", "x/.GIT/config", ".bailiwick/question.json", strings.Repeat("a/", 40) + "a", strings.Repeat("a", 2000),
	} {
		if err := CheckPath(p); err == nil {
			t.Errorf("%q was accepted", p)
		}
	}
}

func TestBundlesAreValidatedWhenRead(t *testing.T) {
	d := api.DigestOf(nil)
	good := api.Capability{Name: "x", Setup: "b", Files: []api.File{{Path: "a", Mode: 0o644, Digest: d}, {Path: "b", Mode: 0o755, Digest: d}}}
	if err := checkBundle(good); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for name, spoil := range map[string]func(*api.Capability){
		"setup that is not there": func(c *api.Capability) { c.Setup = "c" },
		"unsorted":                func(c *api.Capability) { c.Files[0].Path = "c" },
		"twice":                   func(c *api.Capability) { c.Files[0].Path = "b" },
		"setuid":                  func(c *api.Capability) { c.Files[0].Mode = 0o4755 },
		"negative size":           func(c *api.Capability) { c.Files[0].Size = -1 },
		"too large":               func(c *api.Capability) { c.Files[0].Size, c.Files[1].Size = MaxBundle, 1 },
		"escaping":                func(c *api.Capability) { c.Files[0].Path = "../a" },
		"file and directory":      func(c *api.Capability) { c.Files[1].Path, c.Setup = "a/b", "" },
	} {
		c := good
		c.Files = append([]api.File(nil), good.Files...)
		spoil(&c)
		if err := checkBundle(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestRevisionDocumentsAreReadStrictly(t *testing.T) {
	good := `{"artifacts":{},"author":"a","createdAt":"2026-01-02T03:04:05Z","number":1,"v":1}`
	if _, err := decodeRevision([]byte(good)); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for name, change := range map[string][2]string{
		"format 2":         {`"v":1`, `"v":2`},
		"number 0":         {`"number":1`, `"number":0`},
		"no previous":      {`"number":1`, `"number":2`},
		"null artifacts":   {`"artifacts":{}`, `"artifacts":null`},
		"other case":       {`"author"`, `"Author"`},
		"unknown member":   {`"v":1`, `"v":1,"x":1`},
		"white space":      {`,"v"`, `, "v"`},
		"bad ref":          {`{}`, `{"role":{"digest":"` + string(api.DigestOf(nil)) + `"}}`},
		"no digest":        {`{}`, `{"role/x":{"digest":""}}`},
		"time in UTC only": {`05Z`, `05.000Z`},
	} {
		if _, err := decodeRevision([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAnEmptyStoreIsReportedAsEmpty(t *testing.T) {
	s, root := smallCatalog(t)
	s.index = []byte(`{"schemaVersion":2,"manifests":[]}`)
	_, err := current(t, s, root)
	if FaultOf(err) != FaultEmpty || api.CodeOf(err) != api.CodeNotFound {
		t.Fatalf("err = %v", err)
	}
	if FaultOf(errors.New("other")) != "" {
		t.Fatal("another error has a fault")
	}
}

// Only the signed revision resolves, whatever the index.
func FuzzIndex(f *testing.F) {
	s, root := smallCatalog(f)
	want, err := current(f, s, root)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.index)
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:","size":0,"mediaType":""}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := current(t, lyingStore{b, s.blobs}, root)
		if err == nil && r.Mark() != want.Mark() {
			t.Fatalf("resolved %+v", r.Mark())
		}
	})
}

// An accepted document is in canonical form.
func FuzzArtifact(f *testing.F) {
	f.Add("role/quality", []byte(`{"name":"quality"}`))
	f.Add("capability/x", []byte(`{"files":[],"name":"x"}`))
	f.Fuzz(func(t *testing.T, ref string, doc []byte) {
		set := NewSet()
		if set.Add(api.Ref(ref), doc) != nil {
			return
		}
		c, err := canon.Canonicalize(doc)
		if err != nil || string(c) != string(doc) || string(set.Document(api.Ref(ref))) != string(doc) {
			t.Fatalf("accepted %q", doc)
		}
	})
}
