package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// The names at the top of a workspace that belong to the worker. They are
// never part of a patch.
const (
	inputsDir  = "inputs"
	outputsDir = "outputs"
	ownDir     = ".bailiwick"
	gitDir     = ".git" // only where a capability requires a work tree
)

// What is kept of an attempt is at most limits.disk, each file at its full size: a file
// with holes takes less in the jail. These are the bounds where limits.disk is larger.
const (
	maxChanged = 512 << 20 // bytes of the files that changed
	maxOutputs = 1 << 30   // bytes of all outputs
)

// workspace is the initial content of the jail, which sees it copy-on-write.
type workspace struct {
	dir      string // of the attempt
	scratch  string // see Config
	dirs     api.Dirs
	manifest *record.Manifest
	plan     *plan

	cached   *checkoutcache.Checkout // base; nil without a source
	repo     *capture.Repo
	base     string   // directory of the checkout, shared with other workers; empty for none
	git      string   // directory with the .git that is laid over it; empty for none
	tree     string   // commit of the checkout; empty for none
	lower    []string // layers below the capabilities, topmost first
	config   capture.Config
	baseline *capture.Snapshot // nil until the agent is about to start
}

func overlayDir(dir string) string { return filepath.Join(dir, "overlay") }

// Directories of an attempt whose worker cannot add to what all attempts share.
const (
	ownCheckouts = "checkouts"
	ownWorktree  = "worktree"
)

// scratch returns the directories that are not kept.
func scratch() []string {
	return []string{"overlay", resumedDir, checkDir, "git", ownCheckouts, ownWorktree}
}

// removeScratch removes them, and lets the cache remove the checkout.
func (ws *workspace) removeScratch(dir string) (err error) {
	if ws != nil && ws.cached != nil {
		err = ws.cached.Close()
	}
	for _, d := range scratch() {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, d)))
	}
	return err
}

// setupPath is the path of a capability's setup script in the workspace, so that
// none overwrites another.
func setupPath(capability api.Name) string { return ownDir + "/setup/" + string(capability) }

// prepare gets the checkout of the source and builds the layers over it.
func (a *attempt) prepare(ctx context.Context) error {
	ws := &workspace{dir: a.cfg.Dir, scratch: a.cfg.Scratch, dirs: a.cfg.Dirs, manifest: &a.manifest, plan: &a.plan, config: capture.Config{Exclude: []string{inputsDir, outputsDir, ownDir}}}
	a.workspace = ws
	if !a.summary.redact.Empty() {
		ws.config.Secret = a.summary.redact.In
	}
	if err := ws.checkout(ctx); err != nil {
		reason := api.ReasonFetch
		if _, ok := errors.AsType[*capture.TooLargeError](err); ok {
			reason = api.ReasonLimit
		}
		return explain(ctx, reason, ws.aboutSource(err))
	}
	if ws.cached != nil {
		a.summary.LeftOut = append(a.summary.LeftOut, ws.cached.Index.Submodules()...)
	}
	for _, name := range ws.config.Exclude {
		if _, err := os.Lstat(filepath.Join(ws.base, name)); ws.base != "" && err == nil {
			return fail(api.ReasonContext, "source %q has %s at its top level, which is reserved for the worker", a.manifest.Source.Name, name)
		}
	}
	if err := ws.layEarlier(ctx); err != nil {
		return explain(ctx, api.ReasonIntegrity, err)
	}
	if ws.config.Resumed == "" { // else it has the work of another jail as well
		ws.config.MaxTotal = min(maxChanged, int64(a.manifest.Limits.Disk))
	}
	if err := ws.overlay(ctx); err != nil {
		return explain(ctx, api.ReasonSetup, err)
	}
	if !a.plan.wantsGit(&a.manifest) {
		return nil
	}
	ws.config.Exclude = append(ws.config.Exclude, gitDir)
	var err error
	if ws.git, err = ws.worktree(ctx); err != nil {
		return explain(ctx, api.ReasonFetch, err)
	}
	return nil
}

// aboutSource names the source in an error, and says why a pinned commit may
// be gone.
func (ws *workspace) aboutSource(err error) error {
	from := ws.manifest.Source
	switch {
	case from == nil:
		return err
	case api.IsRemote(ws.plan.source.Repo) && (errors.Is(err, capture.ErrNoCommit) || errors.Is(err, fs.ErrNotExist)):
		return fmt.Errorf("source %q: the service no longer has what it fetched of %s: dispatch again, which fetches it: %w", from.Name, ws.plan.source.Repo, err)
	case errors.Is(err, capture.ErrNoCommit):
		return fmt.Errorf("source %q: %s no longer has commit %s: its history was rewritten, or it was replaced; dispatch again from a commit that it has", from.Name, ws.plan.source.Repo, from.Commit)
	}
	return fmt.Errorf("source %q: %w", from.Name, err)
}

// wantsGit reports whether a capability requires the workspace to be a git
// work tree.
func (p *plan) wantsGit(m *record.Manifest) bool {
	for _, c := range p.capabilities {
		for _, r := range c.Requires {
			if r.Git != "" && m.Source != nil {
				return true
			}
		}
	}
	return false
}

// overlay writes the files of the capabilities, their setup scripts, the inputs
// and the needs into one layer over the checkout.
func (ws *workspace) overlay(ctx context.Context) error {
	layer := overlayDir(ws.scratch)
	for _, d := range []string{inputsDir, outputsDir, ownDir + "/setup"} {
		if err := os.MkdirAll(filepath.Join(layer, d), 0o755); err != nil { //nolint:gosec // G301: the jail's account reads it
			return err
		}
	}
	root, err := os.OpenRoot(layer)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	owner := map[string]api.Name{}
	for _, c := range ws.plan.capabilities {
		for _, f := range c.Files {
			path := f.Path
			if path == c.Setup {
				path = setupPath(c.Name)
			} else if top, _, _ := strings.Cut(path, "/"); slices.Contains(ws.config.Exclude, top) || strings.EqualFold(top, gitDir) {
				return fmt.Errorf("capability %q: %s: %s is reserved for the worker", c.Name, path, top)
			} else {
				ws.config.Overlay = append(ws.config.Overlay, path)
			}
			if other, ok := owner[path]; ok {
				return fmt.Errorf("capabilities %q and %q both have %s", other, c.Name, path)
			}
			owner[path] = c.Name
			content, err := ws.plan.store.Get(ctx, f.Digest, f.Size)
			if err != nil {
				return fail(api.ReasonIntegrity, "capability %q: %s: %w", c.Name, path, err)
			}
			if err := layFile(root, path, content, os.FileMode(f.Mode&0o777)); err != nil {
				return err
			}
		}
	}
	for _, f := range ws.plan.launch.Inputs {
		if err := layFile(root, inputsDir+"/"+f.Path, f.Content, 0o644); err != nil {
			return err
		}
	}
	return ws.layNeeds(root)
}

// layFile writes a file of a layer, with this mode whatever the umask is.
func layFile(root *os.Root, path string, content []byte, mode os.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
