package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// signed is a checkpoint whose signature was verified.
type signed struct {
	logproof.Checkpoint
	by    seal.KeyID
	alone bool // it counts by itself: see LogKey.Alone
}

// errNotInForce means that a key signed a checkpoint that is not of its part of the
// log, or that was made after the key was revoked.
var errNotInForce = errors.New("signed by a key that was not in force")

// opened are the checkpoints that were opened, by their bytes: each is once, however
// many anchors hold it.
type opened struct {
	keys  *logproof.Keys
	known map[string]verdictOf
}

type verdictOf struct {
	signed
	err error
}

// logCheck verifies that the entries are those of one log: by the signature of its
// checkpoint, the root of the entries, and the checkpoints that others have.
type logCheck struct {
	b      *bundle.Bundle
	trust  Trust
	copied []Copy // by the auditor
	whole  bool   // b is a copy of a whole log: see VerifyPeriod
	work   *meter
	rows   report.Findings

	entries    []entry
	keys       LogTrust // with the keys that rotations added
	statements []LogKey // of attestations, likewise
	cp         logproof.Checkpoint
	roots      map[uint64]logproof.Hash // proved, of cp's log, by size
	opened     opened
	newest     *entry              // see newestEntry
	tsaRoots   []*x509.Certificate // see stampRoots

	receipts []receipt.Receipt // that prove nothing here
	claimed  []string          // what they claim
	earned   report.Claim
	attested *time.Time
}

// open verifies a signed checkpoint of this log.
func (l *logCheck) open(raw []byte) (signed, error) {
	o := &l.opened
	if one, ok := o.known[string(raw)]; ok {
		return one.signed, one.err
	}
	if o.keys == nil {
		list := make([]ed25519.PublicKey, 0, len(l.keys.Keys))
		for _, k := range l.keys.Keys {
			list = append(list, k.Public)
		}
		keys, err := logproof.NewKeys(l.keys.Origin, list...)
		if err != nil {
			return signed{}, err
		}
		o.keys, o.known = &keys, map[string]verdictOf{}
	}
	s, err := l.openNew(raw)
	o.known[string(raw)] = verdictOf{s, err}
	return s, err
}

func (l *logCheck) openNew(raw []byte) (signed, error) {
	if err := l.work.spend(len(raw) + unitSignature*bytes.Count(raw, []byte("\n\u2014 "))); err != nil {
		return signed{}, err
	}
	c, by, err := l.opened.keys.Open(raw)
	if err != nil {
		return signed{}, err
	}
	// Signatures under other names are those of witnesses, which a signed note may have.
	if n := bytes.Count(raw, []byte("\n\u2014 "+l.keys.Origin+" ")); n != len(by) {
		return signed{}, fmt.Errorf("checkpoint of size %d: %d signatures in the name of this log, only %d of them by its keys: get a newer trust file, or compare another copy", c.Size, n, len(by))
	}
	var wrong error
	s := signed{Checkpoint: c}
	for _, public := range by {
		k, _ := FindKey(l.keys.Keys, seal.IDOf(public))
		if err := k.Size(c.Size); err != nil {
			wrong = err
			continue
		}
		if s.by == "" || k.Alone() {
			s.by, s.alone = k.ID, k.Alone()
		}
	}
	if s.by == "" {
		return signed{}, fmt.Errorf("checkpoint of size %d: %w: %w", c.Size, errNotInForce, wrong)
	}
	return s, nil
}

// signature verifies the bundle's own checkpoint.
func (l *logCheck) signature() (own signed, err error) {
	row := l.rows[report.RowSignature]
	l.cp, _ = logproof.Peek(l.b.Case.Checkpoint)
	for _, r := range l.b.Case.Rotations {
		_ = l.work.spend(3*len(r) + unitSignature) // Follow reads 256 at most
	}
	if l.keys, err = l.trust.Log.Follow(l.b.Case.Rotations); err != nil {
		row.Fail("%v", err)
	}
	l.statements = l.trust.statements(l.keys)
	if own, err = l.open(l.b.Case.Checkpoint); err != nil {
		row.Fail("%v", err)
	}
	row.Checked++
	l.rows[report.RowSignature].Right = fmt.Sprintf("the checkpoint of %s is signed by key %s", record.Plural(l.cp.Size, "entry"), own.by)
	if n := len(l.b.Case.Rotations); n > 0 {
		l.rows[report.RowSignature].Right += fmt.Sprintf("; %s, each signed by the previous key", record.Plural(n, "key rotation"))
	}
	return own, err
}

