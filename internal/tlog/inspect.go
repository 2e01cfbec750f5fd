package tlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/transparency-dev/tessera/api/layout"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// newestHeld is how many of the newest entries are held against the tree
// whenever it is opened. Check holds all of them.
const newestHeld = 10_000

// readMark reads the newest checkpoint that was signed. One that cannot be read
// is as none: who can damage it can remove it, and what was signed and handed
// out is for anchors to know.
func (l *Log) readMark(ctx context.Context) (published, error) {
	path := filepath.Join(l.cfg.Dir, markName)
	b, err := os.ReadFile(path) //nolint:gosec // G304: our own
	if errors.Is(err, fs.ErrNotExist) {
		return published{Checkpoint: note.Checkpoint{Origin: l.cfg.Origin, Root: note.EmptyRoot()}}, nil
	}
	if err != nil {
		return published{}, err
	}
	c, _, err := note.Open(b, l.cfg.Origin, l.cfg.Keys...)
	switch {
	case errors.Is(err, note.ErrOrigin):
		return published{}, fmt.Errorf("%w: %s: %w: move the directory away, or restore the state that belongs to it", ErrForeign, path, err)
	case errors.Is(err, note.ErrUnsigned):
		return published{}, fmt.Errorf("%w: %s: %w: restore the service's key and service-keys.json", ErrForeign, path, err)
	case err != nil:
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the newest checkpoint cannot be read, another will be signed", slog.String("path", path), slog.Any("err", err))
		return published{Checkpoint: note.Checkpoint{Origin: l.cfg.Origin, Root: note.EmptyRoot()}}, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return published{}, err
	}
	return published{Checkpoint: c, signed: b, at: st.ModTime()}, nil
}

// inspect finds out what the tree on the disk is good for, and returns the
// range over the entries that it has. What is damaged is removed, and the range
// is over none. The table is refused where it is not what was signed.
func (l *Log) inspect(ctx context.Context) (*note.Range, error) {
	n, err := l.cfg.Ledger.Len(ctx)
	if err != nil {
		return nil, err
	}
	_, mark := l.Latest()
	if mark.Size > n {
		return nil, fmt.Errorf("%w: a checkpoint of %d entries was signed, and the table has %d: restore the state database, this one is an older copy", ErrCut, mark.Size, n)
	}
	at, err := l.hold(ctx, mark)
	if l.wiping() {
		err = errors.Join(errDamaged, errors.New("somebody asked for it"))
	}
	switch {
	case errors.Is(err, errDamaged):
		l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the log's tree is built again from the table", slog.Any("why", err))
		if err := l.holdTable(ctx, mark); err != nil {
			return nil, err
		}
		at = note.NewRange()
		failpoint.Hit(failpoint.LogWipe, "")
		if err := os.RemoveAll(l.tiles.dir); err != nil {
			return nil, err
		}
		failpoint.Hit(failpoint.LogWiped, "")
	case err != nil:
		return nil, err
	case at.Size() > n:
		return nil, fmt.Errorf("%w: the tree has %d entries, and the table has %d: restore the state database, this one is an older copy", ErrCut, at.Size(), n)
	case at.Size() < mark.Size:
		if err := l.holdTable(ctx, mark); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size, l.wipe = at.Size(), false
	l.tell()
	return at, nil
}

func (l *Log) wiping() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wipe
}

// hold holds the tree on the disk against itself, the mark and the newest
// entries of the table.
func (l *Log) hold(ctx context.Context, mark note.Checkpoint) (*note.Range, error) {
	size, root, err := l.tiles.state()
	if err != nil {
		return nil, err
	}
	w := newWalk(l.tiles)
	for index := uint64(0); index*width < size; index++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tile, err := l.tiles.tile(0, index, int(min(width, size-index*width))) //nolint:gosec // G115: at most 256
		if err != nil {
			return nil, err
		}
		for h := range chunks(tile) {
			if err := w.add(h); err != nil {
				return nil, err
			}
			if w.sum.Size() == mark.Size {
				if err := same(w.sum, mark, errDamaged); err != nil {
					return nil, err
				}
			}
		}
	}
	got, err := w.end()
	if err == nil && got != root {
		err = fmt.Errorf("the tiles are not those of the tree's state: %w", errDamaged)
	}
	if err != nil {
		return nil, err
	}
	return w.sum, l.holdNewest(ctx, size)
}

