package capture

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// ErrNoWhiteout means that a layer needs a whiteout, to hide a path of its base,
// and that the system does not let this process create one.
var ErrNoWhiteout = errors.New("cannot create whiteouts here")

// Layer writes into dir, which exists and is empty, the difference of two trees
// (full object names; "" is the empty tree): mounted with overlayfs over a
// checkout of base it shows a checkout of treeish. It has the files that differ,
// whole, and whiteouts, which are character devices 0:0, for removed paths. Modes
// and verification are those of Checkout.
func (r *Repo) Layer(ctx context.Context, base, treeish, dir string) (err error) {
	defer wrap(&err, "layer")
	return r.layer(ctx, base, treeish, dir)
}

func (r *Repo) layer(ctx context.Context, base, treeish, dir string) error {
	o, err := r.openObjects(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	from, err := o.tree(base)
	if err != nil {
		return fmt.Errorf("base: %w", err)
	}
	to, err := o.tree(treeish)
	if err != nil {
		return err
	}
	set, _ := difference(from, to)
	if err := o.fits(set, len(to.directories())); err != nil {
		return err
	}
	w, err := newTreeWriter(dir)
	if err != nil {
		return err
	}
	defer w.close()
	w.most = r.MaxCheckout
	return o.writeLayer(w, from, to, set)
}

func (o *objects) writeLayer(w *treeWriter, from, to *tree, set []treeFile) error {
	was, is := from.directories(), to.directories()
	for _, p := range hidden(from, to, was, is) {
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

// difference returns the files of to that are new or different from those of from,
// in git's order, and the paths of all differences, removed files included.
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

// hidden lists the topmost paths that need a whiteout: those that are in from and
// not in to, in a directory that is in both. A file replaced by a directory, or
// the reverse, is covered without one.
func hidden(from, to *tree, was, is map[string]bool) []string {
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

// directories returns the directories of a checkout of the tree; the root is "".
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

// whiteout hides name of the base.
func (w *treeWriter) whiteout(name string) error {
	err := unix.Mknodat(w.dir, name, unix.S_IFCHR, 0)
	for _, refused := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w: %w", ErrNoWhiteout, err)
		}
	}
	return err
}
