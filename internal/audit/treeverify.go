package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// newestVerified is how many of the newest entries OpenTree compares with the tree.
// Check compares all.
const newestVerified = 10_000

// readCheckpoint reads the newest signed checkpoint. One that is malformed
// counts as missing: a party that can damage it can remove it, and anchors
// remember what was signed.
func (l *Tree) readCheckpoint(ctx context.Context) (published, error) {
	none := published{Checkpoint: note.Checkpoint{Origin: l.cfg.Origin, Root: note.EmptyRoot()}}
	path := filepath.Join(l.cfg.Dir, checkpointName)
	b, err := os.ReadFile(path) //nolint:gosec // G304: our own
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	c, _, err := note.Open(b, l.cfg.Origin, l.cfg.Keys...)
	switch {
	case errors.Is(err, note.ErrOrigin):
		return none, fmt.Errorf("%w: %s: %w: move the directory away, or restore the state that belongs to it", ErrForeign, path, err)
	case errors.Is(err, note.ErrUnsigned):
		return none, fmt.Errorf("%w: %s: %w: restore the service's key and service-keys.json", ErrForeign, path, err)
	case err != nil:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the newest checkpoint is malformed and will be replaced", slog.String("path", path), slog.Any("err", err))
		return none, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return none, err
	}
	return published{Checkpoint: c, signed: b, at: st.ModTime()}, nil
}

// inspect verifies the tree on disk against the newest checkpoint and the
// table, and returns its edge. A damaged tree is removed, and the edge is that
// of an empty one. A table that differs from what was signed is refused.
func (l *Tree) inspect(ctx context.Context) (*edge, error) {
	n, err := l.cfg.Ledger.Len(ctx)
	if err != nil {
		return nil, err
	}
	_, signed := l.Latest()
	if signed.Size > n {
		return nil, truncated("a checkpoint of %d entries was signed", signed.Size, n)
	}
	e, err := l.verifyTree(ctx, signed, n)
	if l.rebuilding() {
		err = fmt.Errorf("%w: %w", errRebuild, errDamaged)
	}
	switch damaged := errors.Is(err, errDamaged); {
	case err != nil && !damaged:
		return nil, err
	case damaged:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "rebuilding the log's tree from the table", slog.Any("reason", err))
		if err := l.verifyTable(ctx, signed); err != nil {
			return nil, err
		}
		e = newEdge()
		failpoint.Hit(failpoint.LogWipe, "")
		if err := os.RemoveAll(l.tiles.dir); err != nil {
			return nil, err
		}
		failpoint.Hit(failpoint.LogWiped, "")
	case e.size() < signed.Size:
		if err := l.verifyTable(ctx, signed); err != nil {
			return nil, err
		}
	}
	if err := l.tiles.setState(e); err != nil { // a tree that cannot be written is refused
		return nil, err
	}
	l.update(func() { l.size, l.rebuild = e.size(), false })
	return e, nil
}

// truncated returns the error of a table with n entries, where there were size.
func truncated(what string, size, n uint64) error {
	return fmt.Errorf("%w: "+what+", and the table has %d: restore the state database, this one is an older copy", ErrTruncated, size, n)
}

func (l *Tree) rebuilding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rebuild
}

