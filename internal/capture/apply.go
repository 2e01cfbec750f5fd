package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// ApplyPatch applies a patch to a commit or tree (full object name; "" is the
// empty tree), as Capture made one of an earlier workspace, and returns the
// name of the tree that comes out. A patch that does not apply, or gives a
// tree that Checkout would refuse, is an error; an empty one gives the base.
func (r *Repo) ApplyPatch(ctx context.Context, base string, patch io.Reader) (tree string, err error) {
	from, err := r.tree(ctx, base)
	if err != nil {
		return "", fmt.Errorf("apply patch: %w", err)
	}
	start := make([]byte, 1)
	switch n, err := io.ReadFull(patch, start); {
	case err == io.EOF && n == 0: //nolint:errorlint // ReadFull says EOF itself, unwrapped
		return from.id, nil
	case err != nil:
		return "", fmt.Errorf("apply patch: %w", err)
	}
	dir, err := os.MkdirTemp(r.dir, "apply-")
	if err != nil {
		return "", fmt.Errorf("apply patch: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // our own scratch directory, removed with the Repo at the latest
	id, err := r.apply(ctx, from.id, io.MultiReader(bytes.NewReader(start), patch), dir+"/index")
	if err != nil {
		return "", fmt.Errorf("apply patch: %w", err)
	}
	if _, err := r.tree(ctx, id); err != nil {
		return "", fmt.Errorf("apply patch: %w", err)
	}
	return id, nil
}

// apply applies a patch to a tree in an index of its own and returns the tree
// that comes out. No work tree is there, so no attribute of the tree counts.
func (r *Repo) apply(ctx context.Context, base string, patch io.Reader, index string) (string, error) {
	read, apply, write := r.git("read-tree", base), r.git("apply", "--cached", "--whitespace=nowarn", "-"), r.git("write-tree")
	if base == r.emptyTree() {
		read = r.git("read-tree", "--empty")
	}
	read.index, apply.index, write.index, apply.stdin = index, index, index, patch
	if err := read.run(ctx); err != nil {
		return "", err
	}
	if err := apply.run(ctx); err != nil {
		return "", err
	}
	return write.output(ctx)
}
