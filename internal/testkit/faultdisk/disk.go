package faultdisk

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is what an Op does.
type Kind string

// The kinds. Read is never in a journal; only a Fault sees it.
const (
	Create   Kind = "create" // an empty file
	Mkdir    Kind = "mkdir"
	Write    Kind = "write"
	Truncate Kind = "truncate"
	Sync     Kind = "sync"      // of a file or a directory
	SyncLost Kind = "sync-lost" // it failed; what was pending can no longer be synced
	Rename   Kind = "rename"
	Remove   Kind = "remove" // of a file or an empty directory
	Say      Kind = "say"    // the process wrote to its standard output
	Read     Kind = "read"
)

// Op is one operation of a process. Paths are relative to the recorded directory,
// which is ".".
type Op struct {
	Kind   Kind
	Path   string
	To     string      // of Rename: the new name
	Off    int64       // of Write and Read
	Size   int64       // of Truncate and Read
	Data   []byte      // of Write
	Mode   fs.FileMode // of Create and Mkdir
	Text   string      // of Say
	Failed bool        // it was done, but reported as failed
}

// Disk is the durable and pending state after the operations of a journal.
type Disk struct {
	// Lies makes every sync succeed without effect.
	Lies bool

	root  *node
	moves []move // pending changes of names in all directories, in order
	clock int    // operations so far
}

// node is a file or a directory.
type node struct {
	mode    fs.FileMode
	durable []byte           // of a file
	pending []change         // of a file, in order
	names   map[string]*node // of a directory: as the process sees it
	kept    map[string]*node // of a directory: as durable
}

// change is a pending write or, where data is nil, truncation.
type change struct {
	at   int
	off  int64
	data []byte
}

// move is a pending atomic change of names.
type move struct {
	at    int
	edits []edit
}

// edit sets name in dir to n, or removes it if n is nil.
type edit struct {
	dir  *node
	name string
	n    *node
}

func newDir(mode fs.FileMode) *node {
	return &node{mode: mode | fs.ModeDir, names: map[string]*node{}, kept: map[string]*node{}}
}

// Load returns a disk with the content of dir, all durable.
func Load(dir string) (*Disk, error) {
	root, err := load(dir)
	return &Disk{root: root}, err
}

func load(path string) (*node, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		b, err := os.ReadFile(path)
		return &node{mode: fi.Mode(), durable: b}, err
	}
	d := newDir(fi.Mode())
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		n, err := load(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		d.names[e.Name()], d.kept[e.Name()] = n, n
	}
	return d, nil
}

// find returns the node at path, or nil.
func (d *Disk) find(path string) *node {
	n := d.root
	for name := range strings.SplitSeq(path, "/") {
		if n != nil && name != "." {
			n = n.names[name] // a file has no names
		}
	}
	return n
}

// Apply applies op, unless its path is outside the disk or was removed.
func (d *Disk) Apply(op Op) {
	d.clock++
	n := d.find(op.Path)
	switch op.Kind {
	case Create, Mkdir:
		made := &node{mode: op.Mode}
		if op.Kind == Mkdir {
			made = newDir(op.Mode)
		}
		d.name(edit{d.find(filepath.Dir(op.Path)), filepath.Base(op.Path), made})
	case Remove:
		d.name(edit{d.find(filepath.Dir(op.Path)), filepath.Base(op.Path), nil})
	case Rename:
		d.name(
			edit{d.find(filepath.Dir(op.Path)), filepath.Base(op.Path), nil},
			edit{d.find(filepath.Dir(op.To)), filepath.Base(op.To), n},
		)
	case Write:
		if n != nil {
			n.pending = append(n.pending, change{at: d.clock, off: op.Off, data: op.Data})
		}
	case Truncate:
		if n != nil {
			n.pending = append(n.pending, change{at: d.clock, off: op.Size})
		}
	case Sync:
		if n != nil && !d.Lies {
			d.sync(n)
		}
	case SyncLost:
		if n != nil {
			n.pending = nil
			d.moves = slices.DeleteFunc(d.moves, func(m move) bool { return m.of(n) })
		}
	default:
	}
}

func (d *Disk) name(edits ...edit) {
	for _, e := range edits {
		if e.dir == nil {
			return
		}
	}
	for _, e := range edits {
		e.set(func(n *node) map[string]*node { return n.names })
	}
	d.moves = append(d.moves, move{d.clock, edits})
}

func (e edit) set(of func(*node) map[string]*node) {
	if e.n == nil {
		delete(of(e.dir), e.name)
		return
	}
	of(e.dir)[e.name] = e.n
}

func (m move) of(dir *node) bool {
	return slices.ContainsFunc(m.edits, func(e edit) bool { return e.dir == dir })
}

func (d *Disk) sync(n *node) {
	for _, c := range n.pending {
		n.durable = c.do(n.durable)
	}
	n.pending = nil
	d.moves = slices.DeleteFunc(d.moves, func(m move) bool {
		if !m.of(n) {
			return false
		}
		for _, e := range m.edits {
			e.set(func(n *node) map[string]*node { return n.kept })
		}
		return true
	})
}

// do applies the change to b and returns it, like append.
func (c change) do(b []byte) []byte {
	if c.data == nil {
		return resize(b, c.off)
	}
	b = resize(b, max(int64(len(b)), c.off+int64(len(c.data))))
	copy(b[c.off:], c.data)
	return b
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size:size] // growing again must find zeros
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

// Pending returns the number of pending changes.
func (d *Disk) Pending() int {
	seen, count := map[*node]bool{}, len(d.moves)
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		count += len(n.pending)
		for _, of := range []map[string]*node{n.names, n.kept} {
			for child := range maps.Values(of) {
				walk(child)
			}
		}
	}
	walk(d.root)
	return count
}
