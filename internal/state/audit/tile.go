package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// errDamaged means that a file of the tree is missing or is not what the
// entries make it, so the tree must be rebuilt.
var errDamaged = errors.New("damaged")

const (
	height   = 8           // of a tile, in levels of the tree
	width    = 1 << height // hashes in a full tile, entries in a full bundle
	bundles  = -1          // the level that stands for entry bundles
	hashSize = 32

	// stateName is the file that says which size and root the tiles have. It is
	// replaced after them. Name and form are Tessera's, which wrote the tree
	// before.
	stateName = ".state/treeState"
)

// tiles is the directory of the tree, in the layout of C2SP tlog-tiles.
type tiles struct {
	dir     string
	replace func(path string, content []byte) error // atomic and durable; a test may fail it
}

// coord names tile number index of a level, with n hashes.
func coord(level int, index uint64, n int) sumtlog.Tile {
	return sumtlog.Tile{H: height, L: level, N: int64(index), W: n} //nolint:gosec // G115: a log does not reach 2^63 entries
}

// tilePath returns the path of a tile in the layout. That of the Go checksum
// database, which t.Path returns, also has the height and another word for
// bundles.
func tilePath(t sumtlog.Tile) string {
	path := strings.Replace(t.Path(), "tile/8/", "tile/", 1)
	return strings.Replace(path, "tile/data/", "tile/entries/", 1)
}

