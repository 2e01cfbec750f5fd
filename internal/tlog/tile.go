package tlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/transparency-dev/tessera/api/layout"
	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// errDamaged: a tile is not what it should be, so the tree is built again.
var errDamaged = errors.New("damaged")

const (
	width    = layout.TileWidth // of a whole tile
	hashSize = 32
)

// tiles is the tree on the disk. It only reads.
type tiles struct{ dir string }

// tile returns the first n hashes of a tile, one after the other.
func (t tiles) tile(level int, index uint64, n int) ([]byte, error) {
	b, err := t.file(func(p uint8) string { return layout.TilePath(uint64(level), index, p) }, n) //nolint:gosec // G115: at most 8
	if err != nil {
		return nil, err
	}
	if len(b) < n*hashSize || len(b)%hashSize != 0 {
		return nil, fmt.Errorf("tile %d/%d has %d bytes, want at least %d: %w", level, index, len(b), n*hashSize, errDamaged)
	}
	return b[:n*hashSize], nil
}

// bundle returns the first n entries of a bundle as the format has them, each
// behind its length.
func (t tiles) bundle(index uint64, n int) ([]byte, error) {
	b, err := t.file(func(p uint8) string { return layout.EntriesPath(index, p) }, n)
	if err != nil {
		return nil, err
	}
	end := 0
	for range n {
		if end+2 > len(b) {
			return nil, fmt.Errorf("bundle %d ends before its entries do: %w", index, errDamaged)
		}
		if end += 2 + int(binary.BigEndian.Uint16(b[end:])); end > len(b) {
			return nil, fmt.Errorf("bundle %d ends before its entries do: %w", index, errDamaged)
		}
	}
	return b[:end], nil
}

// file reads the file of that width, or the whole one that took its place.
func (t tiles) file(path func(p uint8) string, n int) ([]byte, error) {
	p := uint8(n % width) //nolint:gosec // G115: below 256
	b, err := os.ReadFile(filepath.Join(t.dir, path(p)))
	if errors.Is(err, fs.ErrNotExist) && p != 0 {
		b, err = os.ReadFile(filepath.Join(t.dir, path(0)))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: %w", path(p), errDamaged)
	}
	return b, err
}

// Height implements tlog.TileReader.
func (t tiles) Height() int { return layout.TileHeight }

// SaveTiles implements tlog.TileReader. It keeps nothing.
func (t tiles) SaveTiles([]sumtlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (t tiles) ReadTiles(list []sumtlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(list))
	for i, of := range list {
		var err error
		if data[i], err = t.tile(of.L, uint64(of.N), of.W); err != nil { //nolint:gosec // G115: the library asks for what is there
			return nil, err
		}
	}
	return data, nil
}

// walk holds all tiles of a tree to the hashes of its entries, which are added
// in their order.
type walk struct {
	tiles  tiles
	sum    *note.Range
	levels [][]byte // the hashes of the tile of each level that is not whole yet
	counts []uint64 // of whole tiles, by level
}

func newWalk(t tiles) *walk { return &walk{tiles: t, sum: note.NewRange()} }

func (w *walk) add(leaf note.Hash) error {
	if err := w.sum.Add(leaf); err != nil {
		return err
	}
	return w.push(0, leaf[:])
}

func (w *walk) push(level int, hash []byte) error {
	if level == len(w.levels) {
		w.levels, w.counts = append(w.levels, make([]byte, 0, width*hashSize)), append(w.counts, 0)
	}
	w.levels[level] = append(w.levels[level], hash...)
	if len(w.levels[level]) < width*hashSize {
		return nil
	}
	if err := w.hold(level); err != nil {
		return err
	}
	above := note.NewRange()
	for h := range chunks(w.levels[level]) {
		if err := above.Add(h); err != nil {
			return err
		}
	}
	root, err := above.Root()
	if err != nil {
		return err
	}
	w.levels[level] = w.levels[level][:0]
	w.counts[level]++
	return w.push(level+1, root[:])
}

// hold compares the tile of a level that is being filled with the one stored.
func (w *walk) hold(level int) error {
	want := w.levels[level]
	got, err := w.tiles.tile(level, w.counts[level], len(want)/hashSize)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("tile %d/%d is not that of the entries: %w", level, w.counts[level], errDamaged)
	}
	return err
}

// end holds the tiles at the right edge, and returns the root.
func (w *walk) end() (note.Hash, error) {
	for level := range w.levels {
		if len(w.levels[level]) == 0 {
			continue
		}
		if err := w.hold(level); err != nil {
			return note.Hash{}, err
		}
	}
	return w.sum.Root()
}

func chunks(b []byte) func(yield func(note.Hash) bool) {
	return func(yield func(note.Hash) bool) {
		for ; len(b) >= hashSize; b = b[hashSize:] {
			if !yield(note.Hash(b[:hashSize])) {
				return
			}
		}
	}
}
