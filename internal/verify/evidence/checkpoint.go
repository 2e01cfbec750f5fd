package evidence

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
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

// open verifies a signed checkpoint of this log.
func (v *verification) open(raw []byte) (signed, error) {
	o := &v.opened
	if one, ok := o.known[string(raw)]; ok {
		return one.signed, one.err
	}
	if o.keys == nil {
		list := make([]ed25519.PublicKey, 0, len(v.log.Keys))
		for _, k := range v.log.Keys {
			list = append(list, k.Public)
		}
		keys, err := logproof.NewKeys(v.log.Origin, list...)
		if err != nil {
			return signed{}, err
		}
		o.keys, o.known = &keys, map[string]verdictOf{}
	}
	s, err := v.openNew(raw)
	o.known[string(raw)] = verdictOf{s, err}
	return s, err
}

func (v *verification) openNew(raw []byte) (signed, error) {
	if err := v.work.spend(len(raw) + unitSignature*bytes.Count(raw, []byte("\n\u2014 "))); err != nil {
		return signed{}, err
	}
	c, by, err := v.opened.keys.Open(raw)
	if err != nil {
		return signed{}, err
	}
	// Signatures under other names are those of witnesses, which a signed note may have.
	if n := bytes.Count(raw, []byte("\n\u2014 "+v.log.Origin+" ")); n != len(by) {
		return signed{}, fmt.Errorf("checkpoint of size %d: %d signatures in the name of this log, only %d of them by its keys: get a newer trust file, or compare another copy", c.Size, n, len(by))
	}
	var wrong error
	s := signed{Checkpoint: c}
	for _, public := range by {
		k, _ := FindKey(v.log.Keys, seal.IDOf(public))
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
func (v *verification) signature() (own signed, err error) {
	row := v.rows[report.RowSignature]
	v.cp, _ = logproof.Peek(v.b.Case.Checkpoint)
	for _, r := range v.b.Case.Rotations {
		_ = v.work.spend(3*len(r) + unitSignature) // Follow reads 256 at most
	}
	if v.log, err = v.trust.Log.Follow(v.b.Case.Rotations); err != nil {
		row.Fail("%v", err)
	}
	v.statements = v.trust.statements(v.log)
	if own, err = v.open(v.b.Case.Checkpoint); err != nil {
		row.Fail("%v", err)
	}
	row.Checked++
	v.rows[report.RowSignature].Right = fmt.Sprintf("the checkpoint of %s is signed by key %s", record.Plural(v.cp.Size, "entry"), own.by)
	if n := len(v.b.Case.Rotations); n > 0 {
		v.rows[report.RowSignature].Right += fmt.Sprintf("; %s, each signed by the previous key", record.Plural(n, "key rotation"))
	}
	return own, err
}

// compare compares the bundle's own checkpoint, whose signature is good, with the
// others in the bundle and with the auditor's copies.
func (v *verification) compare(own signed, good bool) {
	row := v.rows[report.RowConsistency]
	v.rows[report.RowAnchor].Absent = "no copy from an anchor of the trust file: --anchor NAME=FILE"
	v.rows[report.RowTime].Absent = "no time-stamp checked: times are the service's clock"
	v.roots[v.cp.Size] = v.cp.Root
	others := map[uint64]bool{} // sizes of the other checkpoints in the bundle
	vouched := false            // a checkpoint that counts by itself covers this one
	for i, a := range v.b.Case.Anchored {
		if v.work.spend(unitEntry+len(a.Proof)) != nil {
			return
		}
		name := fmt.Sprintf("checkpoint %d in the bundle", i+1)
		if a.Name != "" {
			name = fmt.Sprintf("the checkpoint of anchor %.64q", a.Name)
		}
		other, err := v.open(a.Checkpoint)
		if err == nil {
			err = v.consistent(own.Checkpoint, other.Checkpoint, a.Proof)
		}
		if err == nil && a.Name != "" {
			if err := v.receipt(a); err != nil {
				v.rows[report.RowAnchor].Fail("anchor %.64q: %v", a.Name, err)
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
		v.roots[other.Size] = other.Root
		vouched = vouched || other.alone && other.Size >= own.Size
	}
	if !good {
		row.Absent = "without a signed checkpoint there is nothing to compare others with"
		return
	}
	vouched = v.copies(others) || vouched
	if !own.alone && !vouched {
		v.rows[report.RowSignature].Fail("the checkpoint is signed only by key %s, which is revoked, and nothing proves that it was signed before the revocation", own.by)
	}
}

// consistent verifies that the longer log of the two extends the shorter one.
func (v *verification) consistent(own, other logproof.Checkpoint, proof []byte) error {
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
func (v *verification) covers(size uint64) bool {
	n := len(v.b.Entries)
	return n > 0 && v.b.Entries[n-1].Seq < size
}

func (v *verification) earn(c report.Claim) {
	if !v.earned.AtLeast(c) {
		v.earned = c
	}
}
