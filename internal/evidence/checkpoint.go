package evidence

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// signed is a checkpoint whose signature was verified.
type signed struct {
	note.Checkpoint
	by    seal.KeyID
	alone bool // it counts by itself: see LogKey.Alone
}

// open verifies a signed checkpoint of this log.
func (v *verification) open(raw []byte) (signed, error) {
	var keys []ed25519.PublicKey
	for _, k := range v.log.Keys {
		keys = append(keys, k.Public)
	}
	c, by, err := note.Open(raw, v.log.Origin, keys...)
	if err != nil {
		return signed{}, err
	}
	if n := bytes.Count(raw, []byte("\n\u2014 ")); n != len(by) {
		return signed{}, fmt.Errorf("checkpoint of size %d: %d signatures, only %d of them by keys of this log", c.Size, n, len(by))
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
		return signed{}, fmt.Errorf("checkpoint of size %d: %w", c.Size, wrong)
	}
	return s, nil
}

// checkpoint verifies the bundle's own checkpoint and the others in it.
func (v *verification) checkpoint() {
	row := v.rows[RowSignature]
	v.cp, _ = note.Peek(v.b.Case.Checkpoint)
	var err error
	if v.log, err = v.trust.Log.Follow(v.b.Case.Rotations); err != nil {
		row.fail("%v", err)
	}
	v.statements = v.trust.statements(v.log)
	own, err := v.open(v.b.Case.Checkpoint)
	if err != nil {
		row.fail("%v", err)
	}
	vouched := v.anchored(own, err == nil)
	if err == nil && !own.alone && !vouched {
		row.fail("the checkpoint is signed only by key %s, which is revoked, and nothing proves that it was signed before the revocation", own.by)
	}
	row.checked++
	v.words[RowSignature] = fmt.Sprintf("the checkpoint of %s is signed by key %s", record.Plural(v.cp.Size, "entry"), own.by)
	if n := len(v.b.Case.Rotations); n > 0 {
		v.words[RowSignature] += fmt.Sprintf("; %s, each signed by the previous key", record.Plural(n, "key rotation"))
	}
}

// anchored verifies the other checkpoints against the bundle's own, and reports
// whether one that counts by itself covers it.
func (v *verification) anchored(own signed, good bool) (vouched bool) {
	row := v.rows[RowConsistency]
	v.rows[RowAnchor].absent = "no anchor receipt could be checked"
	v.rows[RowTime].absent = "no time-stamp checked: times are the service's clock"
	known := map[uint64]note.Hash{v.cp.Size: v.cp.Root} // proved to be of this log
	for i, a := range v.b.Case.Anchored {
		name := fmt.Sprintf("checkpoint %d in the bundle", i+1)
		if a.Name != "" {
			name = fmt.Sprintf("the checkpoint of anchor %.64q", a.Name)
		}
		other, err := v.open(a.Checkpoint)
		if err == nil {
			err = v.consistent(own.Checkpoint, other.Checkpoint, a.Proof)
		}
		if err != nil {
			if good {
				row.fail("%s: %v", name, err)
			}
			continue
		}
		// Consistency with itself, or with the empty log, proves nothing.
		if _, again := known[other.Size]; !again && other.Size > 0 {
			row.checked++
		}
		known[other.Size] = other.Root
		vouched = vouched || other.alone && other.Size >= own.Size
	}
	if !good {
		row.absent, row.wrong = "without a signed checkpoint there is nothing to compare others with", nil
		return false
	}
	held := v.held(known)
	for _, h := range held {
		vouched = vouched || h.alone && h.Size >= own.Size
	}
	v.receipts(held)
	v.words[RowConsistency] = fmt.Sprintf("consistent with this one: %s%s", record.Plural(row.checked, "other checkpoint"), v.unproved)
	switch {
	case row.checked > 0:
	case v.rows[RowAnchor].checked > 0:
		row.checked, v.words[RowConsistency] = 1, "an anchor holds this checkpoint"+v.unproved
	case row.absent == "":
		row.absent = "no other checkpoint to compare with"
	}
	return vouched
}

// consistent verifies that the longer log of the two extends the shorter one.
func (v *verification) consistent(own, other note.Checkpoint, proof []byte) error {
	hashes, err := bundle.ParseHashes(proof)
	if err != nil {
		return err
	}
	if other.Size < own.Size {
		return note.VerifyConsistency(other, own, hashes)
	}
	return note.VerifyConsistency(own, other, hashes)
}

