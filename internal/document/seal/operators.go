package seal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Operators is the chain of the sets of operator keys of one service. Set 1 is
// operators.json. Each further set is in a record that the set before it signed, under
// its threshold. The service and the verifier accept a record by Open and no other
// rule. It is not safe for concurrent use.
type Operators struct{ succession }

// NewOperators returns the chain whose only set is operators.json.
func NewOperators(first TrustRoot) (*Operators, error) {
	c, err := newSuccession("operator", "operators.json", first)
	if err == nil {
		err = first.checkOwners()
	}
	if err != nil {
		return nil, err
	}
	return &Operators{c}, nil
}

// Clone returns a copy that Follow of o does not change.
func (o *Operators) Clone() *Operators { return &Operators{o.clone()} }

// Root returns the set in force, which the caller does not change.
func (o *Operators) Root() TrustRoot { return o.root }

// Digest returns the digest of the set in force.
func (o *Operators) Digest() api.Digest { return o.digest }

// Number returns the number of the set in force, from 1.
func (o *Operators) Number() uint64 { return o.number }

// Assigned reports whether each key of the set in force belongs to a principal. A set
// from before that names nobody.
func (o *Operators) Assigned() bool { return o.root.Assigned() }

// Owner returns the principal of a key of the set in force; empty without one.
func (o *Operators) Owner(id KeyID) api.Principal {
	k, _ := o.root.find(id)
	return k.Principal
}

// Open decodes the record in e into rec, and returns the keys of the set in force that
// signed it, sorted. decode refuses all but the canonical encoding. It is an error unless
// the keys are Enough. The caller has applied all records before this one: a retired key
// signs nothing more, and what it signed while it was in force stays valid.
func (o *Operators) Open(e *Envelope, decode func(payload []byte, rec any) error, rec *api.OperatorRecord) ([]KeyID, error) {
	one := o.root
	one.Threshold = 1 // Enough counts
	ids, err := VerifyAll([]*Envelope{e}, one)
	if err == nil {
		err = decode(e.Payload(), rec)
	}
	if err == nil {
		err = rec.Check()
	}
	if err == nil {
		err = o.Enough(rec, ids)
	}
	if errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrThreshold) {
		for _, id := range e.Signers() {
			if set, ok := o.retired[id]; ok {
				return ids, fmt.Errorf("%w: key %s is retired since set %d of the operator keys", err, id, set)
			}
		}
	}
	return ids, err
}

// ErrOwner means that a vote is signed with a key that does not belong to its voter.
var ErrOwner = errors.New("a vote counts only under the voter's own key")

// Enough returns an error unless keys of the set in force may sign rec: ErrThreshold if
// it needs more of them. Once keys have principals, the threshold counts people, and
// a vote takes a key of its voter and none of anybody else, whatever the threshold.
func (o *Operators) Enough(rec *api.OperatorRecord, ids []KeyID) error {
	signed := len(ids)
	if o.Assigned() {
		var people []api.Principal
		for _, id := range ids {
			owner := o.Owner(id)
			if rec.Vote() && !owner.SameName(rec.Principal) {
				return fmt.Errorf("%w: key %s belongs to %s, not to %s", ErrOwner, id, owner, rec.Principal)
			}
			if !slices.ContainsFunc(people, owner.SamePerson) {
				people = append(people, owner)
			}
		}
		if signed = len(people); rec.Vote() && signed > 0 {
			return nil
		}
	}
	if signed < o.root.Threshold {
		return fmt.Errorf("%w: %d of %d", ErrThreshold, signed, o.root.Threshold)
	}
	return nil
}

// Withdraws reports whether the removal of a principal ends the approving votes of a voter:
// once keys have principals, human:NAME and local:NAME are one person, as for Enough.
func (o *Operators) Withdraws(removed, voter api.Principal) bool {
	return removed == voter || o.Assigned() && removed.SameName(voter)
}

// Assigned reports whether a key of r has a principal. In a valid set of operator keys all
// of them have, or none: see checkOwners.
func (r TrustRoot) Assigned() bool {
	return slices.ContainsFunc(r.Keys, func(k Key) bool { return k.Principal != "" })
}

// checkOwners refuses a set in which only some operator keys have a principal, and a set
// that belongs to too few people for its threshold.
func (r TrustRoot) checkOwners() error {
	if !r.Assigned() {
		return nil
	}
	var people []api.Principal
	for _, k := range r.Keys {
		switch kind, _, _ := strings.Cut(string(k.Principal), ":"); kind {
		case "":
			return fmt.Errorf("operator keys: key %s has no principal, but others have", k.ID)
		case "agent":
			return fmt.Errorf("operator keys: key %s belongs to %s: an AI has no operator key", k.ID, k.Principal)
		}
		if !slices.ContainsFunc(people, k.Principal.SamePerson) {
			people = append(people, k.Principal)
		}
	}
	if r.Threshold > len(people) {
		return fmt.Errorf("operator keys: threshold %d, but the keys belong to %d: want at most one for each of them", r.Threshold, len(people))
	}
	return nil
}

// sameOwners refuses a set that takes a key from its principal.
func (o *Operators) sameOwners(next TrustRoot) error {
	if !o.Assigned() {
		return nil
	}
	for _, k := range next.Keys {
		if k.Principal == "" {
			return fmt.Errorf("key %s has no principal", k.ID)
		}
		i := slices.IndexFunc(o.root.Keys, func(was Key) bool { return bytes.Equal(was.Public, k.Public) })
		if i >= 0 && o.root.Keys[i].Principal != k.Principal {
			return fmt.Errorf("key %s belongs to %s and to no one else: retire it, and add another key of %s", k.ID, o.root.Keys[i].Principal, k.Principal)
		}
	}
	return nil
}

// Follow puts the set of a record in force that Open accepted. After an error o is
// unchanged.
func (o *Operators) Follow(s *api.OperatorSet) error {
	return o.follow(s, func(next TrustRoot) error {
		if err := next.checkOwners(); err != nil {
			return err
		}
		if err := o.sameOwners(next); err != nil {
			return fmt.Errorf("operator keys: set %d: %w", s.Number, err)
		}
		return nil
	})
}

// Digest returns the digest of the canonical bytes of r, without a line feed. It names r
// as a set of operator keys.
func (r TrustRoot) Digest() (api.Digest, error) {
	if err := r.Validate(); err != nil {
		return "", err
	}
	b, err := canon.Marshal(r)
	return api.DigestOf(b), err
}

// Has reports whether r lists a key.
func (r TrustRoot) Has(id KeyID) bool {
	return slices.ContainsFunc(r.Keys, func(k Key) bool { return k.ID == id })
}