// inclusion compares the root recomputed from the entries with the checkpoint's.
func (l *logCheck) inclusion() {
	seqs, leaves := make([]uint64, len(l.entries)), make([]logproof.Hash, len(l.entries))
	for i := range l.entries {
		seqs[i], leaves[i] = l.entries[i].seq, l.entries[i].hash
	}
	row := l.rows[report.RowInclusion]
	root, earlier, err := bundle.Roots(seqs, leaves, l.b.Case.Sizes, l.cp.Size, l.b.Proof)
	switch {
	case err != nil:
		row.Fail("no valid proof that the entries are in the log of %s: %v", record.Plural(l.cp.Size, "entry"), err)
	case root != l.cp.Root:
		row.Fail("the entries differ from the log of %s: the root differs", record.Plural(l.cp.Size, "entry"))
	default:
		row.Checked = len(l.entries)
		for i, size := range l.b.Case.Sizes {
			l.roots[size] = earlier[i]
		}
		l.rows[report.RowInclusion].Right = fmt.Sprintf("%s found in the log of %s, each under its number", record.Plural(len(l.entries), "entry"), record.Plural(l.cp.Size, "entry"))
	}
}

// compare compares the bundle's own checkpoint, whose signature is good, with the
// others in the bundle and with the auditor's copies.
func (l *logCheck) compare(own signed, good bool) {
	row := l.rows[report.RowConsistency]
	l.rows[report.RowAnchor].Absent = "no copy from an anchor of the trust file: --anchor NAME=FILE"
	l.rows[report.RowTime].Absent = "no time-stamp checked: times are the service's clock"
	l.roots[l.cp.Size] = l.cp.Root
	others := map[uint64]bool{} // sizes of the other checkpoints in the bundle
	vouched := false            // a checkpoint that counts by itself covers this one
	for i, a := range l.b.Case.Anchored {
		if l.work.spend(unitEntry+len(a.Proof)) != nil {
			return
		}
		name := fmt.Sprintf("checkpoint %d in the bundle", i+1)
		if a.Name != "" {
			name = fmt.Sprintf("the checkpoint of anchor %.64q", a.Name)
		}
		other, err := l.open(a.Checkpoint)
		if err == nil {
			err = consistent(own.Checkpoint, other.Checkpoint, a.Proof)
		}
		if err == nil && a.Name != "" {
			if err := l.receipt(a); err != nil {
				l.rows[report.RowAnchor].Fail("anchor %.64q: %v", a.Name, err)
			}
		}
		if err != nil {
			if good {
				row.Fail("%s: %v", name, err)
			}
			continue
		}
		// Consistency with itself, or with the empty log, proves nothing.
		if other.Size != own.Size && other.Size > 0 {
			others[other.Size] = true
		}
		l.roots[other.Size] = other.Root
		vouched = vouched || other.alone && other.Size >= own.Size
	}
	if !good {
		row.Absent = "without a signed checkpoint there is nothing to compare others with"
		return
	}
	vouched = l.copies(others) || vouched
	if !own.alone && !vouched {
		l.rows[report.RowSignature].Fail("the checkpoint is signed only by key %s, which is revoked, and nothing proves that it was signed before the revocation", own.by)
	}
}

// consistent verifies that the longer log of the two extends the shorter one.
func consistent(own, other logproof.Checkpoint, proof []byte) error {
	hashes, err := bundle.ParseHashes(proof)
	if err != nil {
		return err
	}
	if other.Size < own.Size {
		return logproof.VerifyConsistency(other, own, hashes)
	}
	return logproof.VerifyConsistency(own, other, hashes)
}

// covers reports whether a log of this size has every entry of the bundle.
func (l *logCheck) covers(size uint64) bool {
	n := len(l.b.Entries)
	return n > 0 && l.b.Entries[n-1].Seq < size
}

func (l *logCheck) earn(c report.Claim) {
	if !l.earned.AtLeast(c) {
		l.earned = c
	}
}
