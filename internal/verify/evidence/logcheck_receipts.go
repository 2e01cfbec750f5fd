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
func (l *logCheck) receipt(of bundle.Anchored) error {
	if err := l.work.decode(of.Receipt); err != nil {
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
		if err := l.work.spend(unitStamp); err != nil {
			return err
		}
		roots, err := l.stampRoots()
		if err != nil {
			return err
		}
		s, err := r.Stamp(roots)
		if err == nil {
			l.stamp(s, r.Checkpoint().Size)
			return nil
		}
		if !errors.Is(err, receipt.ErrForeign) {
			l.rows[report.RowTime].Fail("anchor %.64q: %v", r.Name, err)
			return nil
		}
	}
	l.receipts = append(l.receipts, r)
	return nil
}

// stamp takes a verified time-stamp over the checkpoint of a size into account. The
// text has only what the authority signed.
func (l *logCheck) stamp(s receipt.Stamp, size uint64) {
	row := l.rows[report.RowTime]
	words := fmt.Sprintf("%s time-stamped the checkpoint of %s at %s", s.By, record.Plural(size, "entry"), s.Time.Format("2006-01-02T15:04:05Z"))
	if s.Accuracy > 0 {
		words += fmt.Sprintf(", to within %s", s.Accuracy)
	}
	if !l.covers(size) {
		if row.Checked == 0 {
			row.Absent = words + ", which is older than the last entry here"
		}
		return
	}
	row.Absent = ""
	row.Checked++
	latest := s.Time.Add(s.Accuracy) // the latest time that the accuracy allows
	if l.attested == nil || latest.Before(*l.attested) {
		l.attested, l.rows[report.RowTime].Right = &latest, words
	}
	if x := l.newestEntry(); x != nil && x.At.After(latest.Add(clockSlack)) {
		row.Fail("entry #%d is dated %s, but the checkpoint that includes it was time-stamped %s", x.seq, x.At.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))
	}
}

// newestEntry returns the entry with the latest time, or nil. Entries that are rules
// may be much older, from before the clock was corrected.
func (l *logCheck) newestEntry() *entry {
	if l.newest == nil {
		for i := range l.entries {
			if x := &l.entries[i]; x.ok && !x.Kind.Rules() && (l.newest == nil || x.At.After(l.newest.At)) {
				l.newest = x
			}
		}
	}
	return l.newest
}

// stampRoots parses the roots of time-stamp authorities once.
func (l *logCheck) stampRoots() (roots []*x509.Certificate, err error) {
	if l.tsaRoots == nil {
		l.tsaRoots, err = l.trust.TSARoots()
	}
	return l.tsaRoots, err
}
