package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// AnchorReceipts checks receipts of all kinds of anchor. A time-stamp proves
// itself. Any other receipt is a claim of the service's until the trust file names
// its place and the auditor has fetched a copy from there.
type AnchorReceipts struct {
	// Copies are the auditor's copies, by the names of the anchors: see
	// receipt.Receipt.In.
	Copies map[string][]byte
}

// Check implements Receipts.
func (a AnchorReceipts) Check(of bundle.Anchored, c note.Checkpoint, t Trust, held []note.Checkpoint) (Earned, error) {
	r, err := receipt.Parse(of.Receipt)
	if err != nil {
		return Earned{}, err
	}
	if r.Name != of.Name || string(r.Kind) != of.Kind || !bytes.Equal(r.Signed, of.Checkpoint) || r.Checkpoint() != c {
		return Earned{}, errors.New("the receipt is for another checkpoint")
	}
	if r.Kind == receipt.TSA {
		return stampOf(r, t)
	}
	trusted := slices.ContainsFunc(t.Anchors, func(at AnchorTrust) bool { return at.Kind == r.Kind && at.Place == r.Place })
	copied, fetched := a.Copies[r.Name]
	if fetched {
		// Also if the trust file does not name the place: a copy must not contradict.
		switch err := r.In(copied); {
		case errors.Is(err, receipt.ErrOlder):
			return Earned{Why: fmt.Sprintf("anchor %q: %v; fetch it again", r.Name, err)}, nil
		case err != nil:
			return Earned{}, err
		}
	}
	// A checkpoint that the auditor holds is as good as a copy, except for S3, whose
	// object lock is what makes the claim stronger.
	own := fetched || r.Kind != receipt.S3 && slices.Contains(held, c)
	switch {
	case !trusted:
		return Earned{Why: fmt.Sprintf("anchor %q: the trust file does not name %s %s", r.Name, r.Kind, r.Place)}, nil
	case !own:
		return Earned{Why: fmt.Sprintf("anchor %q: only the service says that %s %s holds it; fetch a copy from there", r.Name, r.Kind, r.Place)}, nil
	}
	e := Earned{Checked: true, Claim: ClaimTamperDetecting, Why: fmt.Sprintf("%s %s holds the checkpoint of %s", r.Kind, r.Place, record.Plural(c.Size, "entry"))}
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
		return Earned{Why: fmt.Sprintf("anchor %q: the trust file does not list this time-stamp authority", r.Name)}, nil
	case err != nil:
		return Earned{}, err
	}
	latest := s.Time.Add(s.Accuracy) // the latest time that the accuracy allows
	why := fmt.Sprintf("%s time-stamped the checkpoint of %s at %s", s.By, record.Plural(r.Checkpoint().Size, "entry"), s.Time.Format("2006-01-02T15:04:05Z"))
	if s.Accuracy > 0 {
		why += fmt.Sprintf(", to within %s", s.Accuracy)
	}
	return Earned{Checked: true, Time: &latest, Why: why}, nil
}
