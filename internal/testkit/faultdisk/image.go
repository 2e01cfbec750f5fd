package faultdisk

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

const sector = 512

// Survivors selects which pending changes survive the power cut.
type Survivors int

// The choices. The last three are random.
const (
	None   Survivors = iota // only what was synced
	All                     // everything, as if the process had been killed
	First                   // a prefix
	Some                    // any subset, torn writes, lengths without content
	Random                  // one of the above
)

// Image writes what the disk has after a power cut into dir, which must be empty or
// missing. It does not change the disk.
func (d *Disk) Image(dir string, rng *rand.Rand, what Survivors) error {
	if what == Random {
		// Some has by far the most outcomes.
		what = []Survivors{None, All, First, Some, Some, Some}[rng.IntN(6)]
	}
	im := &image{rng: rng, what: what, until: d.clock - rng.IntN(min(d.clock, 40)+1), names: map[*node]map[string]*node{}}
	for _, m := range d.moves {
		if im.survives(m.at) {
			for _, e := range m.edits {
				e.set(im.of)
			}
		}
	}
	return im.write(dir, d.root)
}

type image struct {
	rng   *rand.Rand
	what  Survivors
	until int                        // of First
	names map[*node]map[string]*node // of directories with surviving changes
}

func (im *image) survives(at int) bool {
	switch im.what {
	case All:
		return true
	case First:
		return at <= im.until
	case Some:
		return im.rng.IntN(2) == 0
	default:
		return false
	}
}

// of returns the names of a directory, for changing.
func (im *image) of(dir *node) map[string]*node {
	if im.names[dir] == nil {
		im.names[dir] = maps.Clone(dir.kept)
	}
	return im.names[dir]
}

func (im *image) write(path string, n *node) error {
	if !n.mode.IsDir() {
		return os.WriteFile(path, im.content(n), n.mode.Perm())
	}
	if err := os.MkdirAll(path, n.mode.Perm()); err != nil {
		return err
	}
	names := n.kept
	if im.names[n] != nil {
		names = im.names[n]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // in an order that makes a seed reproducible
		if err := im.write(filepath.Join(path, name), names[name]); err != nil {
			return err
		}
	}
	return nil
}

func (im *image) content(n *node) []byte {
	if len(n.pending) == 0 || im.what == None {
		return n.durable
	}
	b := slices.Clone(n.durable)
	for _, c := range n.pending {
		switch {
		case im.survives(c.at):
			b = im.tear(b, c)
		case im.what == Some && c.data != nil && im.rng.IntN(4) == 0:
			b = im.lengthen(b, c.off+int64(len(c.data)))
		}
	}
	return b
}

// tear applies the change, or some sectors of it.
func (im *image) tear(b []byte, c change) []byte {
	if im.what != Some || c.data == nil || im.rng.IntN(3) > 0 {
		return c.do(b)
	}
	b = im.lengthen(b, c.off+int64(len(c.data)))
	for at := int64(0); at < int64(len(c.data)); {
		next := min((c.off+at)/sector*sector+sector-c.off, int64(len(c.data)))
		if im.rng.IntN(2) == 0 {
			copy(b[c.off+at:], c.data[at:next])
		}
		at = next
	}
	return b
}

// lengthen grows b by zeros or, as stale content of other files, random bytes.
func (im *image) lengthen(b []byte, size int64) []byte {
	had := len(b)
	if size <= int64(had) {
		return b
	}
	b = resize(b, size)
	if im.rng.IntN(2) == 0 {
		for i := had; i < len(b); i++ {
			b[i] = byte(im.rng.Uint32())
		}
	}
	return b
}
