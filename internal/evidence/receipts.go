package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// AnchorReceipts checks receipts of all kinds of anchor. A time-stamp proves
// itself. Any other receipt is a claim of the service's, until its place is one
// that the trust file names and the auditor has looked there himself.
type AnchorReceipts struct {
	// Copies are what the auditor fetched from anchors, by their names: see
	// receipt.Receipt.In.
	Copies map[string][]byte
}

// Check implements Receipts.
func (a AnchorReceipts) Check(of bundle.Anchored, c note.Checkpoint, t Trust, held []note.Checkpoint) (Earned, error) {
	r, err := receipt.Parse(of.Receipt)
	if err != nil {
		return Earned{}, err
	}
	if r.Name != of.Name || string(r.Kind) != string(of.Kind) || !bytes.Equal(r.Signed, of.Checkpoint) || r.Checkpoint() != c {
		return Earned{}, errors.New("the receipt is of another checkpoint")
	}
	if r.Kind == receipt.TSA {
		return stampOf(r, t)
	}
	trusted := slices.ContainsFunc(t.Anchors, func(at AnchorTrust) bool { return string(at.Kind) == string(r.Kind) && at.Place == r.Place })
	copied, looked := a.Copies[r.Name]
	if looked {
		// Also where the trust file says nothing of the place: what the auditor has
		// must not contradict.
		switch _, err := r.In(copied); {
		case errors.Is(err, receipt.ErrOlder):
			return Earned{Why: fmt.Sprintf("anchor %q: %v; fetch it again", r.Name, err)}, nil
		case err != nil:
			return Earned{}, err
		}
	}
	// A checkpoint that the auditor has of his own is as good as a copy, but for
	// where only the place itself makes it worth more.
	own := looked || r.Kind != receipt.S3 && slices.Contains(held, c)
	switch {
	case !trusted:
		return Earned{Why: fmt.Sprintf("anchor %q: the trust file does not name %s %s", r.Name, r.Kind, r.Place)}, nil
	case !own:
		return Earned{Why: fmt.Sprintf("anchor %q: that %s %s holds it is the service's word; fetch a copy from there", r.Name, r.Kind, r.Place)}, nil
	}
	e := Earned{Checked: true, Claim: ClaimTamperDetecting, Why: fmt.Sprintf("%s %s holds the checkpoint of %d entries", r.Kind, r.Place, c.Size)}
	if r.Kind == receipt.S3 {
		e.Claim = ClaimTamperEvident
		e.Why += fmt.Sprintf(" as version %s, kept until %s", r.S3.Version, r.S3.Until.Format("2006-01-02"))
	}
	return e, nil
}

func stampOf(r receipt.Receipt, t Trust) (Earned, error) {
	roots, err := t.TSARoots()
	if err != nil {
		return Earned{}, err
	}
	s, err := r.Stamp(roots)
	switch {
	case errors.Is(err, receipt.ErrForeign):
		return Earned{Why: fmt.Sprintf("anchor %q: the trust file does not vouch for this time-stamp authority", r.Name)}, nil
	case err != nil:
		return Earned{}, err
	}
	latest := s.Time.Add(s.Accuracy) // of an authority that may be wrong by so much
	why := fmt.Sprintf("%s stamped the checkpoint of %d entries at %s", s.By, r.Checkpoint().Size, s.Time.Format("2006-01-02T15:04:05Z"))
	if s.Accuracy > 0 {
		why += fmt.Sprintf(", to within %s", s.Accuracy)
	}
	return Earned{Checked: true, Time: &latest, Why: why}, nil
}
