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

	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// newestVerified is how many of the newest entries OpenTree compares with the tree.
// Check compares all.
const newestVerified = 10_000

// readCheckpoint reads the newest signed checkpoint. One that is malformed
// counts as missing: a party that can damage it can remove it, and anchors
// remember what was signed.
func (t *Tree) readCheckpoint(ctx context.Context) (published, error) {
	none := published{Checkpoint: logproof.Checkpoint{Origin: t.cfg.Origin, Root: logproof.EmptyRoot()}}
	path := filepath.Join(t.cfg.Dir, checkpointName)
	b, err := os.ReadFile(path) //nolint:gosec // G304: our own
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	c, _, err := logproof.Open(b, t.cfg.Origin, t.cfg.Keys...)
	switch {
	case errors.Is(err, logproof.ErrOrigin):
		return none, fmt.Errorf("%w: %s: %w: move the directory away, or restore the state that belongs to it", ErrForeign, path, err)
	case errors.Is(err, logproof.ErrUnsigned):
		return none, fmt.Errorf("%w: %s: %w: restore the service's key and service-keys.json", ErrForeign, path, err)
	case err != nil:
		t.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the newest checkpoint is malformed and will be replaced", slog.String("path", path), slog.Any("err", err))
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
func (t *Tree) inspect(ctx context.Context) (*edge, error) {
	n, err := t.cfg.Ledger.Len(ctx)
	if err != nil {
		return nil, err
	}
	_, signed := t.Latest()
	if signed.Size > n {
		return nil, truncated("a checkpoint of %s was signed", signed.Size, n)
	}
	e, err := t.verifyTree(ctx, signed, n)
	if t.rebuilding() {
		err = fmt.Errorf("%w: %w", errRebuild, errDamaged)
	}
	switch damaged := errors.Is(err, errDamaged); {
	case err != nil && !damaged:
		return nil, err
	case damaged:
		t.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "rebuilding the log's tree from the table", slog.Any("reason", err))
		if err := t.verifyTable(ctx, signed); err != nil {
			return nil, err
		}
		e = newEdge()
		failpoint.Hit(failpoint.LogWipe, "")
		if err := os.RemoveAll(t.tiles.dir); err != nil {
			return nil, err
		}
		failpoint.Hit(failpoint.LogWiped, "")
	case e.size() < signed.Size:
		if err := t.verifyTable(ctx, signed); err != nil {
			return nil, err
		}
	}
	if err := t.tiles.setState(e); err != nil { // a tree that cannot be written is refused
		return nil, err
	}
	t.update(func() { t.size, t.rebuild = e.size(), false })
	return e, nil
}

// truncated returns the error of a table with n entries, where there were size.
func truncated(what string, size, n uint64) error {
	return fmt.Errorf("%w: "+what+", and the table has %d: restore the state database, this one is an older copy", ErrTruncated, record.Plural(size, "entry"), n)
}

func (t *Tree) rebuilding() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rebuild
}

// verifyTree verifies the tiles against each other, the signed checkpoint and
// the newest of the n entries of the table.
func (t *Tree) verifyTree(ctx context.Context, signed logproof.Checkpoint, n uint64) (*edge, error) {
	size, root, err := t.tiles.state()
	if err != nil {
		return nil, err
	}
	e := newEdge()
	for index := uint64(0); index*width < size; index++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tile, err := t.tiles.hashes(coord(0, index, int(min(width, size-index*width)))) //nolint:gosec // G115: at most 256
		if err != nil {
			return nil, err
		}
		for ; len(tile) > 0; tile = tile[hashSize:] {
			if err := e.add(logproof.Hash(tile[:hashSize]), t.verifyAbove); err != nil {
				return nil, err
			}
			if e.size() == signed.Size {
				if err := sameRoot(e.sum, signed, errDamaged); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := e.partial(0, t.verifyAbove); err != nil {
		return nil, err
	}
	if got, err := e.sum.Root(); err != nil || got != root {
		return nil, errors.Join(fmt.Errorf("the tiles differ from %s: %w", stateName, errDamaged), err)
	}
	if size > n {
		return nil, truncated("the tree has %s", size, n)
	}
	from := size - min(size, t.cfg.newest)
	return e, t.eachBundle(ctx, from-from%width, size, t.verifyBundle)
}

// verifyAbove compares a tile above the lowest level with its hashes. Those of the
// lowest level are verified otherwise.
func (t *Tree) verifyAbove(tile sumtlog.Tile, hashes []byte) error {
	if tile.L == 0 {
		return nil
	}
	return t.tiles.verify(tile, hashes)
}

// verifyBundle compares the bundle and the lowest tile of some entries with
// them.
func (t *Tree) verifyBundle(list []Committed) error {
	tile, content := bundle(list)
	if err := t.tiles.verify(tile, content); err != nil {
		return err
	}
	hashes := make([]byte, 0, len(list)*hashSize)
	for i := range list {
		hashes = append(hashes, list[i].Hash[:]...)
	}
	tile.L = 0
	return t.tiles.verify(tile, hashes)
}

// eachBundle calls fn with the entries from..to-1 of the table, in slices of
// one bundle. from is a multiple of width.
func (t *Tree) eachBundle(ctx context.Context, from, to uint64, fn func([]Committed) error) error {
	var part []Committed
	for from < to {
		list, err := t.cfg.Ledger.Leaves(ctx, from, int(min(to-from, LeafBatch))) //nolint:gosec // G115: at most LeafBatch
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return truncated("it had %s", to, from)
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
func sameRoot(sum *logproof.Range, signed logproof.Checkpoint, otherwise error) error {
	root, err := sum.Root()
	if err == nil && root != signed.Root {
		err = fmt.Errorf("%w: the first %s differ from the signed checkpoint", otherwise, record.Plural(signed.Size, "entry"))
	}
	return err
}

// verifyTable compares the table with the signed checkpoint, which takes a few
// seconds for a million entries. It is needed where the tree cannot vouch for
// the table.
func (t *Tree) verifyTable(ctx context.Context, signed logproof.Checkpoint) error {
	sum := logproof.NewRange()
	err := t.eachBundle(ctx, 0, signed.Size, func(list []Committed) error {
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
func (t *Tree) Check(ctx context.Context) (uint64, error) {
	_, signed := t.Latest()
	e := newEdge()
	err := t.eachBundle(ctx, 0, signed.Size, func(list []Committed) error {
		if err := t.verifyBundle(list); err != nil {
			return fmt.Errorf("entries up to #%d: %w", list[len(list)-1].Seq, err)
		}
		for i := range list {
			if err := e.add(list[i].Hash, t.verifyAbove); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = e.partial(0, t.verifyAbove)
	}
	if err == nil && signed.Size > 0 {
		err = sameRoot(e.sum, signed, ErrChanged)
	}
	var damage error
	if errors.Is(err, errDamaged) { // of the tree; is the table good?
		damage, err = err, t.verifyTable(ctx, signed)
	}
	if permanent(err) {
		t.fail(ctx, err)
	}
	if err = errors.Join(err, damage); err != nil {
		return e.size(), fmt.Errorf("log tree: %w", err)
	}
	return signed.Size, nil
}

// Rebuild rebuilds the tree from the table, and returns when it has the size
// that was signed. The signed checkpoint stays and is compared with it.
func (t *Tree) Rebuild(ctx context.Context) error {
	t.update(func() { t.rebuild = true })
	t.wake.Send()
	return t.wait(ctx, func() bool { return !t.rebuild && t.size >= t.latest.Size })
}