// verifyTree verifies the tiles against each other, the signed checkpoint and
// the newest of the n entries of the table.
func (l *Tree) verifyTree(ctx context.Context, signed note.Checkpoint, n uint64) (*edge, error) {
	size, root, err := l.tiles.state()
	if err != nil {
		return nil, err
	}
	e := newEdge()
	for index := uint64(0); index*width < size; index++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tile, err := l.tiles.hashes(coord(0, index, int(min(width, size-index*width)))) //nolint:gosec // G115: at most 256
		if err != nil {
			return nil, err
		}
		for ; len(tile) > 0; tile = tile[hashSize:] {
			if err := e.add(note.Hash(tile[:hashSize]), l.verifyAbove); err != nil {
				return nil, err
			}
			if e.size() == signed.Size {
				if err := sameRoot(e.sum, signed, errDamaged); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := e.partial(0, l.verifyAbove); err != nil {
		return nil, err
	}
	if got, err := e.sum.Root(); err != nil || got != root {
		return nil, errors.Join(fmt.Errorf("the tiles differ from %s: %w", stateName, errDamaged), err)
	}
	if size > n {
		return nil, truncated("the tree has %d entries", size, n)
	}
	from := size - min(size, l.cfg.newest)
	return e, l.eachBundle(ctx, from-from%width, size, l.verifyBundle)
}

// verifyAbove compares a tile above the lowest level with its hashes. Those of the
// lowest level are verified otherwise.
func (l *Tree) verifyAbove(t sumtlog.Tile, hashes []byte) error {
	if t.L == 0 {
		return nil
	}
	return l.tiles.verify(t, hashes)
}

// verifyBundle compares the bundle and the lowest tile of some entries with
// them.
func (l *Tree) verifyBundle(list []Committed) error {
	t, content := bundle(list)
	if err := l.tiles.verify(t, content); err != nil {
		return err
	}
	hashes := make([]byte, 0, len(list)*hashSize)
	for i := range list {
		hashes = append(hashes, list[i].Hash[:]...)
	}
	t.L = 0
	return l.tiles.verify(t, hashes)
}

// eachBundle calls fn with the entries from..to-1 of the table, in slices of
// one bundle. from is a multiple of width.
func (l *Tree) eachBundle(ctx context.Context, from, to uint64, fn func([]Committed) error) error {
	var part []Committed
	for from < to {
		list, err := l.cfg.Ledger.Leaves(ctx, from, int(min(to-from, LeafBatch))) //nolint:gosec // G115: at most LeafBatch
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return truncated("it had %d entries", to, from)
		}
		for i := range list {
			if part = append(part, list[i]); len(part) == width || list[i].Seq == to-1 {
				if err := fn(part); err != nil {
					return err
				}
				part = part[:0]
			}
		}
		from += uint64(len(list))
	}
	return nil
}

// sameRoot compares the root of sum with that of the signed checkpoint of its
// size. The error wraps otherwise.
func sameRoot(sum *note.Range, signed note.Checkpoint, otherwise error) error {
	root, err := sum.Root()
	if err == nil && root != signed.Root {
		err = fmt.Errorf("%w: the first %d entries are not those of the checkpoint that was signed", otherwise, signed.Size)
	}
	return err
}

// verifyTable compares the table with the signed checkpoint, which takes a few
// seconds for a million entries. It is needed where the tree cannot vouch for
// the table.
func (l *Tree) verifyTable(ctx context.Context, signed note.Checkpoint) error {
	sum := note.NewRange()
	err := l.eachBundle(ctx, 0, signed.Size, func(list []Committed) error {
		for i := range list {
			if err := sum.Add(list[i].Hash); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || signed.Size == 0 {
		return err
	}
	return sameRoot(sum, signed, ErrChanged)
}

// Check verifies every entry of the table that a checkpoint covers against its
// own hash, the tiles, the bundles and the checkpoint, and returns how many are
// good. A table that differs from what was signed is a permanent fault from then
// on; for a damaged tree there is Rebuild.
func (l *Tree) Check(ctx context.Context) (uint64, error) {
	_, signed := l.Latest()
	e := newEdge()
	err := l.eachBundle(ctx, 0, signed.Size, func(list []Committed) error {
		if err := l.verifyBundle(list); err != nil {
			return fmt.Errorf("entries up to #%d: %w", list[len(list)-1].Seq, err)
		}
		for i := range list {
			if err := e.add(list[i].Hash, l.verifyAbove); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = e.partial(0, l.verifyAbove)
	}
	if err == nil && signed.Size > 0 {
		err = sameRoot(e.sum, signed, ErrChanged)
	}
	var damage error
	if errors.Is(err, errDamaged) { // of the tree; is the table good?
		damage, err = err, l.verifyTable(ctx, signed)
	}
	if permanent(err) {
		l.fail(ctx, err)
	}
	if err = errors.Join(err, damage); err != nil {
		return e.size(), fmt.Errorf("log tree: %w", err)
	}
	return signed.Size, nil
}

// Rebuild rebuilds the tree from the table, and returns when it has the size
// that was signed. The signed checkpoint stays and is compared with it.
func (l *Tree) Rebuild(ctx context.Context) error {
	l.update(func() { l.rebuild = true })
	l.wakeFeeder()
	return l.wait(ctx, func() bool { return !l.rebuild && l.size >= l.latest.Size })
}
