package logproof

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// tree is a log in memory, by code that is not ours.
type tree struct{ stored []tlog.Hash }

func (tr *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		out[i] = tr.stored[at]
	}
	return out, nil
}

func leafAt(i uint64) []byte { return binary.BigEndian.AppendUint64([]byte("leaf "), i) }

func grow(t testing.TB, size int64) *tree {
	t.Helper()
	tr := &tree{}
	for i := range size {
		hashes, err := tlog.StoredHashes(i, leafAt(uint64(i)), tr)
		if err != nil {
			t.Fatal(err)
		}
		tr.stored = append(tr.stored, hashes...)
	}
	return tr
}

func (tr *tree) at(t testing.TB, size int64) Checkpoint {
	t.Helper()
	c := Checkpoint{Origin: origin, Size: uint64(size), Root: EmptyRoot()}
	if size > 0 {
		root, err := tlog.TreeHash(size, tr)
		if err != nil {
			t.Fatal(err)
		}
		c.Root = Hash(root)
	}
	return c
}

func hashes[T ~[32]byte](list []T) []Hash {
	out := make([]Hash, len(list))
	for i := range list {
		out[i] = Hash(list[i])
	}
	return out
}

const most = 700

// proves R-A1: a proof that others make is accepted by us and by the public
// verifier; what is changed in any place is not.
func TestAnInclusionProofHoldsAndAMutatedOneNever(t *testing.T) {
	tr := grow(t, most)
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(1, most).Draw(rt, "size")
		index := rapid.Int64Range(0, size-1).Draw(rt, "index")
		c := tr.at(t, size)
		p, err := tlog.ProveRecord(size, index, tr)
		if err != nil {
			rt.Fatal(err)
		}
		list, leaf, at := hashes(p), LeafHash(leafAt(uint64(index))), uint64(index)
		if err := VerifyInclusion(c, at, leaf, list); err != nil {
			rt.Fatalf("control: %v", err)
		}
		if err := proof.VerifyInclusion(rfc6962.DefaultHasher, at, c.Size, leaf[:], views(list), c.Root[:]); err != nil {
			rt.Fatalf("control, the public verifier: %v", err)
		}
		switch what := rapid.IntRange(0, 6).Draw(rt, "what"); {
		case what == 0:
			c.Root[rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1
		case what == 1:
			leaf[rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1
		case what == 2:
			other := rapid.Uint64Range(0, most*2).Draw(rt, "other")
			if other == at {
				return
			}
			at = other
		case what == 3:
			list = append(list, Hash{})
		case what == 4 && len(list) > 0:
			i := rapid.IntRange(0, len(list)-1).Draw(rt, "hash")
			list[i][rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		case what == 5 && len(list) > 0:
			list = list[:len(list)-1]
		case what == 6 && len(list) > 1:
			list[0], list[len(list)-1] = list[len(list)-1], list[0]
		default:
			return
		}
		if err := VerifyInclusion(c, at, leaf, list); err == nil {
			rt.Fatal("accepted")
		}
	})
}

// proves R-A1
func TestAConsistencyProofHoldsAndAMutatedOneNever(t *testing.T) {
	tr := grow(t, most)
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(1, most).Draw(rt, "size")
		before := rapid.Int64Range(1, size).Draw(rt, "before")
		from, to := tr.at(t, before), tr.at(t, size)
		p, err := tlog.ProveTree(size, before, tr)
		if err != nil {
			rt.Fatal(err)
		}
		list := hashes(p)
		if err := VerifyConsistency(from, to, list); err != nil {
			rt.Fatalf("control: %v", err)
		}
		switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
		case what == 0:
			from.Root[rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1
		case what == 1:
			to.Root[rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1
		case what == 2:
			list = append(list, Hash{})
		case what == 3 && len(list) > 0:
			i := rapid.IntRange(0, len(list)-1).Draw(rt, "hash")
			list[i][rapid.IntRange(0, 31).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		case what == 4 && len(list) > 0:
			list = list[1:]
		case what == 5 && from.Size != to.Size:
			from, to = to, from
		default:
			return
		}
		if err := VerifyConsistency(from, to, list); err == nil {
			rt.Fatal("accepted")
		}
	})
}

func TestEveryLogExtendsTheEmptyLog(t *testing.T) {
	tr := grow(t, 5)
	empty, five := tr.at(t, 0), tr.at(t, 5)
	if err := VerifyConsistency(empty, five, nil); err != nil {
		t.Error(err)
	}
	lie := empty
	lie.Root[0] ^= 1
	if err := VerifyConsistency(lie, five, nil); err == nil {
		t.Error("an empty log with another root")
	}
	if err := VerifyConsistency(lie, lie, nil); err == nil {
		t.Error("an empty log with another root, twice")
	}
	other := five
	other.Origin = "example.org/log"
	if err := VerifyConsistency(five, other, nil); err == nil {
		t.Error("another log")
	}
	if err := VerifyConsistency(five, five, nil); err != nil {
		t.Error(err)
	}
}

// A range has the root of the tree at every size.
func TestARangeHasTheRootsOfTheTree(t *testing.T) {
	tr, r := grow(t, most), NewRange()
	for i := range int64(most) {
		root, err := r.Root()
		if want := tr.at(t, i).Root; err != nil || root != want {
			t.Fatalf("size %d: %x, %v; want %x", i, root, err, want)
		}
		if err := r.Add(LeafHash(leafAt(uint64(i)))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProofEncodingRoundTrips(t *testing.T) {
	tr, k := grow(t, 20), newKey(t)
	hs, err := tlog.ProveRecord(20, 11, tr)
	if err != nil {
		t.Fatal(err)
	}
	for _, extra := range [][]byte{nil, []byte(`{"v":1}`), bytes.Repeat([]byte{0xff}, 40<<10)} {
		p := Proof{Index: 11, Hashes: hashes(hs), Signed: sign(t, tr.at(t, 20), k), Extra: extra}
		got, err := ParseProof(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := Open(got.Signed, origin, k.Public())
		if err != nil {
			t.Fatal(err)
		}
		if err := VerifyInclusion(c, got.Index, LeafHash(leafAt(11)), got.Hashes); err != nil || !bytes.Equal(got.Extra, extra) {
			t.Errorf("%v, extra %q", err, got.Extra)
		}
	}
	text := string(Proof{Index: 1, Hashes: []Hash{{}}, Signed: []byte("x\n")}.Encode())
	for _, bad := range []string{
		"", "x", strings.ReplaceAll(text, "\n", "\r\n"), strings.Replace(text, "index 1", "index 01", 1), strings.Replace(text, "index 1", "index -1", 1),
		strings.TrimSuffix(text, "\n"), strings.Replace(text, "=\n", "\n", 1), text + strings.Repeat("x", MaxProof),
		strings.Replace(text, "\nindex", "\nextra \nindex", 1) + "\r\n",
	} {
		if p, err := ParseProof([]byte(bad)); err == nil {
			t.Errorf("%.80q is read as %+v", bad, p)
		}
	}
	if _, err := ParseProof([]byte(text)); err != nil {
		t.Errorf("control: %v", err)
	}
}

func FuzzParseProof(f *testing.F) {
	f.Add(Proof{Index: 1, Hashes: []Hash{{}, {1}}, Signed: []byte("x\n"), Extra: []byte("e")}.Encode())
	f.Add([]byte("c2sp.org/tlog-proof@v1\nextra \nindex 0\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ParseProof(b); err == nil && !bytes.Equal(p.Encode(), b) {
			t.Errorf("%q is read as %+v", b, p)
		}
	})
}
