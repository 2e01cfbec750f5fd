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
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
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
	repo     *capture.Repo
	base     string   // directory of the checkout, shared with other workers; empty for none
	git      string   // directory with the .git that is laid over it; empty for none
	tree     string   // commit of the checkout; empty for none
	lower    []string // layers below the capabilities, topmost first
	config   capture.Config
	baseline *capture.Snapshot // nil until the agent is about to start
}

func (a *attempt) overlayDir() string { return filepath.Join(a.cfg.Dir, "overlay") }

// scratch returns the directories that are not kept.
func scratch() []string { return []string{"overlay", resumedDir, checkDir, "git"} }

func (a *attempt) removeScratch() error {
	errs := []error{a.releaseCheckout()}
	for _, d := range scratch() {
		errs = append(errs, os.RemoveAll(filepath.Join(a.cfg.Dir, d)))
	}
	return errors.Join(errs...)
}

// setupPath is the path of a capability's setup script in the workspace, so that
// none overwrites another.
func setupPath(capability api.Name) string { return ownDir + "/setup/" + string(capability) }

// prepare gets the checkout of the source and builds the layers over it.
func (a *attempt) prepare(ctx context.Context) (*workspace, error) {
	ws := &workspace{config: capture.Config{Exclude: []string{inputsDir, outputsDir, ownDir}}}
	if !a.summary.redact.Empty() {
		ws.config.Secret = a.summary.redact.In
	}
	if err := a.checkout(ctx, ws); err != nil {
		reason := api.ReasonFetch
		if _, ok := errors.AsType[*capture.TooLargeError](err); ok {
			reason = api.ReasonLimit
		}
		return nil, explain(ctx, reason, a.aboutSource(err))
	}
	for _, name := range ws.config.Exclude {
		if _, err := os.Lstat(filepath.Join(ws.base, name)); ws.base != "" && err == nil {
			return nil, fail(api.ReasonContext, "source %q has %s at its top level, which is reserved for the worker", a.manifest.Source.Name, name)
		}
	}
	if err := a.layEarlier(ctx, ws); err != nil {
		return nil, explain(ctx, api.ReasonIntegrity, err)
	}
	if ws.config.Resumed == "" { // else it has the work of another jail as well
		ws.config.MaxTotal = min(maxChanged, int64(a.manifest.Limits.Disk))
	}
	if err := a.overlay(ctx, ws); err != nil {
		return nil, explain(ctx, api.ReasonSetup, err)
	}
	if !a.wantsGit() {
		return ws, nil
	}
	ws.config.Exclude = append(ws.config.Exclude, gitDir)
	var err error
	if ws.git, err = a.cached.Worktree(ctx, ws.repo); err != nil {
		return nil, explain(ctx, api.ReasonFetch, err)
	}
	return ws, nil
}

// aboutSource names the source in an error, and says why a pinned commit may
// be gone.
func (a *attempt) aboutSource(err error) error {
	from := a.manifest.Source
	switch {
	case from == nil:
		return err
	case api.IsRemote(a.plan.source.Repo) && (errors.Is(err, capture.ErrNoCommit) || errors.Is(err, fs.ErrNotExist)):
		return fmt.Errorf("source %q: the service no longer has what it fetched of %s: dispatch again, which fetches it: %w", from.Name, a.plan.source.Repo, err)
	case errors.Is(err, capture.ErrNoCommit):
		return fmt.Errorf("source %q: %s no longer has commit %s: its history was rewritten, or it was replaced; dispatch again from a commit that it has", from.Name, a.plan.source.Repo, from.Commit)
	}
	return fmt.Errorf("source %q: %w", from.Name, err)
}

// wantsGit reports whether a capability requires the workspace to be a git
// work tree.
func (a *attempt) wantsGit() bool {
	for _, c := range a.plan.capabilities {
		for _, r := range c.Requires {
			if r.Git != "" && a.manifest.Source != nil {
				return true
			}
		}
	}
	return false
}

// overlay writes the files of the capabilities, their setup scripts, the inputs
// and the needs into one layer over the checkout.
func (a *attempt) overlay(ctx context.Context, ws *workspace) error {
	layer := a.overlayDir()
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
	for _, c := range a.plan.capabilities {
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
			content, err := a.plan.store.Get(ctx, f.Digest, f.Size)
			if err != nil {
				return fail(api.ReasonIntegrity, "capability %q: %s: %w", c.Name, path, err)
			}
			if err := layFile(root, path, content, os.FileMode(f.Mode&0o777)); err != nil {
				return err
			}
		}
	}
	for _, f := range a.plan.launch.Inputs {
		if err := layFile(root, inputsDir+"/"+f.Path, f.Content, 0o644); err != nil {
			return err
		}
	}
	return a.layNeeds(root)
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