func same(sum *note.Range, mark note.Checkpoint, otherwise error) error {
	root, err := sum.Root()
	if err == nil && root != mark.Root {
		err = fmt.Errorf("%w: the first %d entries are not those of the checkpoint that was signed", otherwise, mark.Size)
	}
	return err
}

// holdNewest holds the newest entries of the table that are in the tree against
// it and their bundles, of which the last is appended to.
func (l *Log) holdNewest(ctx context.Context, size uint64) error {
	from := size - min(size, l.cfg.newest)
	from -= from % width
	var bundle []audit.Committed
	for from < size {
		list, err := l.cfg.Ledger.Leaves(ctx, from, int(min(size-from, audit.LeafBatch))) //nolint:gosec // G115: as it says
		if err != nil || len(list) == 0 {
			return err // a table that is shorter is for inspect
		}
		for i := range list {
			seq := list[i].Seq
			tile, err := l.tiles.tile(0, seq/width, int(min(width, size-seq/width*width))) //nolint:gosec // G115: at most 256
			if err != nil {
				return err
			}
			at := seq % width * hashSize
			if !bytes.Equal(tile[at:at+hashSize], list[i].Hash[:]) {
				return fmt.Errorf("entry #%d is another in the tree: %w", seq, errDamaged)
			}
			if bundle = append(bundle, list[i]); len(bundle) == width {
				if err := l.holdBundle(bundle); err != nil {
					return err
				}
				bundle = bundle[:0]
			}
		}
		from += uint64(len(list))
	}
	return l.holdEdge(bundle)
}

// holdEdge holds the bundle that the next entries are appended to: it must have
// the entries of the table and nothing behind them, and a whole one in its
// place, which is good enough to read, is none.
func (l *Log) holdEdge(list []audit.Committed) error {
	if len(list) == 0 {
		return nil
	}
	path := layout.EntriesPath(list[0].Seq/width, uint8(len(list))) //nolint:gosec // G115: below 256
	b, err := os.ReadFile(filepath.Join(l.tiles.dir, path))         //nolint:gosec // G304: our own
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(b, bundled(list)) {
		err = fmt.Errorf("%s is not that of the entries: %w", path, errDamaged)
	}
	return err
}

// holdBundle holds a bundle against the entries that it should have.
func (l *Log) holdBundle(list []audit.Committed) error {
	index := list[0].Seq / width
	got, err := l.tiles.bundle(index, len(list))
	if err == nil && !bytes.Equal(got, bundled(list)) {
		err = fmt.Errorf("bundle %d is not that of the entries: %w", index, errDamaged)
	}
	return err
}

func bundled(list []audit.Committed) []byte {
	var b []byte
	for i := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(len(list[i].Leaf))) //nolint:gosec // G115: an entry has at most 60 KiB
		b = append(b, list[i].Leaf...)
	}
	return b
}

// holdTable holds the table against the mark, which takes a few seconds for a
// million entries. It is done where the tree cannot vouch for it.
func (l *Log) holdTable(ctx context.Context, mark note.Checkpoint) error {
	sum := note.NewRange()
	for sum.Size() < mark.Size {
		list, err := l.cfg.Ledger.Leaves(ctx, sum.Size(), int(min(mark.Size-sum.Size(), audit.LeafBatch))) //nolint:gosec // G115: as it says
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fmt.Errorf("%w: a checkpoint of %d entries was signed, and the table has %d", ErrCut, mark.Size, sum.Size())
		}
		for i := range list {
			if err := sum.Add(list[i].Hash); err != nil {
				return err
			}
		}
	}
	if mark.Size == 0 {
		return nil
	}
	return same(sum, mark, ErrChanged)
}

// prune removes the narrower files of tiles that became whole between two
// sizes: readers fall back to the whole ones.
func (l *Log) prune(from, to uint64) error {
	for level := uint64(0); ; level++ {
		first, end := from>>(8*(level+1)), to>>(8*(level+1))
		if end == 0 {
			return nil
		}
		for index := first; index < end; index++ {
			if level == 0 {
				if err := os.RemoveAll(filepath.Join(l.tiles.dir, layout.EntriesPath(index, 0)+".p")); err != nil {
					return err
				}
			}
			if err := os.RemoveAll(filepath.Join(l.tiles.dir, layout.TilePath(level, index, 0)+".p")); err != nil {
				return err
			}
		}
	}
}
