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
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// signed is a checkpoint whose signature was verified.
type signed struct {
	note.Checkpoint
	by    seal.KeyID
	alone bool // it is worth something by itself
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
		return signed{}, fmt.Errorf("checkpoint of size %d: %d signatures, and %d of them by keys of this log", c.Size, n, len(by))
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

// checkpoint looks at the bundle's own checkpoint and at those that are beside
// it: four rows depend on these alone.
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
		row.fail("the checkpoint is signed by key %s alone, which is revoked, and nothing proves that it was signed before", own.by)
	}
	row.checked++
	v.words[RowSignature] = fmt.Sprintf("the checkpoint of %d entries is signed with key %s", v.cp.Size, own.by)
	if n := len(v.b.Case.Rotations); n > 0 {
		v.words[RowSignature] += fmt.Sprintf("; %d rotations of the key, each signed with the one before", n)
	}
}

// anchored looks at the other checkpoints, and reports whether one that is worth
// something by itself goes on from the bundle's.
func (v *verification) anchored(own signed, good bool) (vouched bool) {
	row := v.rows[RowConsistency]
	v.rows[RowAnchor].absent = "no receipt of an anchor could be checked"
	v.rows[RowTime].absent = "no time-stamp was checked: times are what the service's clock said"
	known := map[uint64]note.Hash{v.cp.Size: v.cp.Root} // proved to be of the same log
	for i, a := range v.b.Case.Anchored {
		name := fmt.Sprintf("checkpoint %d beside it", i+1)
		if a.Name != "" {
			name = fmt.Sprintf("the checkpoint of anchor %.64q", a.Name)
		}
		other, err := v.open(a.Checkpoint)
		if err == nil {
			err = v.goesOn(own.Checkpoint, other.Checkpoint, a.Proof)
		}
		if err != nil {
			if good {
				row.fail("%s: %v", name, err)
			}
			continue
		}
		// That it goes on nothing, or on itself, says nothing about a log.
		if _, again := known[other.Size]; !again && other.Size > 0 {
			row.checked++
		}
		known[other.Size] = other.Root
		vouched = vouched || other.alone && other.Size >= own.Size
	}
	if !good {
		row.absent, row.wrong = "without a signed checkpoint there is nothing that others could go on", nil
		return false
	}
	held := v.held(known)
	for _, h := range held {
		vouched = vouched || h.alone && h.Size >= own.Size
	}
	v.receipts(held)
	v.words[RowConsistency] = fmt.Sprintf("%d other checkpoints are of one log with this one%s", row.checked, v.unproved)
	switch {
	case row.checked > 0:
	case v.rows[RowAnchor].checked > 0:
		row.checked, v.words[RowConsistency] = 1, "an anchor has this very checkpoint"+v.unproved
	case row.absent == "":
		row.absent = "there is no other checkpoint to hold this one against"
	}
	return vouched
}

// goesOn holds two checkpoints against each other, whichever is the longer.
func (v *verification) goesOn(own, other note.Checkpoint, proof []byte) error {
	hashes, err := bundle.ParseHashes(proof)
	if err != nil {
		return err
	}
	if other.Size < own.Size {
		return note.VerifyConsistency(other, own, hashes)
	}
	return note.VerifyConsistency(own, other, hashes)
}

// held holds what the auditor has against what is proved, and returns what is
// of the same log. One that covers all of this says that these entries are in
// the auditor's log, whatever became of it later; without one, those that
// cannot be held against it leave the question open.
func (v *verification) held(known map[uint64]note.Hash) (list []signed) {
	row := v.rows[RowConsistency]
	var open []string
	covered := false
	for i, raw := range append(slices.Clip(v.options.Held), v.options.Fetched...) {
		h, err := v.open(raw)
		if c, _ := note.Peek(raw); errors.Is(err, note.ErrUnsigned) && c.Origin == v.log.Origin && c.Size > v.cp.Size {
			// By a key that came after this bundle was made, perhaps: it is not known here.
			open = append(open, fmt.Sprint(c.Size))
			continue
		}
		if err != nil {
			row.fail("checkpoint %d of the auditor: %v", i+1, err)
			continue
		}
		root, ok := known[h.Size]
		switch {
		case !ok:
			open = append(open, fmt.Sprint(h.Size))
		case root != h.Root:
			row.fail("the auditor has another log of %d entries than this one, signed with the same keys: one of the two is a forgery", h.Size)
		default:
			row.checked++
			covered = covered || v.covers(h.Size)
			if i >= len(v.options.Held) {
				continue // what it is worth is for the receipt and the trust file to say
			}
			list = append(list, h)
			if v.covers(h.Size) {
				v.earn(ClaimTamperDetecting)
			}
		}
	}
	switch n := len(open); {
	case n == 0 && len(list) > 0 && !covered:
		v.unproved = "; the auditor's are from before the end of this: with a newer one more could be said"
	case n > 0 && covered:
		v.unproved = fmt.Sprintf("; of %d more of the auditor's there is no proof here", n)
	case n > 0:
		row.absent = "the bundle has no proof for the auditor's checkpoint of " + strings.Join(open[:min(n, maxWrong)], ", ") + " entries"
		if n > maxWrong {
			row.absent += fmt.Sprintf(", and for %d more", n-maxWrong)
		}
		row.absent += ": have it exported again, with that checkpoint"
	}
	return list
}

// receipts asks what the receipts earn.
func (v *verification) receipts(held []signed) {
	row := v.rows[RowAnchor]
	var have []note.Checkpoint
	for _, h := range held {
		have = append(have, h.Checkpoint)
	}
	var said, unsaid []string
	for _, a := range v.b.Case.Anchored {
		if a.Name == "" {
			continue
		}
		other, err := v.open(a.Checkpoint)
		if err != nil || v.options.Receipts == nil {
			continue // and consistency says so
		}
		e, err := v.options.Receipts.Check(a, other.Checkpoint, v.trust, have)
		switch {
		case err != nil:
			row.fail("anchor %.64q: %v", a.Name, err)
		case !e.Checked:
			unsaid = append(unsaid, e.Why)
		case !v.covers(other.Size):
			unsaid = append(unsaid, e.Why+", which are not all of these")
		default:
			row.checked++
			said = append(said, e.Why)
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
		v.words[RowAnchor] = strings.Join(append(said, unsaid...), "; ")
	} else if len(unsaid) > 0 {
		row.absent = strings.Join(unsaid, "; ")
	}
}

// covers reports whether every entry of the bundle is in a log of this size:
// what somebody knows of a shorter one says nothing about what came later.
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
		// What was allowed may have been decided long before, by a clock that was
		// wrong and has been put right since.
		if x := &v.entries[i]; x.ok && !x.Kind.Rules() && x.At.After(e.Time.Add(clockSlack)) {
			row.fail("entry #%d says that it was made at %s, and the checkpoint that has it was stamped at %s", x.seq, x.At.UTC(), e.Time.UTC())
			return
		}
	}
}