// held compares the auditor's checkpoints with those proved to be of this log,
// and returns the ones that match. If one covers all entries, the entries are in
// the auditor's log; otherwise checkpoints without a proof here leave the
// question open.
func (v *verification) held(known map[uint64]note.Hash) (list []signed) {
	row := v.rows[RowConsistency]
	var open []string
	covered := false
	for i, raw := range append(slices.Clip(v.options.Held), v.options.Fetched...) {
		h, err := v.open(raw)
		if c, _ := note.Peek(raw); errors.Is(err, note.ErrUnsigned) && c.Origin == v.log.Origin && c.Size > v.cp.Size {
			// It may be signed by a key that followed after the export, which is unknown here.
			open = append(open, fmt.Sprint(c.Size))
			continue
		}
		if err != nil {
			row.fail("the auditor's checkpoint %d: %v", i+1, err)
			continue
		}
		root, ok := known[h.Size]
		switch {
		case !ok:
			open = append(open, fmt.Sprint(h.Size))
		case root != h.Root:
			row.fail("the auditor's checkpoint of %s is of another log signed by the same keys: one of the two is forged", record.Plural(h.Size, "entry"))
		default:
			row.checked++
			covered = covered || v.covers(h.Size)
			if i >= len(v.options.Held) {
				continue // the receipt and the trust file decide what it is worth
			}
			list = append(list, h)
			if v.covers(h.Size) {
				v.earn(ClaimTamperDetecting)
			}
		}
	}
	switch n := len(open); {
	case n == 0 && len(list) > 0 && !covered:
		v.unproved = "; the auditor's checkpoints are older than the last entry: a newer one would prove more"
	case n > 0 && covered:
		v.unproved = fmt.Sprintf("; no proof here for %d more of the auditor's checkpoints", n)
	case n > 0:
		row.absent = "the bundle has no proof for the auditor's checkpoint of " + strings.Join(open[:min(n, maxWrong)], ", ") + " entries"
		if n > maxWrong {
			row.absent += fmt.Sprintf(", and for %d more", n-maxWrong)
		}
		row.absent += ": export again with that checkpoint"
	}
	return list
}

// receipts checks the receipts of anchors.
func (v *verification) receipts(held []signed) {
	row := v.rows[RowAnchor]
	var have []note.Checkpoint
	for _, h := range held {
		have = append(have, h.Checkpoint)
	}
	var proved, unchecked []string
	for _, a := range v.b.Case.Anchored {
		if a.Name == "" {
			continue
		}
		other, err := v.open(a.Checkpoint)
		if err != nil || v.options.Receipts == nil {
			continue // the consistency row reports it
		}
		e, err := v.options.Receipts.Check(a, other.Checkpoint, v.trust, have)
		switch {
		case err != nil:
			row.fail("anchor %.64q: %v", a.Name, err)
		case !e.Checked:
			unchecked = append(unchecked, e.Why)
		case !v.covers(other.Size):
			unchecked = append(unchecked, e.Why+", not all of these")
		default:
			row.checked++
			proved = append(proved, e.Why)
			if e.Claim != "" {
				v.earn(e.Claim)
			}
			if e.Time != nil {
				v.stamp(e)
			}
		}
	}
	if row.checked > 0 {
		row.absent = ""
		v.words[RowAnchor] = strings.Join(append(proved, unchecked...), "; ")
	} else if len(unchecked) > 0 {
		row.absent = strings.Join(unchecked, "; ")
	}
}

// covers reports whether a log of this size has every entry of the bundle.
func (v *verification) covers(size uint64) bool {
	n := len(v.b.Entries)
	return n > 0 && v.b.Entries[n-1].Seq < size
}

func (v *verification) earn(c Claim) {
	if c.rank() > v.earned.rank() {
		v.earned = c
	}
}

func (v *verification) stamp(e Earned) {
	row := v.rows[RowTime]
	row.absent = ""
	row.checked++
	if v.attested == nil || e.Time.Before(*v.attested) {
		v.attested = e.Time
		v.words[RowTime] = e.Why
	}
	for i := range v.entries {
		// Entries that are rules may be much older, from before the clock was corrected.
		if x := &v.entries[i]; x.ok && !x.Kind.Rules() && x.At.After(e.Time.Add(clockSlack)) {
			row.fail("entry #%d is dated %s, but the checkpoint that includes it was time-stamped %s", x.seq, x.At.UTC(), e.Time.UTC())
			return
		}
	}
}
