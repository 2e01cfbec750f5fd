package evidence

import (
	"bytes"
	"encoding/hex"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// every thins out tests that try each member or each bit; make soak tries them all.
var every = flag.Int("every", 4*shrink, "of the members and bits that are all changed in turn, each so many is tried") //nolint:gochecknoglobals // a flag

var mutations = flag.Int("mutations", 1000/shrink, "how many changed bundles are verified") //nolint:gochecknoglobals // a flag

// sample is an honest bundle of a run with everything that a bundle can have, and
// the auditor's trust file.
type sample struct {
	file    []byte
	trust   Trust
	options Options
	report  report.Report
}

func newSample(t testing.TB) sample {
	t.Helper()
	s := newStory(t)
	s.whole("d-00")
	tell(s)
	s.whole("d-99")
	b := s.bundle(bundle.Case{Run: "r1", Sizes: []uint64{uint64(len(s.leaves) - 3)}}) //nolint:gosec // G115: small
	held := s.anchored(b, len(s.leaves)-1)                                            // by which the claim is earned
	out := sample{file: file(t, b), trust: s.trust(), options: Options{Copies: []Copy{{File: "held", Checkpoints: [][]byte{held}}}}}
	out.report = Verify(reread(t, b), out.trust, out.options)
	if !out.report.Good(report.ClaimTamperDetecting) {
		t.Fatal(out.report.Text())
	}
	return out
}

// accepted reports whether a changed bundle verifies.
func (s *sample) accepted(in []byte) bool {
	if bytes.Equal(in, s.file) {
		return false // nothing was changed
	}
	b, err := bundle.Read(bytes.NewReader(in), bundle.Limits{Memory: 64 << 20, Content: 1 << 20, Entries: 10_000, Members: 10_000})
	if err != nil {
		return false
	}
	r := Verify(b, s.trust, s.options)
	return r.Good(s.report.Claim)
}

// proves R-A7 (no changed bundle verifies, none panics or hangs)
func TestNoChangedBundleVerifies(t *testing.T) {
	s := newSample(t)
	r := rand.New(rand.NewPCG(1, uint64(*mutations))) //nolint:gosec // G404: reproducible on purpose
	for i := range *mutations {
		var in []byte
		what := "bytes"
		if i%2 == 0 {
			in = scramble(r, s.file)
		} else {
			in, what = edit(t, r, s.file)
		}
		if s.accepted(in) {
			t.Fatalf("mutation %d (%s) is accepted", i, what)
		}
	}
}

// scramble changes random bytes.
func scramble(r *rand.Rand, in []byte) []byte {
	out := bytes.Clone(in)
	for range 1 + r.IntN(3) {
		at := r.IntN(len(out))
		switch r.IntN(5) {
		case 0:
			out[at] ^= 1 << r.IntN(8)
		case 1:
			out[at] = byte(r.Uint32())
		case 2:
			out = out[:max(at, 1)]
		case 3:
			n := min(512*(1+r.IntN(4)), len(out)-at)
			out = slices.Concat(out[:at], out[at:at+n], out[at:])
		case 4:
			n := min(512*(1+r.IntN(4)), len(out)-at)
			out = slices.Delete(out, at, at+n)
			if len(out) == 0 {
				return []byte{0}
			}
		}
	}
	return out
}

// edit changes a bundle and encodes it again, so that every digest matches.
func edit(t testing.TB, r *rand.Rand, in []byte) ([]byte, string) {
	b, err := bundle.Read(bytes.NewReader(in), bundle.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(edits()))
	name := names[r.IntN(len(names))]
	edits()[name](r, b)
	var out bytes.Buffer
	if err := bundle.Write(&out, b); err != nil {
		return nil, name // it cannot even be written
	}
	return out.Bytes(), name
}

// edits are those that always change something.
func edits() map[string]func(r *rand.Rand, b *bundle.Bundle) {
	entry := func(r *rand.Rand, b *bundle.Bundle) *bundle.Entry { return &b.Entries[r.IntN(len(b.Entries))] }
	document := func(r *rand.Rand, b *bundle.Bundle) api.Digest {
		all := slices.Sorted(maps.Keys(b.Documents))
		return all[r.IntN(len(all))]
	}
	replace := func(b *bundle.Bundle, d api.Digest, doc []byte) {
		n := api.DigestOf(doc)
		delete(b.Documents, d)
		b.Documents[n] = doc
		for i := range b.Entries { // and everybody says so
			b.Entries[i].Leaf = bytes.ReplaceAll(b.Entries[i].Leaf, []byte(d), []byte(n))
		}
		for i := range b.Case.Records {
			if b.Case.Records[i] == d {
				b.Case.Records[i] = n
			}
		}
		for i := range b.Case.Revisions {
			for k := range b.Case.Revisions[i].Envelopes {
				if b.Case.Revisions[i].Envelopes[k] == d {
					b.Case.Revisions[i].Envelopes[k] = n
				}
			}
		}
	}
	return map[string]func(r *rand.Rand, b *bundle.Bundle){
		"drop an entry": func(r *rand.Rand, b *bundle.Bundle) {
			i := r.IntN(len(b.Entries))
			b.Entries = slices.Delete(b.Entries, i, i+1)
		},
		"cut the end":   func(r *rand.Rand, b *bundle.Bundle) { b.Entries = b.Entries[:1+r.IntN(len(b.Entries)-1)] },
		"move an entry": func(r *rand.Rand, b *bundle.Bundle) { b.Entries[len(b.Entries)-1].Seq += 1 + r.Uint64N(9) },
		"renumber entries": func(_ *rand.Rand, b *bundle.Bundle) {
			for i := range b.Entries {
				b.Entries[i].Seq++
			}
		},
		"swap leaves": func(r *rand.Rand, b *bundle.Bundle) {
			i := 1 + r.IntN(len(b.Entries)-1)
			b.Entries[i].Leaf, b.Entries[i-1].Leaf = b.Entries[i-1].Leaf, b.Entries[i].Leaf
		},
		"copy an entry": func(r *rand.Rand, b *bundle.Bundle) {
			last := b.Entries[len(b.Entries)-1]
			b.Entries = append(b.Entries, bundle.Entry{Seq: last.Seq + 1, Leaf: entry(r, b).Leaf})
		},
		"change a leaf": func(r *rand.Rand, b *bundle.Bundle) {
			e := entry(r, b)
			e.Leaf = bytes.Clone(e.Leaf)
			e.Leaf[r.IntN(len(e.Leaf))] ^= 1
		},
		"rewrite an entry": func(r *rand.Rand, b *bundle.Bundle) {
			e := entry(r, b)
			v, err := record.DecodeEntry(e.Leaf)
			if err != nil {
				return
			}
			v.At = v.At.Add(1)
			e.Leaf, _ = v.Encode()
		},
		"drop a hash": func(r *rand.Rand, b *bundle.Bundle) {
			i := r.IntN(len(b.Proof))
			b.Proof = slices.Delete(b.Proof, i, i+1)
		},
		"add a hash":      func(_ *rand.Rand, b *bundle.Bundle) { b.Proof = append(b.Proof, logproof.Hash{1}) },
		"change a hash":   func(r *rand.Rand, b *bundle.Bundle) { b.Proof[r.IntN(len(b.Proof))][r.IntN(32)] ^= 1 },
		"drop a document": func(r *rand.Rand, b *bundle.Bundle) { delete(b.Documents, document(r, b)) },
		"add a document": func(r *rand.Rand, b *bundle.Bundle) {
			doc := []byte(hex.EncodeToString([]byte{byte(r.Uint32())}))
			b.Documents[api.DigestOf(doc)] = doc
		},
		"change a document": func(r *rand.Rand, b *bundle.Bundle) {
			d := document(r, b)
			doc := bytes.Clone(b.Documents[d])
			doc[r.IntN(len(doc))] ^= 1
			replace(b, d, doc)
		},
		"cut a document": func(r *rand.Rand, b *bundle.Bundle) {
			d := document(r, b)
			replace(b, d, bytes.Clone(b.Documents[d][:r.IntN(len(b.Documents[d]))]))
		},
		"say another document": func(r *rand.Rand, b *bundle.Bundle) {
			x, y := document(r, b), document(r, b)
			for i := range b.Entries {
				if bytes.Contains(b.Entries[i].Leaf, []byte(x)) && x != y {
					b.Entries[i].Leaf = bytes.ReplaceAll(b.Entries[i].Leaf, []byte(x), []byte(y))
					return
				}
			}
			b.Proof = nil
		},
		"add content": func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Rotations = append(b.Case.Rotations, []byte("{}")) },
		"another run": func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Run = "r2" },
		"a dispatch":  func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Run, b.Case.Dispatch = "", "t-a2" },
		"no anchored": func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Anchored = []bundle.Anchored{} },
		"the other checkpoint": func(_ *rand.Rand, b *bundle.Bundle) {
			b.Case.Checkpoint, b.Case.Anchored[0].Checkpoint = b.Case.Anchored[0].Checkpoint, b.Case.Checkpoint
		},
		"a shorter checkpoint": func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Checkpoint = b.Case.Anchored[0].Checkpoint },
		"change the checkpoint": func(r *rand.Rand, b *bundle.Bundle) {
			b.Case.Checkpoint = bytes.Clone(b.Case.Checkpoint)
			b.Case.Checkpoint[r.IntN(len(b.Case.Checkpoint))] ^= 1
		},
		"sign the checkpoint once more": func(_ *rand.Rand, b *bundle.Bundle) { // in the name of the log
			cp, _ := logproof.Peek(b.Case.Checkpoint)
			b.Case.Checkpoint = append(bytes.Clone(b.Case.Checkpoint), "\u2014 "+cp.Origin+" AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"...)
		},
		"change the proof beside it": func(r *rand.Rand, b *bundle.Bundle) {
			b.Case.Anchored[0].Proof[r.IntN(len(b.Case.Anchored[0].Proof))] ^= 1
		},
		"drop a revision":  func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Revisions = []bundle.Revision{} },
		"a revision twice": func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Revisions = append(b.Case.Revisions, b.Case.Revisions[0]) },
		"drop a record":    func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Records = []api.Digest{} },
		"a record twice":   func(_ *rand.Rand, b *bundle.Bundle) { b.Case.Records = append(b.Case.Records, b.Case.Records[0]) },
		"name an anchor": func(_ *rand.Rand, b *bundle.Bundle) {
			b.Case.Anchored[0].Kind, b.Case.Anchored[0].Proof = "s3", []byte(strings.Repeat("x", 32))
		},
	}
}

