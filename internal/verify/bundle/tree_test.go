package bundle

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// logOf returns n leaf hashes.
func logOf(n int) []logproof.Hash {
	leaves := make([]logproof.Hash, n)
	for i := range leaves {
		leaves[i] = logproof.LeafHash([]byte(fmt.Sprint(i)))
	}
	return leaves
}

func rootOf(t interface{ Fatal(...any) }, leaves []logproof.Hash) logproof.Hash {
	r := logproof.NewRange()
	for _, h := range leaves {
		if err := r.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	h, err := r.Root()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pathTo returns the inclusion proof of an entry, by the definition of RFC 6962.
func pathTo(t interface{ Fatal(...any) }, leaves []logproof.Hash, index uint64) []logproof.Hash {
	if len(leaves) == 1 {
		return nil
	}
	k := split(uint64(len(leaves)))
	if index < k {
		return append(pathTo(t, leaves[:k], index), rootOf(t, leaves[k:]))
	}
	return append(pathTo(t, leaves[k:], index-k), rootOf(t, leaves[:k]))
}

// One proof proves entries and the roots of earlier sizes. No proof with a changed,
// missing or further hash, or for another size, proves the same.
//
// proves R-A1
func TestOneProofProvesEntriesAndEarlierSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "size")
		leaves := logOf(n)
		entries := slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.Uint64Range(0, uint64(n-1)), 1, -1, rapid.ID).Draw(t, "entries")))
		sizes := []uint64{}
		if n > 1 {
			sizes = slices.Sorted(slices.Values(rapid.SliceOfDistinct(rapid.Uint64Range(1, uint64(n-1)), rapid.ID).Draw(t, "sizes")))
		}
		proof, err := Prove(entries, sizes, uint64(n), func(i uint64) ([]logproof.Hash, error) { return pathTo(t, leaves, i), nil })
		if err != nil {
			t.Fatal(err)
		}
		var own []logproof.Hash
		for _, e := range entries {
			own = append(own, leaves[e])
		}
		root, earlier, err := Roots(entries, own, sizes, uint64(n), proof)
		if err != nil || root != rootOf(t, leaves) {
			t.Fatalf("%v, root %x", err, root)
		}
		for i, size := range sizes {
			if earlier[i] != rootOf(t, leaves[:size]) {
				t.Errorf("wrong root at size %d of %d, entries %d", size, n, entries)
			}
		}
		same := func(proof []logproof.Hash, sizes []uint64) bool {
			got, _, err := Roots(entries, own, sizes, uint64(n), proof)
			return err == nil && got == root
		}
		if len(proof) > 0 {
			i := rapid.IntRange(0, len(proof)-1).Draw(t, "changed")
			bad := slices.Clone(proof)
			bad[i][0] ^= 1
			if same(bad, sizes) || same(slices.Delete(slices.Clone(proof), i, i+1), sizes) {
				t.Error("a changed or missing hash proves the same")
			}
		}
		if same(append(slices.Clone(proof), logproof.Hash{}), sizes) {
			t.Error("a further hash proves the same")
		}
		for _, bad := range []uint64{0, uint64(n)} {
			if same(proof, []uint64{bad}) {
				t.Errorf("size %d was accepted", bad)
			}
		}
	})
}

// A bundle proves every size that an auditor of its subject may have a copy of, and
// never more than the limit.
func TestSelectKeepsTheSizesAroundTheEnd(t *testing.T) {
	for _, x := range []struct {
		sizes       []uint64
		first, last uint64
		want        string
	}{
		{nil, 3, 5, "[]"},
		{[]uint64{9, 2, 3, 9, 5}, 3, 5, "[3 5 9]"},
		{[]uint64{2, 3}, 7, 9, "[3]"},
		{[]uint64{8, 9}, 1, 2, "[8 9]"},
	} {
		if got := Select(x.sizes, x.first, x.last); fmt.Sprint(got) != x.want {
			t.Errorf("%d around %d to %d: %d, want %s", x.sizes, x.first, x.last, got, x.want)
		}
	}
	var many []uint64
	for i := range uint64(5000) {
		many = append(many, i+1)
	}
	for _, x := range []struct{ first, last uint64 }{{10, 20}, {10, 2500}, {10, 4990}, {3999, 4100}, {3999, 4999}, {4500, 4999}} {
		got := Select(many, x.first, x.last)
		if len(got) > MaxSizes || !ascending(got) {
			t.Errorf("%+v: %d sizes", x, len(got))
		}
		for _, size := range []uint64{x.first, x.last, x.last + 1, min(x.last+300, 5000), 5000} {
			if !slices.Contains(got, size) {
				t.Errorf("%+v: size %d is missing", x, size)
			}
		}
	}
}
