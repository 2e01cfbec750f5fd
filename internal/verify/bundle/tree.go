package bundle

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// Prove returns one proof that all entries are in the log of size entries, and of
// the roots that the log had at the given smaller sizes: the roots of the largest
// subtrees without any of the entries and without one of the sizes within, from
// first to last. entries and sizes are in ascending order; path returns the
// inclusion proof of one entry (RFC 6962, section 2.1.1).
func Prove(entries, sizes []uint64, size uint64, path func(index uint64) ([]logproof.Hash, error)) ([]logproof.Hash, error) {
	if err := provable(entries, sizes, size); err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	p := prover{path: path}
	err := p.walk(entries, sizes, 0, size, 0)
	return p.out, err
}

func provable(entries, sizes []uint64, size uint64) error {
	if !ascending(entries) || !ascending(sizes) {
		return errors.New("entries or sizes out of order")
	}
	if len(entries) == 0 || entries[len(entries)-1] >= size || len(sizes) > 0 && (sizes[0] == 0 || sizes[len(sizes)-1] >= size) {
		return fmt.Errorf("no entries, or an entry or a size beyond the log of %d entries", size)
	}
	return nil
}

func ascending(list []uint64) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1] >= list[i] {
			return false
		}
	}
	return true
}

type prover struct {
	path   func(uint64) ([]logproof.Hash, error)
	recent [2]pathOf // the last two: those on both sides of a size are needed by turns
	out    []logproof.Hash
}

type pathOf struct {
	index  uint64
	hashes []logproof.Hash // nil: none
}

// walk adds the roots within the subtree over lo to hi, which has some of the
// entries, or some of the sizes within.
func (p *prover) walk(entries, sizes []uint64, lo, hi uint64, depth int) error {
	if hi-lo == 1 {
		return nil
	}
	mid := lo + split(hi-lo)
	left, right := halves(entries, sizes, mid)
	for _, h := range []struct {
		half
		lo, hi, beside uint64 // beside is an entry of the other half
	}{{left, lo, mid, right.first(mid)}, {right, mid, hi, left.last(mid)}} {
		var err error
		if h.empty() {
			err = p.sibling(h.beside, depth)
		} else {
			err = p.walk(h.entries, h.sizes, h.lo, h.hi, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// half is the entries of a subtree, and the sizes within it.
type half struct{ entries, sizes []uint64 }

func (h half) empty() bool { return len(h.entries)+len(h.sizes) == 0 }

// first returns an entry of a half that begins at mid: one whose path is needed
// anyway, if there is one.
func (h half) first(mid uint64) uint64 {
	switch {
	case len(h.entries) > 0:
		return h.entries[0]
	case len(h.sizes) > 0:
		return h.sizes[0] - 1
	}
	return mid
}

// last likewise returns an entry of a half that ends at mid.
func (h half) last(mid uint64) uint64 {
	switch {
	case len(h.entries) > 0:
		return h.entries[len(h.entries)-1]
	case len(h.sizes) > 0:
		return h.sizes[len(h.sizes)-1] - 1
	}
	return mid - 1
}

// halves cuts entries and sizes at mid. A log of mid entries is the whole left half.
func halves(entries, sizes []uint64, mid uint64) (left, right half) {
	i, _ := slices.BinarySearch(entries, mid)
	j, whole := slices.BinarySearch(sizes, mid)
	left, right = half{entries[:i], sizes[:j]}, half{entries[i:], sizes[j:]}
	if whole {
		right.sizes = right.sizes[1:]
	}
	return left, right
}

// sibling adds the root of the sibling subtree of an entry.
func (p *prover) sibling(index uint64, depth int) error {
	have := p.recent[0]
	if have.hashes == nil || have.index != index {
		if have = p.recent[1]; have.hashes == nil || have.index != index {
			hashes, err := p.path(index)
			if err != nil {
				return err
			}
			have = pathOf{index, hashes}
		}
		p.recent = [2]pathOf{have, p.recent[0]}
	}
	at := len(have.hashes) - 1 - depth // a path begins at the entry's sibling
	if at < 0 {
		return fmt.Errorf("evidence: the inclusion proof of entry #%d is too short", index)
	}
	p.out = append(p.out, have.hashes[at])
	return nil
}

// Roots computes the root of a log of size entries, and those that it had at
// sizes, from the leaf hashes of some entries and the proof that Prove returned for
// these. It refuses a proof with too few or too many hashes.
func Roots(entries []uint64, leaves []logproof.Hash, sizes []uint64, size uint64, proof []logproof.Hash) (root logproof.Hash, earlier []logproof.Hash, err error) {
	if err := provable(entries, sizes, size); err != nil {
		return root, nil, err
	}
	if len(entries) != len(leaves) {
		return root, nil, errors.New("as many leaves as entries are needed")
	}
	r, earlier := rooter{proof: proof}, make([]logproof.Hash, len(sizes))
	root, err = r.walk(entries, leaves, sizes, earlier, 0, size)
	if err == nil && len(r.proof) > 0 {
		err = errors.New("more hashes than are needed")
	}
	return root, earlier, err
}

type rooter struct{ proof []logproof.Hash }

// walk returns the root of a subtree, and sets earlier to what the roots at sizes
// have of it.
func (r *rooter) walk(entries []uint64, leaves []logproof.Hash, sizes []uint64, earlier []logproof.Hash, lo, hi uint64) (logproof.Hash, error) {
	switch {
	case len(entries)+len(sizes) == 0 && len(r.proof) == 0:
		return logproof.Hash{}, errors.New("too few hashes")
	case len(entries)+len(sizes) == 0:
		h := r.proof[0]
		r.proof = r.proof[1:]
		return h, nil
	case hi-lo == 1:
		return leaves[0], nil
	}
	mid := lo + split(hi-lo)
	left, right := halves(entries, sizes, mid)
	n, after := len(left.sizes), len(sizes)-len(right.sizes)
	l, err := r.walk(left.entries, leaves[:len(left.entries)], left.sizes, earlier[:n], lo, mid)
	if err != nil {
		return logproof.Hash{}, err
	}
	h, err := r.walk(right.entries, leaves[len(left.entries):], right.sizes, earlier[after:], mid, hi)
	if err != nil {
		return logproof.Hash{}, err
	}
	if n < after {
		earlier[n] = l
	}
	for i := after; i < len(earlier); i++ {
		earlier[i] = children(l, earlier[i])
	}
	return children(l, h), nil
}

func children(l, r logproof.Hash) logproof.Hash {
	return logproof.Hash(rfc6962.DefaultHasher.HashChildren(l[:], r[:]))
}

// split is the largest power of two below n, which is more than 1.
func split(n uint64) uint64 { return 1 << (bits.Len64(n-1) - 1) }
