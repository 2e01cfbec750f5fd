package catalog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// history is a catalog whose revisions each add a role.
type history struct {
	t       *testing.T
	signer  seal.Signer
	store   lyingStore
	entries []any
}

// add puts a revision into the store; tags say what the index calls it. It returns the
// digest of its document.
func (h *history) add(number uint64, previous api.Digest, author string, signed bool, tags ...string) api.Digest {
	h.t.Helper()
	must := func(b []byte, err error) []byte {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
		return b
	}
	set, doc := NewSet(), api.Revision{V: 1, Number: number, Previous: previous, CreatedAt: time.Unix(int64(number), 0).UTC(), Author: author, Artifacts: map[api.Ref]api.Entry{}}
	for i := range number {
		name := api.Name(fmt.Sprintf("r%d", i+1))
		b := h.store.put(must(canon.Marshal(api.Role{Name: name})))
		if err := set.Add(api.RefTo(api.KindRole, name), b); err != nil {
			h.t.Fatal(err)
		}
		doc.Artifacts[api.RefTo(api.KindRole, name)] = api.Entry{Digest: api.DigestOf(b)}
	}
	b := h.store.put(must(canon.Marshal(doc)))
	manifest := h.store.put(must(Manifest(b, set)))
	for _, tag := range tags {
		h.entries = append(h.entries, IndexEntry(manifest, tag))
	}
	if signed {
		envelope := h.store.put(must(seal.Sign(h.t.Context(), seal.Revision, b, h.signer)))
		h.entries = append(h.entries, SignatureEntry(h.store.put(must(SignatureManifest(manifest, envelope))), api.DigestOf(manifest)))
	}
	return api.DigestOf(b)
}

// open returns the catalog and its head.
func (h *history) open() (*Catalog, *Revision) {
	h.t.Helper()
	index, err := canon.Marshal(map[string]any{"schemaVersion": 2, "manifests": h.entries})
	if err != nil {
		h.t.Fatal(err)
	}
	h.store.index = index
	c, err := Open(h.store, seal.RootOf(seal.KeyOf(h.signer, "ann")))
	if err != nil {
		h.t.Fatal(err)
	}
	head, err := c.Current(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return c, head
}

func newHistory(t *testing.T) *history {
	t.Helper()
	signer, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	h := &history{t: t, signer: signer, store: lyingStore{blobs: map[api.Digest][]byte{}}}
	h.store.put([]byte("{}"))
	return h
}

// A revision is shown with the one before it only if the head's history has both and
// both are signed, whatever the index says.
//
// proves R-B5
func TestThePastIsThatOfTheHead(t *testing.T) {
	h := newHistory(t)
	first := h.add(1, "", "ann", true, "r1")
	second := h.add(2, first, "ann", true, "r2")
	h.add(3, second, "ann", true, "r3", "current")
	c, head := h.open()
	for number, roles := range map[uint64][2]int{1: {0, 1}, 2: {1, 2}, 3: {2, 3}} {
		rev, before, err := c.WithPrevious(t.Context(), head, number)
		if err != nil || rev.Number() != number || len(rev.Set().Roles) != roles[1] || (before == nil) != (number == 1) || before != nil && len(before.Set().Roles) != roles[0] {
			t.Errorf("revision %d: %v, %v, %v", number, rev, before, err)
		}
	}
	for _, number := range []uint64{0, 4} {
		if _, _, err := c.WithPrevious(t.Context(), head, number); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("revision %d: %v", number, err)
		}
	}
	for before, want := range map[uint64][]uint64{0: {3, 2}, 3: {2, 1}, 2: {1}, 1: {}, 9: {3, 2}} {
		list, err := c.HistoryOf(t.Context(), head, before, 2)
		numbers := []uint64{}
		for _, r := range list {
			numbers = append(numbers, r.Number)
		}
		if err != nil || !slices.Equal(numbers, want) {
			t.Errorf("before %d: %v, %v, want %v", before, numbers, err, want)
		}
	}

	h = newHistory(t)
	first = h.add(1, "", "ann", true)
	h.add(1, "", "mallory", true, "r1") // signed, but not in the history
	second = h.add(2, first, "ann", true, "r2")
	h.add(3, second, "ann", true, "r3", "current")
	c, head = h.open()
	if _, _, err := c.WithPrevious(t.Context(), head, 2); FaultOf(err) != FaultMalformed {
		t.Errorf("another revision 1: %v", err)
	}
	if _, _, err := c.WithPrevious(t.Context(), head, 3); err != nil {
		t.Errorf("positive control: %v", err)
	}

	h = newHistory(t)
	first = h.add(1, "", "ann", false, "r1")
	second = h.add(2, first, "ann", true, "r2")
	h.add(3, second, "ann", true, "r3", "current")
	c, head = h.open()
	for _, number := range []uint64{1, 2} {
		if _, _, err := c.WithPrevious(t.Context(), head, number); FaultOf(err) != FaultUnsigned {
			t.Errorf("revision 1 without a signature, as part of %d: %v", number, err)
		}
	}
}
