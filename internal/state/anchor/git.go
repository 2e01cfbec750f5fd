package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// GitConfig configures a git anchor.
type GitConfig struct {
	Name       string
	Repository string // absolute path of a bare repository that refuses non-fast-forwards
	Branch     string
	Scratch    string // our own directory; created if missing, and disposable
	Views      string // our own directory of views that last one call; empty: the temporary directory
	Now        func() time.Time
}

// Git is an anchor that commits checkpoints to a branch and pushes them to a
// repository that refuses everything but fast-forwards. The newest is the file
// "checkpoint" of the branch.
//
// The repository is on this machine: git would dial around the filter that all
// connections pass. Other machines can fetch the history from there.
type Git struct{ cfg GitConfig }

// gitFile is the one file of each commit.
const gitFile = "checkpoint"

var branchPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// NewGit validates the configuration. It opens nothing.
func NewGit(cfg GitConfig) (*Git, error) {
	switch {
	case !filepath.IsAbs(cfg.Repository) || filepath.Clean(cfg.Repository) != cfg.Repository || strings.ContainsAny(cfg.Repository, ":\n"):
		return nil, fmt.Errorf("repository %q: want a clean absolute path without colons; remote repositories are not supported", cfg.Repository)
	case !branchPattern.MatchString(cfg.Branch):
		return nil, fmt.Errorf("branch %q: want a word of A-Z, a-z, 0-9, _ and -", cfg.Branch)
	}
	return &Git{cfg}, nil
}

// ID implements Anchor.
func (g *Git) ID() ID { return ID{g.cfg.Name, receipt.Git, g.cfg.Repository + "#" + g.cfg.Branch} }

func (g *Git) ref() string { return "refs/heads/" + g.cfg.Branch }

// Newest implements Anchor. It refuses a repository that accepts
// non-fast-forwards.
func (g *Git) Newest(ctx context.Context) ([]byte, error) {
	if err := g.check(ctx); err != nil {
		return nil, err
	}
	tip, err := g.tip(ctx)
	if err != nil || tip == "" {
		return nil, err
	}
	return g.content(ctx, tip)
}

func (g *Git) check(ctx context.Context) error {
	f, err := gitexec.At(ctx, nil, g.cfg.Repository)
	if err != nil {
		return &unreadableError{g.cfg.Repository, err}
	}
	for _, key := range []string{"receive.denyNonFastForwards", "receive.denyDeletes"} {
		if !f.Config.True(strings.ToLower(key)) {
			return fmt.Errorf("repository %s lets branches go back; run: %s", g.cfg.Repository, visibletext.ShellText("git", "-C", g.cfg.Repository, "config", key, "true"))
		}
	}
	return nil
}

// tip returns the newest commit of the branch, or "".
func (g *Git) tip(ctx context.Context) (string, error) {
	out, err := g.read(ctx, "rev-parse", "--verify", "--quiet", g.ref()+"^{commit}")
	if gitexec.Exited(err, 1) {
		return "", nil
	}
	return out, err
}

func (g *Git) content(ctx context.Context, commit string) ([]byte, error) {
	out, err := g.read(ctx, "cat-file", "blob", commit+":"+gitFile)
	if err != nil {
		return nil, err
	}
	return []byte(out + "\n"), nil // that run took off
}

// Put implements Anchor.
func (g *Git) Put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	cp, err := logproof.Peek(signed)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if err := g.check(ctx); err != nil {
		return receipt.Receipt{}, err
	}
	tip, err := g.tip(ctx)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if tip != "" {
		there, err := g.content(ctx, tip)
		if err != nil {
			return receipt.Receipt{}, err
		}
		if bytes.Equal(there, signed) { // from an earlier attempt
			return g.receipt(signed, tip)
		}
	}
	commit, err := g.commit(ctx, signed, cp, tip)
	if err != nil {
		return receipt.Receipt{}, err
	}
	// Without a plus git refuses anything but a fast-forward here too.
	scratch, err := gitexec.Open(g.cfg.Scratch)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if _, err := g.run(ctx, scratch, nil, "push", "--quiet", "--no-verify", g.cfg.Repository, commit+":"+g.ref()); err != nil {
		return receipt.Receipt{}, err
	}
	if there, err := g.tip(ctx); err != nil || there != commit {
		return receipt.Receipt{}, errors.Join(err, fmt.Errorf("repository %s: %s is not at %s after the push", g.cfg.Repository, g.ref(), commit))
	}
	return g.receipt(signed, commit)
}

