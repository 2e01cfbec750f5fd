package evidence

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

var honestBundles = flag.Int("copies", max(80/shrink, 10), "how many honest bundles are verified with copies") //nolint:gochecknoglobals // a flag

// place is an anchor of an honest story, with the sizes of the checkpoints that it got.
type place struct {
	trust AnchorTrust
	claim report.Claim
	sizes []uint64
}

// honestCase is an honest bundle, its anchors and what lies where in the log.
type honestCase struct {
	*story
	r           *rand.Rand
	b           *bundle.Bundle
	places      []place
	first, last uint64          // the first and the last entry of the subject
	size        uint64          // of the bundle's checkpoint
	proved      map[uint64]bool // sizes that the bundle has to prove
}

// newHonestCase writes a run or a dispatch between other entries, and checkpoints of
// random sizes into each anchor.
func newHonestCase(t testing.TB, r *rand.Rand) *honestCase {
	h := &honestCase{story: newStory(t), r: r, proved: map[uint64]bool{}, places: []place{
		{AnchorTrust{Name: "disk", Kind: receipt.File, Place: "/mnt/a"}, report.ClaimTamperDetecting, nil},
		{AnchorTrust{Name: "history", Kind: receipt.Git, Place: "/srv/a.git#bailiwick"}, report.ClaimTamperDetecting, nil},
		{AnchorTrust{Name: "worm", Kind: receipt.S3, Place: "https://s3.example/b/"}, report.ClaimTamperEvident, nil},
	}}
	for _, p := range h.places {
		h.story.places = append(h.story.places, p.trust)
	}
	h.idle(r.IntN(6))
	if r.IntN(2) == 0 {
		h.whole("d-00")
	}
	c := bundle.Case{Dispatch: "d-01"}
	switch r.IntN(6) {
	case 0:
		c = bundle.Case{Run: "r1"}
		tell(h.story)
	case 1: // a quorum that is known while a voter still runs
		c = bundle.Case{Run: "r1"}
		races := raceTales()
		race := races[pick(r, slices.Sorted(maps.Keys(races)))]
		h.submit(race.plan, "", 0)
		race.tell(h.story, false)
	case 2: // approvals by several people, budgets and uncounted requests
		peopled := []func(*story) []bundle.Case{fourEyes, approvedWrites, budgets, uncounted}
		c = pick(r, pick(r, peopled)(h.story))
	default:
		h.whole("d-01")
	}
	h.idle(r.IntN(6))
	h.size = uint64(len(h.leaves))
	stamped := h.size - uint64(r.IntN(3)) //nolint:gosec // G115: small
	stamps := r.IntN(2) == 0
	if stamps {
		h.authority()
	}
	h.b = h.bundle(c)
	h.subject()
	h.anchors()
	if stamps {
		h.stamped(h.b, int(stamped), h.at.Add(time.Second)) //nolint:gosec // G115: small
	}
	h.b = reread(t, h.b)
	h.idle(1 + r.IntN(4))
	for i := range h.places {
		h.places[i].sizes = append(h.places[i].sizes, uint64(len(h.leaves)))
	}
	return h
}

// subject finds the first and the last entry of the case.
func (h *honestCase) subject() {
	i := slices.IndexFunc(h.b.Entries, func(e bundle.Entry) bool { return !h.entries[e.Seq].Kind.Rules() })
	h.first, h.last = h.b.Entries[i].Seq, h.b.Entries[len(h.b.Entries)-1].Seq
}

// anchors gives each anchor checkpoints, and the bundle what an exporter puts there.
func (h *honestCase) anchors() {
	var all []uint64
	for i := range h.places {
		p := &h.places[i]
		for size := uint64(1); size <= h.size; size++ {
			if h.r.IntN(5) == 0 {
				p.sizes = append(p.sizes, size)
			}
		}
		for _, size := range p.sizes {
			if size < h.size {
				all = append(all, size)
			}
		}
		if n := len(p.sizes); n > 0 {
			h.receive(p.trust, p.sizes[n-1])
		}
	}
	h.b.Case.Sizes = bundle.Select(all, h.first, h.last)
	reprove(h.story, h.b)
	// What the documents promise: the last before the subject, and all since.
	before := uint64(0)
	for _, size := range all {
		if size > h.first {
			h.proved[size] = true
		} else {
			before = max(before, size)
		}
	}
	h.proved[before] = before > 0
	h.proved[h.size] = true
	for _, a := range h.b.Case.Anchored {
		cp, err := logproof.Peek(a.Checkpoint)
		h.must(err)
		h.proved[cp.Size] = true
	}
}

func (h *honestCase) receive(a AnchorTrust, size uint64) {
	r := receipt.Receipt{Name: a.Name, Kind: a.Kind, Place: a.Place, Signed: h.signedAt(size)}
	switch a.Kind {
	case receipt.Git:
		r.Git = &receipt.Commit{ID: strings.Repeat("0a", 20)}
	case receipt.S3:
		r.S3 = &receipt.Object{Key: "k", Version: "v", Until: h.at.UTC()}
	case receipt.File, receipt.TSA:
	}
	h.received(h.b, r, int(size)) //nolint:gosec // G115: small
}

func (h *honestCase) signedAt(size uint64) []byte {
	return h.signCheckpoint(h.service, int(size)) //nolint:gosec // G115: small
}

