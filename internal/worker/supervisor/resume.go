package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// The scratch directories that hold a tree as it differs from the base.
const (
	resumedDir = "resumed" // the work of the attempt before, under the agent
	checkDir   = "check"   // base and patch, under the verify command
)

// layPatch lays the patch of an earlier attempt under the agent. Its changes count
// as changes of this attempt, so that the final patch has the work of both. It
// is called before the jail starts.
func (ws *workspace) layPatch(ctx context.Context, patch io.Reader) error {
	tree, err := ws.repo.ApplyPatch(ctx, ws.tree, patch)
	if err != nil {
		return fmt.Errorf("earlier patch: %w", err)
	}
	if ws.lower, err = ws.layTree(ctx, tree, resumedDir); err != nil {
		return fmt.Errorf("earlier patch: %w", err)
	}
	ws.config.Resumed = tree
	return nil
}

// layTree returns directories that, topmost first, form a checkout of tree: the
// difference from the base in the scratch directory name, over the base. Where
// layers cannot hide files it is a full checkout.
func (ws *workspace) layTree(ctx context.Context, tree, name string) ([]string, error) {
	dir := filepath.Join(ws.scratch, name)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // G301: the jail's account reads it
		return nil, err
	}
	err := ws.repo.Layer(ctx, ws.tree, tree, dir)
	if err == nil && ws.base != "" {
		return []string{dir, ws.base}, nil
	}
	if !errors.Is(err, capture.ErrNoWhiteout) {
		return []string{dir}, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil { //nolint:gosec // G301: as above
		return nil, err
	}
	err = ws.repo.Checkout(ctx, tree, dir)
	return []string{dir}, err
}