func (g *Git) receipt(signed []byte, commit string) (receipt.Receipt, error) {
	r := newReceipt(g.ID(), g.cfg.Now(), signed)
	r.Git = &receipt.Commit{ID: commit}
	return r, r.Validate()
}

// commit creates a commit on top of tip in the scratch repository.
func (g *Git) commit(ctx context.Context, signed []byte, cp logproof.Checkpoint, tip string) (string, error) {
	// Creating it is not atomic: after a kill in its middle the directory is no
	// repository, and it holds nothing that cannot be made again.
	scratch, err := gitexec.Open(g.cfg.Scratch)
	if err != nil {
		if err := errors.Join(os.RemoveAll(g.cfg.Scratch), os.MkdirAll(filepath.Dir(g.cfg.Scratch), 0o700)); err != nil {
			return "", err
		}
		if scratch, err = gitexec.Create(g.cfg.Scratch, "sha1"); err != nil {
			return "", err
		}
	}
	if tip != "" {
		if _, err := g.run(ctx, scratch, nil, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", g.cfg.Repository, "+"+g.ref()+":refs/heads/held"); err != nil {
			return "", err
		}
	}
	blob, err := g.run(ctx, scratch, bytes.NewReader(signed), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	tree, err := g.run(ctx, scratch, strings.NewReader("100644 blob "+blob+"\t"+gitFile+"\n"), "mktree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", fmt.Sprintf("The log %s has %d entries", cp.Origin, cp.Size)}
	if tip != "" {
		args = append(args, "-p", tip)
	}
	return g.run(ctx, scratch, nil, args...)
}

// run runs git in the scratch repository, over no transport but files, and returns
// what it printed, without the last line feed. Where git sends to or fetches from the
// repository of the anchor, its configuration applies and its hooks run there: the
// operator made it for this service, and git refuses one of another account.
func (g *Git) run(ctx context.Context, scratch gitexec.Repo, stdin io.Reader, args ...string) (string, error) {
	date := g.cfg.Now().UTC().Format("2006-01-02T15:04:05Z")
	return gitexec.Git{
		Repo: scratch, Protocol: "file", Identity: gitexec.Identity("bailiwick", "bailiwick@invalid", date),
		Stdin: stdin, MaxOutput: logproof.MaxSigned + 1,
	}.Output(ctx, args...)
}

// view calls use with a view of the repository, which is removed then: what only reads
// it runs nothing of it.
func (g *Git) view(ctx context.Context, use func(gitexec.Git) error) error {
	f, err := gitexec.At(ctx, nil, g.cfg.Repository)
	if err != nil {
		return &unreadableError{g.cfg.Repository, err}
	}
	dir, err := os.MkdirTemp(g.cfg.Views, "bailiwick-anchor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // at worst an empty repository is left
	v, err := f.View(filepath.Join(dir, "git"))
	if err != nil {
		return &unreadableError{g.cfg.Repository, err}
	}
	return use(gitexec.Git{Repo: v, MaxOutput: logproof.MaxSigned + 1})
}

// unreadableError is a repository that exists and that git could not read either.
type unreadableError struct {
	repository string
	err        error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("repository %s: %v", e.repository, e.err)
}

// Unwrap implements the interface of package errors.
func (e *unreadableError) Unwrap() error { return e.err }

// read runs git in a view of the repository and returns what it printed, without the
// last line feed.
func (g *Git) read(ctx context.Context, args ...string) (out string, err error) {
	err = g.view(ctx, func(git gitexec.Git) error {
		out, err = git.Output(ctx, args...)
		return err
	})
	return out, err
}
