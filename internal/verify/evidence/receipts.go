package evidence

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// receipt reads the receipt of an anchor's checkpoint. A time-stamp proves itself. Any
// other receipt proves nothing: it says where the auditor can fetch a copy.
func (v *verification) receipt(of bundle.Anchored) error {
	if err := v.work.decode(of.Receipt); err != nil {
		return err
	}
	r, err := receipt.Parse(of.Receipt)
	if err != nil {
		return err
	}
	if r.Name != of.Name || string(r.Kind) != of.Kind || !bytes.Equal(r.Signed, of.Checkpoint) {
		return errors.New("the receipt is for another checkpoint")
	}
	if r.Kind == receipt.TSA {
		if err := v.work.spend(unitStamp); err != nil {
			return err
		}
		roots, err := v.stampRoots()
		if err != nil {
			return err
		}
		s, err := r.Stamp(roots)
		if err == nil {
			v.stamp(s, r.Checkpoint().Size)
			return nil
		}
		if !errors.Is(err, receipt.ErrForeign) {
			v.rows[report.RowTime].Fail("anchor %.64q: %v", r.Name, err)
			return nil
		}
	}
	v.receipts = append(v.receipts, r)
	return nil
}

// stamp takes a verified time-stamp over the checkpoint of a size into account. The
// text has only what the authority signed.
func (v *verification) stamp(s receipt.Stamp, size uint64) {
	row := v.rows[report.RowTime]
	words := fmt.Sprintf("%s time-stamped the checkpoint of %s at %s", s.By, record.Plural(size, "entry"), s.Time.Format("2006-01-02T15:04:05Z"))
	if s.Accuracy > 0 {
		words += fmt.Sprintf(", to within %s", s.Accuracy)
	}
	if !v.covers(size) {
		if row.Checked == 0 {
			row.Absent = words + ", which is older than the last entry here"
		}
		return
	}
	row.Absent = ""
	row.Checked++
	latest := s.Time.Add(s.Accuracy) // the latest time that the accuracy allows
	if v.attested == nil || latest.Before(*v.attested) {
		v.attested, v.rows[report.RowTime].Right = &latest, words
	}
	if x := v.newestEntry(); x != nil && x.At.After(latest.Add(clockSlack)) {
		row.Fail("entry #%d is dated %s, but the checkpoint that includes it was time-stamped %s", x.seq, x.At.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))
	}
}

// newestEntry returns the entry with the latest time, or nil. Entries that are rules
// may be much older, from before the clock was corrected.
func (v *verification) newestEntry() *entry {
	if v.newest == nil {
		for i := range v.entries {
			if x := &v.entries[i]; x.ok && !x.Kind.Rules() && (v.newest == nil || x.At.After(v.newest.At)) {
				v.newest = x
			}
		}
	}
	return v.newest
}

// stampRoots parses the roots of time-stamp authorities once.
func (v *verification) stampRoots() (roots []*x509.Certificate, err error) {
	if v.tsaRoots == nil {
		v.tsaRoots, err = v.trust.TSARoots()
	}
	return v.tsaRoots, err
}