func TestEachEditOfABundleIsDetected(t *testing.T) {
	s := newSample(t)
	r := rand.New(rand.NewPCG(2, 2)) //nolint:gosec // G404: reproducible on purpose
	for name, f := range edits() {
		b, err := bundle.Read(bytes.NewReader(s.file), bundle.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		f(r, b)
		var out bytes.Buffer
		if bundle.Write(&out, b) == nil && s.accepted(out.Bytes()) {
			t.Errorf("%s: accepted", name)
		}
	}
	if again := reread(t, must(bundle.Read(bytes.NewReader(s.file), bundle.Limits{}))); !verifies(again, &s) { // the positive control
		t.Error("the honest bundle does not verify")
	}
}

func must(b *bundle.Bundle, err error) *bundle.Bundle {
	if err != nil {
		panic(err)
	}
	return b
}

func verifies(b *bundle.Bundle, s *sample) bool {
	r := Verify(b, s.trust, s.options)
	return r.Good(s.report.Claim)
}

func FuzzVerify(f *testing.F) {
	s := newSample(f)
	f.Add(s.file)
	r := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // G404: reproducible on purpose
	for range 20 {
		in, _ := edit(f, r, s.file)
		f.Add(in)
		f.Add(scramble(r, s.file))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if s.accepted(in) {
			t.Fatal("accepted")
		}
	})
}
