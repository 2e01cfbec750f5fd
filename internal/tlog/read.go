package tlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"

	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// reader returns the hashes of the tree of the newest checkpoint. Each tile
// that is read is held against its root, so nothing follows from one that is
// damaged.
func (l *Log) reader(ctx context.Context, size uint64) (sumtlog.HashReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	c, has := l.latest.Checkpoint, l.size
	l.mu.Unlock()
	if has < c.Size {
		return nil, fmt.Errorf("log tree: it is built again and has %d of %d entries", has, c.Size)
	}
	if size > c.Size {
		return nil, fmt.Errorf("log tree: no checkpoint covers %d entries yet: the newest covers %d", size, c.Size)
	}
	return sumtlog.TileHashReader(sumtlog.Tree{N: int64(c.Size), Hash: sumtlog.Hash(c.Root)}, l.tiles), nil //nolint:gosec // G115: a log does not reach 2^63 entries
}

// Root returns the root of the first size entries, which a checkpoint covers.
func (l *Log) Root(ctx context.Context, size uint64) (note.Hash, error) {
	r, err := l.reader(ctx, size)
	if err != nil || size == 0 {
		return note.EmptyRoot(), err
	}
	root, err := sumtlog.TreeHash(int64(size), r) //nolint:gosec // G115: see reader
	if err != nil {
		return note.Hash{}, fmt.Errorf("log tree: root of %d entries: %w", size, err)
	}
	return note.Hash(root), nil
}

// InclusionProof returns the proof that entry number index is among the first
// size entries, which a checkpoint covers.
func (l *Log) InclusionProof(ctx context.Context, index, size uint64) ([]note.Hash, error) {
	if index >= size {
		return nil, fmt.Errorf("log tree: entry #%d is not among the first %d", index, size)
	}
	r, err := l.reader(ctx, size)
	if err != nil {
		return nil, err
	}
	p, err := sumtlog.ProveRecord(int64(size), int64(index), r) //nolint:gosec // G115: see reader
	if err != nil {
		return nil, fmt.Errorf("log tree: proof of entry #%d: %w", index, err)
	}
	return hashes(p), nil
}

// ConsistencyProof returns the proof that the first to entries, which a
// checkpoint covers, begin with the first from.
func (l *Log) ConsistencyProof(ctx context.Context, from, to uint64) ([]note.Hash, error) {
	if from > to {
		return nil, fmt.Errorf("log tree: a log of %d entries does not go on one of %d", to, from)
	}
	r, err := l.reader(ctx, to)
	if err != nil || from == 0 || from == to {
		return []note.Hash{}, err
	}
	p, err := sumtlog.ProveTree(int64(to), int64(from), r) //nolint:gosec // G115: see reader
	if err != nil {
		return nil, fmt.Errorf("log tree: proof from %d to %d entries: %w", from, to, err)
	}
	return hashes(p), nil
}

func hashes(list []sumtlog.Hash) []note.Hash {
	out := make([]note.Hash, len(list))
	for i := range list {
		out[i] = note.Hash(list[i])
	}
	return out
}

// Files returns what the log is for others, in the layout of C2SP tlog-tiles:
// checkpoint, tile/L/N and tile/entries/N, to be opened by name. Nothing else
// is there, and nothing can be written.
func (l *Log) Files() fs.FS { return files{l} }

type files struct{ l *Log }

// names are those of the layout: a level of at most 63, groups of three digits,
// and for the right edge a width of 1 to 255.
var names = regexp.MustCompile(`^tile/(?:entries|[0-9]|[1-5][0-9]|6[0-3])/(?:x[0-9]{3}/){0,6}[0-9]{3}(?:\.p/(?:[1-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]))?$`) //nolint:gochecknoglobals // a constant

// Open implements fs.FS.
func (f files) Open(name string) (fs.File, error) {
	refuse := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	switch {
	case !fs.ValidPath(name):
		return refuse(fs.ErrInvalid)
	case name == markName:
		return os.Open(path.Join(f.l.cfg.Dir, markName))
	case !names.MatchString(name):
		return refuse(fs.ErrNotExist)
	}
	return os.Open(path.Join(f.l.tiles.dir, name)) //nolint:gosec // G304: a name of the layout
}

// Check holds every entry of the table that a checkpoint covers against its own
// hash, the tiles, the bundles and the checkpoint, and returns how many are
// good. A table that is not what was signed is a fault from then on, which does
// not pass; a tree that is not that of the table is built again by Rebuild.
func (l *Log) Check(ctx context.Context) (uint64, error) {
	_, c := l.Latest()
	w, damage := newWalk(l.tiles), error(nil)
	var bundle []audit.Committed
	for sum := w.sum; sum.Size() < c.Size; {
		list, err := l.cfg.Ledger.Leaves(ctx, sum.Size(), int(min(c.Size-sum.Size(), audit.LeafBatch))) //nolint:gosec // G115: as it says
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%w: a checkpoint of %d entries was signed, and the table has %d", ErrCut, c.Size, sum.Size())
		}
		if err != nil {
			return sum.Size(), l.condemn(ctx, err)
		}
		for i := range list {
			if damage != nil {
				err = sum.Add(list[i].Hash) // only the root is still of interest
			} else {
				err = w.add(list[i].Hash)
				bundle = append(bundle, list[i])
			}
			if err == nil && damage == nil && (len(bundle) == width || sum.Size() == c.Size) {
				err = l.holdBundle(bundle)
				bundle = bundle[:0]
			}
			if errors.Is(err, errDamaged) {
				damage, err = fmt.Errorf("entries up to #%d: %w", list[i].Seq, err), nil
			}
			if err != nil {
				return sum.Size(), err
			}
		}
	}
	return c.Size, l.condemn(ctx, checked(w, c, damage))
}

func checked(w *walk, c note.Checkpoint, damage error) error {
	if c.Size == 0 {
		return damage
	}
	if err := same(w.sum, c, ErrChanged); err != nil {
		return errors.Join(err, damage)
	}
	if damage == nil {
		_, damage = w.end()
	}
	return damage
}

// condemn makes what does not pass a fault.
func (l *Log) condemn(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if final(err) {
		l.fail(ctx, err)
	}
	return fmt.Errorf("log tree: %w", err)
}

// Rebuild builds the tree again from the table, and returns when it is what it
// was, or refused. The checkpoint that was signed stays, and is held against
// it.
func (l *Log) Rebuild(ctx context.Context) error {
	l.mu.Lock()
	l.wipe = true
	l.mu.Unlock()
	select {
	case l.again <- struct{}{}:
	default: // it is to begin again already
	}
	for {
		l.mu.Lock()
		built, fault, news := !l.wipe && l.size >= l.latest.Size, l.fault, l.news
		l.mu.Unlock()
		switch {
		case fault.final:
			return fault.err
		case built:
			return nil
		}
		select {
		case <-news:
		case <-l.done:
			return errors.New("log tree: it is closed")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), fault.err)
		}
	}
}
