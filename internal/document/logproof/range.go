package logproof

import (
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
)

// Range computes the root of a log whose entries are added in order. It keeps
// only one hash per level. NewRange returns one; the zero value is invalid. It
// belongs to one goroutine.
type Range struct {
	r       *compact.Range
	factory *compact.RangeFactory
}

// NewRange returns a range over no entries.
func NewRange() *Range {
	factory := &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	return &Range{factory.NewEmptyRange(0), factory}
}

// Add adds the next entry by its leaf hash.
func (r *Range) Add(leaf Hash) error { return r.r.Append(leaf[:], nil) }

// AddTree adds the next 2^level entries by the root of the tree over them. The size
// must be a multiple of that number.
func (r *Range) AddTree(level int, root Hash) error {
	from := r.Size()
	tree, err := r.factory.NewRange(from, from+1<<level, [][]byte{root[:]})
	if err != nil {
		return err
	}
	return r.r.AppendRange(tree, nil)
}

// Size returns the number of entries.
func (r *Range) Size() uint64 { return r.r.End() }

// Root returns the root of the tree over the entries.
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
