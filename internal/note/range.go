package note

import (
	"fmt"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Range is a log of which only what its root needs is kept: entries are added
// in their order, and the root is known after each. The zero value is refused;
// NewRange makes one. It belongs to one goroutine.
type Range struct{ r *compact.Range }

// NewRange returns a range over no entries.
func NewRange() *Range {
	return &Range{factory().NewEmptyRange(0)}
}

// ResumeRange returns a range over size entries, from the nodes that Nodes
// returned for it. Nothing checks that these are the nodes: compare the root.
func ResumeRange(size uint64, nodes []Hash) (*Range, error) {
	r, err := factory().NewRange(0, size, views(nodes))
	if err != nil {
		return nil, fmt.Errorf("range over %d entries: %w", size, err)
	}
	return &Range{r}, nil
}

func factory() *compact.RangeFactory {
	return &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
}

// Add adds the next entry by its leaf hash.
func (r *Range) Add(leaf Hash) error { return r.r.Append(leaf[:], nil) }

// Size returns how many entries were added.
func (r *Range) Size() uint64 { return r.r.End() }

// Root returns the root of the tree over them.
func (r *Range) Root() (Hash, error) {
	if r.Size() == 0 {
		return EmptyRoot(), nil
	}
	root, err := r.r.GetRootHash(nil)
	if err != nil {
		return Hash{}, err
	}
	return Hash(root), nil
}

// Nodes returns the roots of the whole subtrees, the largest first.
func (r *Range) Nodes() []Hash {
	nodes := r.r.Hashes()
	out := make([]Hash, len(nodes))
	for i := range nodes {
		out[i] = Hash(nodes[i])
	}
	return out
}