// read returns a tile or a bundle and its width, which is more than t.W where
// only the full file that superseded a partial one exists.
func (d tiles) read(t sumtlog.Tile) ([]byte, int, error) {
	b, err := os.ReadFile(filepath.Join(d.dir, tilePath(t)))
	if errors.Is(err, fs.ErrNotExist) && t.W != width {
		full := t
		full.W = width
		if b, err := os.ReadFile(filepath.Join(d.dir, tilePath(full))); err == nil {
			return b, width, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is missing: %w", tilePath(t), errDamaged)
	}
	return b, t.W, err
}

// hashes returns the first t.W hashes of a tile, concatenated.
func (d tiles) hashes(t sumtlog.Tile) ([]byte, error) {
	b, w, err := d.read(t)
	if err != nil {
		return nil, err
	}
	if len(b) != w*hashSize {
		return nil, fmt.Errorf("%s has %d bytes, want %d: %w", tilePath(t), len(b), w*hashSize, errDamaged)
	}
	return b[:t.W*hashSize], nil
}

// verify checks that a tile or a bundle has this content.
func (d tiles) verify(t sumtlog.Tile, want []byte) error {
	got, w, err := d.read(t)
	if err == nil && !bytes.Equal(got, want) && (w == t.W || !bytes.HasPrefix(got, want)) {
		err = fmt.Errorf("%s differs from the entries: %w", tilePath(t), errDamaged)
	}
	return err
}

// put writes a tile or a bundle. A full one supersedes the partial ones.
func (d tiles) put(t sumtlog.Tile, content []byte) error {
	path := filepath.Join(d.dir, tilePath(t))
	if err := d.replace(path, content); err != nil || t.W != width {
		return err
	}
	return os.RemoveAll(path + ".p")
}

// replaceFile replaces a file durably, and makes its directory if needed.
func replaceFile(path string, content []byte) error {
	err := durable.Replace(path, content, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := durable.SyncParents(dir); err != nil {
		return err
	}
	return durable.Replace(path, content, 0o600)
}

// treeState is what stateName contains, as JSON.
type treeState struct {
	Size uint64 `json:"size"`
	Root []byte `json:"root"`
}

// state returns the size and the root of the tiles. A missing directory is an
// empty tree.
func (d tiles) state() (size uint64, root logproof.Hash, err error) {
	b, err := os.ReadFile(filepath.Join(d.dir, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(d.dir); errors.Is(err, fs.ErrNotExist) {
			return 0, logproof.EmptyRoot(), nil
		}
		return 0, logproof.Hash{}, fmt.Errorf("%s is missing: %w", stateName, errDamaged)
	}
	if err != nil {
		return 0, logproof.Hash{}, err
	}
	var s treeState
	if err := json.Unmarshal(b, &s); err != nil || len(s.Root) != hashSize {
		return 0, logproof.Hash{}, fmt.Errorf("%s is malformed: %w", stateName, errDamaged)
	}
	return s.Size, logproof.Hash(s.Root), nil
}

// setState writes the state of an edge.
func (d tiles) setState(e *edge) error {
	root, err := e.sum.Root()
	if err != nil {
		return err
	}
	b, err := json.Marshal(treeState{e.size(), root[:]})
	if err != nil {
		return err
	}
	return d.replace(filepath.Join(d.dir, stateName), b)
}

// verifyState checks that the state is that of the edge.
func (d tiles) verifyState(e *edge) error {
	root, err := e.sum.Root()
	if err != nil {
		return err
	}
	size, stored, err := d.state()
	if err == nil && (size != e.size() || stored != root) {
		err = fmt.Errorf("the tree of %s was replaced by one of %d: %w", record.Plural(e.size(), "entry"), size, errDamaged)
	}
	return err
}

// Height implements tlog.TileReader.
func (d tiles) Height() int { return height }

// SaveTiles implements tlog.TileReader. It caches nothing.
func (d tiles) SaveTiles([]sumtlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (d tiles) ReadTiles(list []sumtlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(list))
	for i, t := range list {
		var err error
		if data[i], err = d.hashes(t); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// edge is the right edge of a tree: all that adding entries needs. It belongs
// to one goroutine.
type edge struct {
	sum    *logproof.Range
	levels [][]byte // hashes of the last tile of each level, where it is partial
}

// visit is called with a tile and its hashes, which it must not keep.
type visit func(t sumtlog.Tile, hashes []byte) error

func newEdge() *edge { return &edge{sum: logproof.NewRange()} }

func (e *edge) size() uint64 { return e.sum.Size() }

// add adds the next entry, and calls full with each tile that becomes full.
func (e *edge) add(leaf logproof.Hash, full visit) error {
	if err := e.sum.Add(leaf); err != nil {
		return err
	}
	hash := leaf
	for level := 0; ; level++ {
		if level == len(e.levels) {
			e.levels = append(e.levels, make([]byte, 0, width*hashSize))
		}
		tile := append(e.levels[level], hash[:]...)
		e.levels[level] = tile
		if len(tile) < width*hashSize {
			return nil
		}
		if err := full(coord(level, (e.size()-1)>>(height*(level+1)), width), tile); err != nil {
			return err
		}
		above := logproof.NewRange()
		for i := 0; i < len(tile); i += hashSize {
			if err := above.Add(logproof.Hash(tile[i : i+hashSize])); err != nil {
				return err
			}
		}
		var err error
		if hash, err = above.Root(); err != nil {
			return err
		}
		e.levels[level] = tile[:0]
	}
}

// partial calls fn with each partial tile that the tree of the first from
// entries does not have.
func (e *edge) partial(from uint64, fn visit) error {
	size := e.size()
	for level, hashes := range e.levels {
		if from>>(height*level) == size>>(height*level) {
			return nil // no tile below became full: this level and those above are the same
		}
		if len(hashes) == 0 {
			continue
		}
		if err := fn(coord(level, size>>(height*(level+1)), len(hashes)/hashSize), hashes); err != nil {
			return err
		}
	}
	return nil
}

// bundle returns the coordinates and the content of the bundle of entries,
// which are those of one tile.
func bundle(list []Committed) (sumtlog.Tile, []byte) {
	var b []byte
	for i := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(len(list[i].Leaf))) //nolint:gosec // G115: an entry has at most 60 KiB
		b = append(b, list[i].Leaf...)
	}
	return coord(bundles, list[0].Seq/width, len(list)), b
}
