package evidence

import (
	"bytes"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Where a checkpoint is stored is the service's claim until the auditor has fetched
// a copy, which is compared with it.
//
// proves R-A6, R-A7
func TestReceiptEarnsOnlyWhatTheAuditorCanCheck(t *testing.T) {
	s := signer(t)
	cp := note.Checkpoint{Origin: "bailiwick.dev/log/x", Size: 9, Root: note.LeafHash([]byte("here"))}
	sign := func(c note.Checkpoint) []byte {
		b, err := note.Sign(t.Context(), c, s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	signed := sign(cp)
	other := cp
	other.Root[0] ^= 1
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	anchored := func(kind receipt.Kind, place string) bundle.Anchored {
		r := receipt.Receipt{V: 1, Name: "a", Kind: kind, Place: place, At: now, Signed: signed}
		switch kind {
		case receipt.Git:
			r.Git = &receipt.Commit{ID: "0123456789012345678901234567890123456789"}
		case receipt.S3:
			r.S3 = &receipt.Object{Key: "k", Version: "v", Until: now}
		case receipt.TSA:
			r.TSA = &receipt.Token{Token: []byte{1}}
		case receipt.File:
		}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return bundle.Anchored{Checkpoint: signed, Name: "a", Kind: string(kind), Receipt: b}
	}
	for _, kind := range []receipt.Kind{receipt.File, receipt.Git, receipt.S3} {
		trust := Trust{Anchors: []AnchorTrust{{Name: "a", Kind: kind, Place: "there"}}}
		want := ClaimTamperDetecting
		if kind == receipt.S3 {
			want = ClaimTamperEvident
		}
		there := anchored(kind, "there")
		for name, c := range map[string]struct {
			a     bundle.Anchored
			trust Trust
			copy  []byte
			held  []note.Checkpoint
			claim Claim
			bad   bool
		}{
			"looked at":                         {there, trust, signed, nil, want, false},
			"had otherwise":                     {there, trust, nil, []note.Checkpoint{cp}, map[bool]Claim{true: "", false: want}[kind == receipt.S3], false},
			"not looked at":                     {there, trust, nil, nil, "", false},
			"a place that is not trusted":       {there, Trust{}, signed, nil, "", false},
			"another place":                     {anchored(kind, "elsewhere"), trust, signed, nil, "", false},
			"a place that has something else":   {there, trust, sign(other), nil, "", true},
			"the same, and nobody trusts it":    {there, Trust{}, sign(other), nil, "", true},
			"a copy of before":                  {there, trust, sign(note.Checkpoint{Origin: cp.Origin, Size: 8}), nil, "", false},
			"a copy without it":                 {there, trust, sign(note.Checkpoint{Origin: cp.Origin, Size: cp.Size + 1}), nil, "", true},
			"a receipt of another kind":         {bundle.Anchored{Checkpoint: signed, Name: "a", Kind: "tsa", Receipt: there.Receipt}, trust, signed, nil, "", true},
			"a receipt of another anchor":       {bundle.Anchored{Checkpoint: signed, Name: "b", Kind: there.Kind, Receipt: there.Receipt}, trust, signed, nil, "", true},
			"a receipt of another checkpoint":   {bundle.Anchored{Checkpoint: sign(other), Name: "a", Kind: there.Kind, Receipt: there.Receipt}, trust, signed, nil, "", true},
			"a receipt that says too much":      {bundle.Anchored{Checkpoint: signed, Name: "a", Kind: there.Kind, Receipt: bytes.Replace(there.Receipt, []byte(`{`), []byte(`{"held":true,`), 1)}, trust, signed, nil, "", true},
			"a checkpoint of his, of that size": {there, trust, nil, []note.Checkpoint{other}, "", false},
		} {
			copies := map[string][]byte{}
			if c.copy != nil {
				copies["a"] = c.copy
			}
			e, err := AnchorReceipts{Copies: copies}.Check(c.a, cp, c.trust, c.held)
			if (err != nil) != c.bad || e.Claim != c.claim || e.Checked != (c.claim != "") || err == nil && e.Why == "" {
				t.Errorf("%s, %s: %+v, %v", kind, name, e, err)
			}
		}
	}
	// An invalid token is an error, not an untrusted authority.
	if e, err := (AnchorReceipts{}).Check(anchored(receipt.TSA, "x"), cp, Trust{TSA: []string{certificate(t)}}, nil); err == nil {
		t.Errorf("%+v", e)
	}
}
