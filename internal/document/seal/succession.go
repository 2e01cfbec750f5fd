package seal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// succession is a chain of sets of keys. Set 1 is a file; each further set is signed by the
// set before it, under its threshold.
type succession struct {
	what, file string // the keys and the file of set 1, for messages

	root    TrustRoot         // in force
	digest  api.Digest        // of root
	number  uint64            // of root, from 1
	retired map[KeyID]uint64  // since which set
	gone    map[string]uint64 // likewise, by the bytes of the key, which may have another id as a passkey
}

func newSuccession(what, file string, first TrustRoot) (succession, error) {
	digest, err := first.Digest()
	return succession{what: what, file: file, root: first, digest: digest, number: 1, retired: map[KeyID]uint64{}, gone: map[string]uint64{}}, err
}

func (c succession) clone() succession {
	c.retired, c.gone = maps.Clone(c.retired), maps.Clone(c.gone)
	return c
}

// follow puts the set s in force, whose signatures the caller has verified. After an error
// c is unchanged. check refuses further sets.
func (c *succession) follow(s *api.OperatorSet, check func(TrustRoot) error) error {
	if s.Number != c.number+1 {
		return fmt.Errorf("%s keys: set %d does not follow set %d, which is in force", c.what, s.Number, c.number)
	}
	if s.Previous != c.digest {
		if c.number == 1 {
			return fmt.Errorf("%s keys: set 2 follows another set 1, %s: %s is %s", c.what, s.Previous, c.file, c.digest)
		}
		return fmt.Errorf("%s keys: set %d follows another set %d, %s: it is %s", c.what, s.Number, c.number, s.Previous, c.digest)
	}
	root, err := ParseTrustRoot(s.Root)
	if err != nil {
		return fmt.Errorf("%s keys: set %d: %w", c.what, s.Number, err)
	}
	digest, err := root.Digest()
	if err == nil {
		err = check(root)
	}
	if err != nil {
		return err
	}
	if digest == c.digest {
		return fmt.Errorf("%s keys: set %d has the keys and the threshold of set %d", c.what, s.Number, c.number)
	}
	for _, k := range root.Keys {
		set := max(c.retired[k.ID], c.gone[string(k.Public)])
		if set > 0 {
			return fmt.Errorf("%s keys: set %d has key %s, which set %d retired", c.what, s.Number, k.ID, set)
		}
	}
	for _, k := range c.root.Keys {
		if root.Has(k.ID) {
			continue
		}
		c.retired[k.ID] = s.Number
		if !slices.ContainsFunc(root.Keys, func(n Key) bool { return bytes.Equal(n.Public, k.Public) }) {
			c.gone[string(k.Public)] = s.Number
		}
	}
	c.root, c.digest, c.number = root, digest, s.Number
	return nil
}
