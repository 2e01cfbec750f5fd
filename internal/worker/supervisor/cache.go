package supervisor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// checkout gets the source's commit from the cache of checkouts, or adds it. The
// worker uses it until it exits, so that it is not removed meanwhile.
func (ws *workspace) checkout(ctx context.Context) (err error) {
	shared, repository := checkoutcache.New(ws.dirs.Checkouts()), ws.dirs.Repository(ws.plan.source)
	if from := ws.manifest.Source; from != nil {
		repository = cmp.Or(shared.Repository(ws.plan.source.Repo, from.Commit), repository)
	}
	if ws.repo, err = capture.CreateRepo(ctx, filepath.Join(ws.scratch, "git"), repository); err != nil {
		return err
	}
	ws.repo.MaxCheckout = int64(ws.manifest.Limits.Disk)
	if ws.manifest.Source == nil {
		return nil
	}
	ws.tree = ws.manifest.Source.Commit
	// A worker with a uid of its own reads the shared checkouts and changes none. What they lack it makes for itself.
	for _, store := range []*checkoutcache.Store{shared, checkoutcache.New(filepath.Join(ws.scratch, ownCheckouts))} {
		ws.cached, err = store.Acquire(ctx, ws.repo, ws.plan.source.Repo, ws.tree)
		if !errors.Is(err, checkoutcache.ErrReadOnly) {
			break
		}
	}
	if err != nil {
		return err
	}
	ws.base, ws.lower, ws.config.Index = ws.cached.Tree, []string{ws.cached.Tree}, ws.cached.Index
	return nil
}

// worktree returns the directory with the .git that makes the workspace a git work tree, of the cache or of this attempt.
func (ws *workspace) worktree(ctx context.Context) (string, error) {
	dir, err := ws.cached.Worktree(ctx, ws.repo)
	if !errors.Is(err, checkoutcache.ErrReadOnly) {
		return dir, err
	}
	dir = filepath.Join(ws.scratch, ownWorktree)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // G301: the jail's account reads it
		return "", err
	}
	return dir, errors.Join(os.Chmod(dir, 0o755), ws.repo.Worktree(ctx, ws.tree, dir)) //nolint:gosec // G302: likewise, whatever the umask is
}

// under returns the layers below the capabilities in a jail, topmost first: the
// .git that makes it a work tree, and lower.
func (ws *workspace) under(lower []string) []string {
	if ws.git == "" {
		return lower
	}
	return slices.Concat([]string{ws.git}, lower)
}

// limitCapture tells the capture which directories lie over the checkout in the
// agent's jail, so that it skips files that none of them has. Without that, or
// when the checkout is not the lowest layer, it reads everything.
func (ws *workspace) limitCapture(j *jail.Jail) {
	n := len(ws.lower) - 1
	if n < 0 || ws.lower[n] != ws.base || j.Upper() == nil {
		return
	}
	over := []*os.File{j.Upper()}
	for _, dir := range append([]string{overlayDir(ws.scratch)}, ws.under(ws.lower[:n])...) {
		f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0) //nolint:gosec // G304: our own directories
		if err != nil {
			return
		}
		over = append(over, f) // open until the worker exits, like the layers
	}
	ws.config.Over = over
}
