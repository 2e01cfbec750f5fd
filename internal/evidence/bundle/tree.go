package bundle

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Prove returns one proof that all entries are in the log of size entries: the roots
// of the largest subtrees without any of them, from first to last. entries are
// numbers in ascending order; path returns the inclusion proof of one (RFC 6962,
// section 2.1.1).
func Prove(entries []uint64, size uint64, path func(index uint64) ([]note.Hash, error)) ([]note.Hash, error) {
	if len(entries) == 0 || entries[len(entries)-1] >= size {
		return nil, fmt.Errorf("evidence: no entries, or one beyond the log of %d entries", size)
	}
	p := prover{path: path}
	err := p.walk(entries, 0, size, 0)
	return p.out, err
}

type prover struct {
	path  func(uint64) ([]note.Hash, error)
	index uint64      // of the entry whose path is have
	have  []note.Hash // nil at first
	out   []note.Hash
}

// walk adds the roots within the subtree over lo to hi, which has some of the
// entries.
func (p *prover) walk(entries []uint64, lo, hi uint64, depth int) error {
	if hi-lo == 1 {
		return nil
	}
	mid := lo + split(hi-lo)
	left, right := cut(entries, mid)
	if len(left) == 0 {
		if err := p.sibling(right[0], depth); err != nil {
			return err
		}
	} else if err := p.walk(left, lo, mid, depth+1); err != nil {
		return err
	}
	if len(right) == 0 {
		return p.sibling(left[len(left)-1], depth)
	}
	return p.walk(right, mid, hi, depth+1)
}

// sibling adds the root of the sibling subtree of an entry.
func (p *prover) sibling(index uint64, depth int) error {
	if p.have == nil || p.index != index {
		have, err := p.path(index)
		if err != nil {
			return err
		}
		p.index, p.have = index, have
	}
	at := len(p.have) - 1 - depth // a path begins at the entry's sibling
	if at < 0 {
		return fmt.Errorf("evidence: the inclusion proof of entry #%d is too short", index)
	}
	p.out = append(p.out, p.have[at])
	return nil
}

// Root computes the root of a log of size entries from the leaf hashes of some of
// them and the proof that Prove returned for these. It refuses a proof with too few
// or too many hashes.
func Root(entries []uint64, leaves []note.Hash, size uint64, proof []note.Hash) (note.Hash, error) {
	if len(entries) == 0 || len(entries) != len(leaves) || entries[len(entries)-1] >= size {
		return note.Hash{}, errors.New("no entries, or one beyond the log")
	}
	for i := 1; i < len(entries); i++ {
		if entries[i-1] >= entries[i] {
			return note.Hash{}, errors.New("entries out of order")
		}
	}
	r := rooter{proof: proof}
	root, err := r.walk(entries, leaves, 0, size)
	if err == nil && len(r.proof) > 0 {
		err = errors.New("more hashes than are needed")
	}
	return root, err
}

type rooter struct{ proof []note.Hash }

func (r *rooter) walk(entries []uint64, leaves []note.Hash, lo, hi uint64) (note.Hash, error) {
	switch {
	case len(entries) == 0 && len(r.proof) == 0:
		return note.Hash{}, errors.New("too few hashes")
	case len(entries) == 0:
		h := r.proof[0]
		r.proof = r.proof[1:]
		return h, nil
	case hi-lo == 1:
		return leaves[0], nil
	}
	mid := lo + split(hi-lo)
	left, right := cut(entries, mid)
	l, err := r.walk(left, leaves[:len(left)], lo, mid)
	if err != nil {
		return note.Hash{}, err
	}
	h, err := r.walk(right, leaves[len(left):], mid, hi)
	if err != nil {
		return note.Hash{}, err
	}
	return note.Hash(rfc6962.DefaultHasher.HashChildren(l[:], h[:])), nil
}

// split is the largest power of two below n, which is more than 1.
func split(n uint64) uint64 { return 1 << (bits.Len64(n-1) - 1) }

// cut splits entries at mid.
func cut(entries []uint64, mid uint64) (left, right []uint64) {
	i, _ := slices.BinarySearch(entries, mid)
	return entries[:i], entries[i:]
}