// fetched is a copy of a place as of a size, in a form that the documents describe:
// everything up to then, or that checkpoint alone. It returns its sizes too.
func (h *honestCase) fetched(p place, upTo uint64) (copied string, sizes []uint64) {
	form := h.r.IntN(8)
	for _, size := range p.sizes {
		if size > upTo || form >= 3 && size != upTo {
			continue
		}
		sizes = append(sizes, size)
		signed := h.signedAt(size)
		switch form {
		case 0, 3:
			copied += h.line(signed) // the file, or its newest line
		case 1, 4:
			copied += string(signed) // all commits, one commit, an object
		case 2, 5:
			copied += string(signed) + "\n" // with empty lines, or as jq -r prints it
		case 6:
			copied += strings.TrimSuffix(string(signed), "\n")
		case 7:
			copied += strings.TrimSuffix(h.line(signed), "\n")
		}
	}
	return copied, sizes
}

// verify returns the report with a copy, unless it fails.
func (h *honestCase) verify(b *bundle.Bundle, name, copied string) report.Report {
	list, err := receipt.Checkpoints([]byte(copied))
	h.must(err)
	return Verify(b, h.trust(), Options{Copies: []Copy{{File: "copy", Anchor: name, Checkpoints: list}}})
}

// with is the bundle exported with the newest checkpoint of a copy.
func (h *honestCase) with(size uint64) *bundle.Bundle {
	again := *h.b
	again.Case.Anchored = append(slices.Clone(h.b.Case.Anchored), bundle.Anchored{
		Checkpoint: h.signedAt(size), Proof: bundle.Hashes(consistency(h.t, h.hashes(), int(min(size, h.size)), int(max(size, h.size)))), //nolint:gosec // G115: small
	})
	return &again
}

// An honest bundle never fails with a copy that the documents promise to compare: of a
// file, a repository or a store, in every form, older, equal and newer, alone and with
// all before. Any other copy fails as unknown, never as forged, and passes with evidence
// that was exported with it.
//
// proves R-A6, R-A7 (no false alarm)
func TestHonestCopiesNeverFail(t *testing.T) {
	r := rand.New(rand.NewPCG(7, uint64(*honestBundles))) //nolint:gosec // G115, G404: reproducible on purpose
	seen := map[string]int{}
	for i := range *honestBundles {
		h := newHonestCase(t, r)
		if plain := Verify(h.b, h.trust(), Options{}); plain.Failed() {
			t.Fatalf("bundle %d:\n%s", i, plain.Text())
		}
		for _, p := range h.places {
			for _, upTo := range p.sizes {
				copied, sizes := h.fetched(p, upTo)
				best := uint64(0) // the newest that the bundle has to compare
				for _, size := range sizes {
					if h.proved[size] {
						best = size
					}
				}
				name, claim := p.trust.Name, p.claim
				if r.IntN(4) == 0 {
					name, claim = "", report.ClaimTamperDetecting // kept by the auditor
				}
				if best <= h.last {
					claim = report.ClaimNone
				}
				got := h.verify(h.b, name, copied)
				what := fmt.Sprintf("bundle %d: %s of %d for #%d to #%d at %d, proved %d", i, p.trust.Kind, sizes, h.first, h.last, h.size, h.b.Case.Sizes)
				if best > h.last || best == upTo {
					seen["compared, "+string(claim)]++
					if got.Failed() || got.Claim != claim {
						t.Fatalf("%s: want %s:\n%s", what, claim, got.Text())
					}
					continue
				}
				seen["unknown"]++
				if why := got.Row(report.RowConsistency).Why; got.Row(report.RowConsistency).Status != report.Fail || !strings.Contains(why, "cannot be compared") {
					t.Fatalf("%s: want it to be unknown:\n%s", what, got.Text())
				}
				if got := h.verify(h.with(upTo), name, copied); got.Failed() || upTo > h.last && got.Claim == report.ClaimNone {
					t.Fatalf("%s: exported with it:\n%s", what, got.Text())
				}
			}
		}
	}
	for _, what := range []string{"compared, none", "compared, tamper-detecting", "compared, tamper-evident", "unknown"} {
		if seen[what] == 0 {
			t.Errorf("%q never happened: %v", what, seen)
		}
	}
	t.Logf("%d bundles: %v", *honestBundles, seen)
}

// Control for the above: a copy with another root never passes.
//
// takeover both modes, backup; root; service account: until forge evidence
// takeover same-user, MCP program; a person's account; page; worker: until forge evidence
func TestForgedCopiesOfHonestBundlesFail(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8)) //nolint:gosec // G404: reproducible on purpose
	for range max(*honestBundles/10, 20/shrink, 3) {
		h := newHonestCase(t, r)
		for _, p := range h.places {
			size := p.sizes[r.IntN(len(p.sizes))]
			cp, err := logproof.Peek(h.signedAt(size))
			h.must(err)
			cp.Root[r.IntN(32)] ^= 1 << r.IntN(8)
			forged, err := logproof.Sign(t.Context(), cp, h.service)
			h.must(err)
			if got := h.verify(h.b, p.trust.Name, string(forged)); got.Row(report.RowConsistency).Status != report.Fail {
				t.Fatalf("a forged checkpoint of %s passes:\n%s", record.Plural(size, "entry"), got.Text())
			}
		}
	}
}
