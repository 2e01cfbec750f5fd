package audit

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"

	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// reader returns the hashes of the tree of the newest checkpoint. It verifies
// each tile that it reads against the root, so a damaged one proves nothing.
func (t *Tree) reader(ctx context.Context, size uint64) (sumtlog.HashReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	c, has := t.latest.Checkpoint, t.size
	t.mu.Unlock()
	if has < c.Size {
		return nil, fmt.Errorf("log tree: being rebuilt, %d of %s so far", has, record.Plural(c.Size, "entry"))
	}
	if size > c.Size {
		return nil, fmt.Errorf("log tree: no checkpoint covers %s yet: the newest covers %d", record.Plural(size, "entry"), c.Size)
	}
	return sumtlog.TileHashReader(sumtlog.Tree{N: int64(c.Size), Hash: sumtlog.Hash(c.Root)}, t.tiles), nil //nolint:gosec // G115: a log does not reach 2^63 entries
}

// Root returns the root of the first size entries. A checkpoint must cover them.
func (t *Tree) Root(ctx context.Context, size uint64) (logproof.Hash, error) {
	r, err := t.reader(ctx, size)
	if err != nil || size == 0 {
		return logproof.EmptyRoot(), err
	}
	root, err := sumtlog.TreeHash(int64(size), r) //nolint:gosec // G115: see reader
	if err != nil {
		return logproof.Hash{}, t.inconsistent(ctx, "root of "+record.Plural(size, "entry"), err)
	}
	return logproof.Hash(root), nil
}

// Roots returns the roots of the first sizes[i] entries, where sizes ascend. A
// checkpoint must cover them. It reads each tile at most once, and skips those that
// lie between two sizes.
func (t *Tree) Roots(ctx context.Context, sizes []uint64) ([]logproof.Hash, error) {
	if len(sizes) == 0 {
		return nil, nil
	}
	if _, err := t.reader(ctx, sizes[len(sizes)-1]); err != nil {
		return nil, err
	}
	_, c := t.Latest()
	w := &walker{tiles: t.tiles, size: c.Size, sum: logproof.NewRange()}
	roots := make([]logproof.Hash, 0, len(sizes))
	for _, size := range append(slices.Clone(sizes), c.Size) {
		if size < w.sum.Size() {
			return nil, fmt.Errorf("log tree: sizes %d and %d do not ascend", w.sum.Size(), size)
		}
		root, err := w.rootAt(ctx, size)
		if err != nil {
			return nil, t.inconsistent(ctx, "root of "+record.Plural(size, "entry"), err)
		}
		roots = append(roots, root)
	}
	if last := len(roots) - 1; roots[last] != c.Root { // which all tiles above lead to
		return nil, t.inconsistent(ctx, "the tiles differ from the checkpoint of "+record.Plural(c.Size, "entry"), errDamaged)
	}
	return roots[:len(sizes)], nil
}

// walker adds up the tiles of a tree.
type walker struct {
	tiles
	size uint64 // of the tree
	sum  *logproof.Range
	held [2]struct { // the tile of each level that was read last
		index uint64
		b     []byte
	}
}

func (w *walker) rootAt(ctx context.Context, size uint64) (logproof.Hash, error) {
	for w.sum.Size() < size {
		at, level := w.sum.Size(), 0
		if at%width == 0 && size-at >= width {
			level = 1
		}
		tile, err := w.tile(ctx, level, at>>(height*level)/width)
		if err != nil {
			return logproof.Hash{}, err
		}
		for i := at >> (height * level) % width; i < uint64(len(tile)/hashSize) && size-w.sum.Size() >= 1<<(height*level); i++ {
			if err := w.sum.AddTree(height*level, logproof.Hash(tile[i*hashSize:(i+1)*hashSize])); err != nil {
				return logproof.Hash{}, err
			}
		}
	}
	return w.sum.Root()
}

func (w *walker) tile(ctx context.Context, level int, index uint64) ([]byte, error) {
	if h := w.held[level]; h.b != nil && h.index == index {
		return h.b, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := w.hashes(coord(level, index, int(min(width, w.size>>(height*level)-index*width)))) //nolint:gosec // G115: at most 256
	w.held[level].index, w.held[level].b = index, b
	return b, err
}

// InclusionProof returns the proof that entry number index is among the first
// size entries. A checkpoint must cover them.
func (t *Tree) InclusionProof(ctx context.Context, index, size uint64) ([]logproof.Hash, error) {
	if index >= size {
		return nil, fmt.Errorf("log tree: entry #%d is not among the first %d", index, size)
	}
	r, err := t.reader(ctx, size)
	if err != nil {
		return nil, err
	}
	p, err := sumtlog.ProveRecord(int64(size), int64(index), r) //nolint:gosec // G115: see reader
	if err != nil {
		return nil, t.inconsistent(ctx, fmt.Sprintf("proof of entry #%d", index), err)
	}
	return hashes(p), nil
}

// ConsistencyProof returns the proof that the log of to entries extends the log of
// from. A checkpoint must cover both.
func (t *Tree) ConsistencyProof(ctx context.Context, from, to uint64) ([]logproof.Hash, error) {
	if from > to {
		return nil, fmt.Errorf("log tree: a log of %s does not extend one of %d", record.Plural(to, "entry"), from)
	}
	r, err := t.reader(ctx, to)
	if err != nil || from == 0 || from == to {
		return []logproof.Hash{}, err
	}
	p, err := sumtlog.ProveTree(int64(to), int64(from), r) //nolint:gosec // G115: see reader
	if err != nil {
		return nil, t.inconsistent(ctx, fmt.Sprintf("proof from %d to %s", from, record.Plural(to, "entry")), err)
	}
	return hashes(p), nil
}

func hashes(list []sumtlog.Hash) []logproof.Hash {
	out := make([]logproof.Hash, len(list))
	for i := range list {
		out[i] = logproof.Hash(list[i])
	}
	return out
}

// Files returns the log in the layout of C2SP tlog-tiles: checkpoint, tile/L/N
// and tile/entries/N, to be opened by name. It contains nothing else and cannot
// be written.
func (t *Tree) Files() fs.FS { return files{t} }

type files struct{ t *Tree }

// tileNames matches the paths of the layout: a level of at most 63, groups of three
// digits, and for a partial tile a width of 1 to 255.
var tileNames = regexp.MustCompile(`^tile/(?:entries|[0-9]|[1-5][0-9]|6[0-3])/(?:x[0-9]{3}/){0,6}[0-9]{3}(?:\.p/(?:[1-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?$`) //nolint:gochecknoglobals // a constant

// Open implements fs.FS.
func (f files) Open(name string) (fs.File, error) {
	refuse := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	switch {
	case !fs.ValidPath(name):
		return refuse(fs.ErrInvalid)
	case name == checkpointName:
		return os.Open(path.Join(f.t.cfg.Dir, checkpointName))
	case !tileNames.MatchString(name):
		return refuse(fs.ErrNotExist)
	}
	return os.Open(path.Join(f.t.tiles.dir, name)) //nolint:gosec // G304: a name of the layout
}
