package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// ErrNoWhiteout says that a layer must hide something of its base and that the
// system does not let this process make the whiteout that does so.
var ErrNoWhiteout = errors.New("whiteouts cannot be made here")

// Layer writes into dir, which exists and is empty, the difference of two
// trees (full object names; "" is the empty tree): laid with overlayfs over a
// checkout of base it shows what a checkout of treeish would. It holds the
// files that differ, whole, and for what is gone a whiteout, which is a
// character device 0:0. Modes and verification are those of Checkout.
func (r *Repo) Layer(ctx context.Context, base, treeish, dir string) error {
	o, err := r.openObjects(ctx)
	if err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	defer o.close()
	from, err := o.tree(base)
	if err != nil {
		return fmt.Errorf("layer: base: %w", err)
	}
	to, err := o.tree(treeish)
	if err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	w, err := newTreeWriter(dir)
	if err != nil {
		return fmt.Errorf("layer: %w", err)
	}
	defer w.close()
	if err := o.writeLayer(w, from, to); err != nil {
		return fmt.Errorf("layer of %s over %s: %w", to.id, from.id, err)
	}
	return nil
}

func (o *objects) writeLayer(w *treeWriter, from, to *tree) error {
	set, _ := difference(from, to)
	was, is := from.directories(), to.directories()
	for _, p := range gone(from, to, was, is) {
		if err := w.enter(parent(p)); err != nil {
			return err
		}
		if err := w.whiteout(path.Base(p)); err != nil {
			return fmt.Errorf("%s: %w", Printable(p), err)
		}
	}
	for _, p := range to.gitlinks {
		if was[p] {
			continue
		}
		if err := w.enter(p); err != nil {
			return err
		}
	}
	return o.writeTree(w, set)
}

// difference returns the files that a tree has other than from, in git's
// order, and the paths of all that differs, those that are gone included.
func difference(from, to *tree) (set []treeFile, changed map[string]bool) {
	changed = map[string]bool{}
	for _, f := range to.files {
		if old, ok := from.byPath[f.path]; !ok || old.mode != f.mode || old.id != f.id {
			set, changed[f.path] = append(set, f), true
		}
	}
	for _, f := range from.files {
		if _, still := to.byPath[f.path]; !still {
			changed[f.path] = true
		}
	}
	return set, changed
}

// gone lists the topmost paths that are hidden: what was there, is not any
// more, and lies in a directory that is. A file that a directory took the place
// of, or the other way round, is covered without being hidden.
func gone(from, to *tree, was, is map[string]bool) []string {
	var list []string
	hide := func(p string) {
		if _, file := to.byPath[p]; !file && !is[p] && is[parent(p)] {
			list = append(list, p)
		}
	}
	for _, f := range from.files {
		if f.mode != modeGitlink {
			hide(f.path)
		}
	}
	for _, p := range sortedKeys(was) {
		hide(p)
	}
	return list
}

// directories are all that a checkout of the tree makes; the root is "".
func (t *tree) directories() map[string]bool {
	dirs := map[string]bool{"": true}
	for _, f := range t.files {
		p := f.path
		if f.mode != modeGitlink {
			p = parent(p)
		}
		for ; !dirs[p]; p = parent(p) {
			dirs[p] = true
		}
	}
	return dirs
}

// whiteout hides name in whatever the layer is laid over.
func (w *treeWriter) whiteout(name string) error {
	err := unix.Mknodat(w.dir, name, unix.S_IFCHR, 0)
	for _, refused := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w: %w", ErrNoWhiteout, err)
		}
	}
	return err
}

// newTreeWriter opens dir, which must exist and be empty.
func newTreeWriter(dir string) (*treeWriter, error) {
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	w := &treeWriter{root: os.NewFile(uintptr(root), dir), dir: -1}
	if names, _ := w.root.Readdirnames(1); len(names) > 0 {
		w.close()
		return nil, fmt.Errorf("%s: not empty", dir)
	}
	return w, nil
}
