package capture

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cached reports whether the layers of the workspace are known, so that unchanged
// directories need not be listed.
func (c Config) cached() bool {
	return c.Index != nil && len(c.Over) > 0 && !slices.Contains(c.Over, nil)
}

// untouched takes a directory with everything below from the index, when no layer
// over the checkout has that directory: every change in an overlay leaves its
// directory in the writable layer. Directories with entries that a walk would
// leave out are walked.
func (w *walker) untouched(path string, depth int) bool {
	if !w.cached || w.covered(path) {
		return false
	}
	below := w.cfg.Index.below(path)
	if below == nil {
		return false
	}
	visited, names := w.visited+len(below), w.names
	for i := range below {
		e := &below[i]
		if e.dir && e.id != "" || e.bytes > w.cfg.MaxFile || len(e.path) > w.cfg.MaxPath ||
			depth+1+strings.Count(e.path[len(path)+1:], "/") >= w.cfg.MaxDepth {
			return false
		}
		names += int64(len(e.path))
	}
	if visited > w.cfg.MaxEntries || names > w.cfg.MaxNames {
		return false // the walk reports which bound
	}
	w.visited, w.names = visited, names
	for i := range below {
		if e := &below[i]; !e.dir && !w.skip(e.path) {
			w.list = append(w.list, entry{path: e.path, mode: e.treeMode(), size: e.bytes, id: e.id, stamp: e.stamp})
		}
	}
	return true
}

// covered reports whether a layer over the checkout may have something at path. Any
// error but ENOENT counts as yes.
func (w *walker) covered(path string) bool {
	for _, layer := range w.cfg.Over {
		fd, err := openBelow(int(layer.Fd()), path, unix.O_PATH)
		if !errors.Is(err, unix.ENOENT) {
			if err == nil {
				_ = unix.Close(fd)
			}
			return true
		}
	}
	return false
}

// below returns the entries below a directory, or nil when x has no such directory.
func (x *Index) below(dir string) []indexed {
	from, ok := x.dirs[dir]
	if !ok {
		return nil
	}
	to := from + 1
	for to < len(x.entries) && strings.HasPrefix(x.entries[to].path, dir+"/") {
		to++
	}
	return x.entries[from+1 : to]
}
