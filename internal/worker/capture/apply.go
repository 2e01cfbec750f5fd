package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// ApplyPatch applies a patch of Capture to a commit or tree (full object name; ""
// is the empty tree), and returns the object name of the resulting tree. A patch
// that does not apply, or gives a tree that Checkout would refuse, is an error;
// an empty patch gives the base.
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
	git := r.git()
	git.Index = index
	read := []string{"read-tree", base}
	if base == r.emptyTree() {
		read[1] = "--empty"
	}
	if err := git.Run(ctx, read...); err != nil {
		return "", err
	}
	apply := git
	apply.Stdin = patch
	if err := apply.Run(ctx, "apply", "--cached", "--whitespace=nowarn", "-"); err != nil {
		return "", err
	}
	return git.Output(ctx, "write-tree")
}
