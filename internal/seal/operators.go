package seal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// Operators is the chain of the sets of operator keys of one service. Set 1 is
// operators.json. Each further set is in a record that the set before it signed, under
// its threshold. The service and the verifier accept a record by Open and no other
// rule. It is not safe for concurrent use.
type Operators struct {
	root    TrustRoot         // in force
	digest  api.Digest        // of root
	number  uint64            // of root, from 1
	retired map[KeyID]uint64  // since which set
	gone    map[string]uint64 // likewise, by the bytes of the key, which may have another id as a passkey
}

// NewOperators returns the chain whose only set is operators.json.
func NewOperators(first TrustRoot) (*Operators, error) {
	digest, err := first.Digest()
	if err != nil {
		return nil, err
	}
	return &Operators{root: first, digest: digest, number: 1, retired: map[KeyID]uint64{}, gone: map[string]uint64{}}, nil
}

// Clone returns a copy that Follow of o does not change.
func (o *Operators) Clone() *Operators {
	c := *o
	c.retired, c.gone = maps.Clone(o.retired), maps.Clone(o.gone)
	return &c
}

// Root returns the set in force, which the caller does not change.
func (o *Operators) Root() TrustRoot { return o.root }

// Digest returns the digest of the set in force.
func (o *Operators) Digest() api.Digest { return o.digest }

// Number returns the number of the set in force, from 1.
func (o *Operators) Number() uint64 { return o.number }

// Open returns the keys of the set in force that signed a record, sorted. It is an error
// unless they are as many as the threshold of the set. The caller has applied all
// records before this one: a retired key signs nothing more, and what it signed while
// it was in force stays valid.
func (o *Operators) Open(e *Envelope) ([]KeyID, error) {
	ids, err := VerifyAll([]*Envelope{e}, o.root)
	if errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrThreshold) {
		for _, id := range e.Signers() {
			if set, ok := o.retired[id]; ok {
				return ids, fmt.Errorf("%w: key %s is retired since set %d of the operator keys", err, id, set)
			}
		}
	}
	return ids, err
}

// Follow puts the set of a record in force that Open accepted. After an error o is
// unchanged.
func (o *Operators) Follow(s *api.OperatorSet) error {
	if s.Number != o.number+1 {
		return fmt.Errorf("operator keys: set %d does not follow set %d, which is in force", s.Number, o.number)
	}
	if s.Previous != o.digest {
		if o.number == 1 {
			return fmt.Errorf("operator keys: set 2 follows another set 1, %s: operators.json is %s", s.Previous, o.digest)
		}
		return fmt.Errorf("operator keys: set %d follows another set %d, %s: it is %s", s.Number, o.number, s.Previous, o.digest)
	}
	root, err := ParseTrustRoot(s.Root)
	if err != nil {
		return fmt.Errorf("operator keys: set %d: %w", s.Number, err)
	}
	digest, err := root.Digest()
	if err != nil {
		return err
	}
	if digest == o.digest {
		return fmt.Errorf("operator keys: set %d has the keys and the threshold of set %d", s.Number, o.number)
	}
	for _, k := range root.Keys {
		set := max(o.retired[k.ID], o.gone[string(k.Public)])
		if set > 0 {
			return fmt.Errorf("operator keys: set %d has key %s, which set %d retired", s.Number, k.ID, set)
		}
	}
	for _, k := range o.root.Keys {
		if root.Has(k.ID) {
			continue
		}
		o.retired[k.ID] = s.Number
		if !slices.ContainsFunc(root.Keys, func(n Key) bool { return bytes.Equal(n.Public, k.Public) }) {
			o.gone[string(k.Public)] = s.Number
		}
	}
	o.root, o.digest, o.number = root, digest, s.Number
	return nil
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
