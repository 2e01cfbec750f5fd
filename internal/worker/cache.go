package worker

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/capture"
	"github.com/bailiwick-dev/bailiwick/internal/checkout"
	"github.com/bailiwick-dev/bailiwick/internal/jail"
)

// checkout finds the source's commit among the checkouts, or makes it there.
// The worker keeps it until its end, so that nobody removes it meanwhile.
func (a *attempt) checkout(ctx context.Context, ws *workspace) (err error) {
	if ws.repo, err = capture.CreateRepo(ctx, filepath.Join(a.cfg.Dir, "git"), a.plan.source.Repo); err != nil {
		return err
	}
	if a.manifest.Source == nil {
		return nil
	}
	ws.tree = a.manifest.Source.Commit
	a.cached, err = checkout.New(a.cfg.Dirs.Checkouts()).Acquire(ctx, ws.repo, a.plan.source.Repo, ws.tree)
	if err != nil {
		return err
	}
	ws.base, ws.lower, ws.config.Index = a.cached.Tree, []string{a.cached.Tree}, a.cached.Index
	a.summary.LeftOut = append(a.summary.LeftOut, a.cached.Index.Submodules()...)
	return nil
}

// giveBack lets the checkout be removed by others.
func (a *attempt) giveBack() error {
	if a.cached == nil {
		return nil
	}
	return a.cached.Close()
}

// under is what lies under the capabilities in a jail: the directories of
// lower, topmost first, and the .git that makes them a work tree.
func (ws *workspace) under(lower []string) []string {
	if ws.git == "" {
		return lower
	}
	return slices.Concat([]string{ws.git}, lower)
}

// knowLayers tells the capture which directories lie over the checkout in the
// agent's jail, so that what none of them has need not be looked at. Where that
// is not known, or the checkout is not at the bottom, all is looked at.
func (a *attempt) knowLayers(ws *workspace, j *jail.Jail) {
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
		over = append(over, f) // open until the worker ends, as the layers are there
	}
	ws.config.Over = over
}
