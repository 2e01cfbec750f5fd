package bundle

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Prove returns what is needed beside entries to compute the root of the first
// size entries of a log: the roots of the largest subtrees that hold none of
// them, from the first to the last. Entries are numbers in ascending order.
// Path returns the inclusion proof of one (RFC 6962, section 2.1.1).
func Prove(entries []uint64, size uint64, path func(index uint64) ([]note.Hash, error)) ([]note.Hash, error) {
	if len(entries) == 0 || entries[len(entries)-1] >= size {
		return nil, fmt.Errorf("evidence: no entries, or one beyond the log of size %d", size)
	}
	p := prover{path: path}
	err := p.walk(entries, 0, size, 0)
	return p.out, err
}

type prover struct {
	path  func(uint64) ([]note.Hash, error)
	index uint64      // whose path
	have  []note.Hash // is this; nil: none yet
	out   []note.Hash
}

// walk adds what is needed of the subtree over lo to hi, which holds some of
// the entries.
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

// sibling adds the root of the subtree beside that of an entry.
func (p *prover) sibling(index uint64, depth int) error {
	if p.have == nil || p.index != index {
		have, err := p.path(index)
		if err != nil {
			return err
		}
		p.index, p.have = index, have
	}
	at := len(p.have) - 1 - depth // a path begins beside the entry
	if at < 0 {
		return fmt.Errorf("evidence: the inclusion proof of entry #%d is too short", index)
	}
	p.out = append(p.out, p.have[at])
	return nil
}

// Root computes the root of the first size entries of a log from some of them,
// whose leaf hashes are given, and what Prove returned for them. It does not
// read more of proof than it needs, and nothing may be left.
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

// cut parts entries at mid.
func cut(entries []uint64, mid uint64) (left, right []uint64) {
	lo, hi := 0, len(entries)
	for lo < hi {
		if m := (lo + hi) / 2; entries[m] < mid {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return entries[:lo], entries[lo:]
}
