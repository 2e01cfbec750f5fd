package catalog

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Walking the history back gives the same origins as replaying it forward, also when
// it stops at known origins.
//
// proves R-B6
func TestOriginsMatchAForwardReplay(t *testing.T) {
	signer, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		store := lyingStore{blobs: map[api.Digest][]byte{}}
		c, err := Open(store, seal.RootOf(seal.KeyOf(signer, "ann")))
		if err != nil {
			t.Fatal(err)
		}
		want := map[api.Ref]time.Time{}
		state := map[api.Ref]api.Entry{}
		var known Origins
		var last api.Digest
		for n := uint64(1); n <= rapid.Uint64Range(1, 8).Draw(t, "revisions"); n++ {
			at := time.Unix(int64(n)*3600, 0).UTC()
			for i := range 3 {
				ref := api.Ref(fmt.Sprintf("role/r%d", i))
				switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
				case what == 0:
					delete(state, ref)
					delete(want, ref)
				case what < 3:
					d := api.DigestOf([]byte{byte(what)})
					if state[ref].Digest != d {
						want[ref] = at
					}
					state[ref] = api.Entry{Digest: d}
				}
			}
			doc := api.Revision{V: 1, Number: n, Previous: last, CreatedAt: at, Author: "ann", Artifacts: maps.Clone(state)}
			b, err := canon.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			store.put(b)
			last = api.DigestOf(b)
			rev := &Revision{doc: doc, digest: last}
			got, err := c.Origins(t.Context(), rev, known)
			if err != nil {
				t.Fatal(err)
			}
			for ref := range doc.Artifacts {
				if !got.Time(ref).Equal(want[ref]) {
					t.Fatalf("revision %d: %s published at %s, want %s", n, ref, got.Time(ref), want[ref])
				}
			}
			if rapid.Bool().Draw(t, "remember") {
				known = got
			}
		}
	})
}
