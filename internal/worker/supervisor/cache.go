package supervisor

import (
	"context"
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
func (a *attempt) checkout(ctx context.Context, ws *workspace) (err error) {
	if ws.repo, err = capture.CreateRepo(ctx, filepath.Join(a.cfg.Dir, "git"), a.cfg.Dirs.Repository(a.plan.source)); err != nil {
		return err
	}
	ws.repo.MaxCheckout = int64(a.manifest.Limits.Disk)
	if a.manifest.Source == nil {
		return nil
	}
	ws.tree = a.manifest.Source.Commit
	a.cached, err = checkoutcache.New(a.cfg.Dirs.Checkouts()).Acquire(ctx, ws.repo, a.plan.source.Repo, ws.tree)
	if err != nil {
		return err
	}
	ws.base, ws.lower, ws.config.Index = a.cached.Tree, []string{a.cached.Tree}, a.cached.Index
	a.summary.LeftOut = append(a.summary.LeftOut, a.cached.Index.Submodules()...)
	return nil
}

// releaseCheckout lets the cache remove the checkout.
func (a *attempt) releaseCheckout() error {
	if a.cached == nil {
		return nil
	}
	return a.cached.Close()
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
func (a *attempt) limitCapture(ws *workspace, j *jail.Jail) {
	n := len(ws.lower) - 1
	if n < 0 || ws.lower[n] != ws.base || j.Upper() == nil {
		return
	}
	over := []*os.File{j.Upper()}
	for _, dir := range append([]string{a.overlayDir()}, ws.under(ws.lower[:n])...) {
		f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0) //nolint:gosec // G304: our own directories
		if err != nil {
			return
		}
		over = append(over, f) // open until the worker exits, like the layers
	}
	ws.config.Over = over
}
