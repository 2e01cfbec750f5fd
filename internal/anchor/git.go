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

	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// GitConfig configures a git anchor.
type GitConfig struct {
	Name       string
	Repository string // absolute path of a bare repository that refuses non-fast-forwards
	Branch     string
	Scratch    string // our own directory; created if missing, and disposable
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
	for _, key := range []string{"receive.denyNonFastForwards", "receive.denyDeletes"} {
		// Exit status 1 is that it is not set.
		out, err := g.run(ctx, g.cfg.Repository, nil, "config", "--type=bool", "--get", key)
		if err != nil && !gitexec.Exited(err, 1) {
			return err
		}
		if out != "true" {
			return fmt.Errorf("repository %s lets branches go back; run: git -C %s config %s true", g.cfg.Repository, g.cfg.Repository, key)
		}
	}
	return nil
}

// tip returns the newest commit of the branch, or "".
func (g *Git) tip(ctx context.Context) (string, error) {
	out, err := g.run(ctx, g.cfg.Repository, nil, "rev-parse", "--verify", "--quiet", g.ref()+"^{commit}")
	if gitexec.Exited(err, 1) {
		return "", nil
	}
	return out, err
}

func (g *Git) content(ctx context.Context, commit string) ([]byte, error) {
	out, err := g.run(ctx, g.cfg.Repository, nil, "cat-file", "blob", commit+":"+gitFile)
	if err != nil {
		return nil, err
	}
	return []byte(out + "\n"), nil // that run took off
}

// Put implements Anchor.
func (g *Git) Put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	cp, err := note.Peek(signed)
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
	if _, err := g.run(ctx, g.cfg.Scratch, nil, "push", "--quiet", "--no-verify", g.cfg.Repository, commit+":"+g.ref()); err != nil {
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
func (g *Git) commit(ctx context.Context, signed []byte, cp note.Checkpoint, tip string) (string, error) {
	// git init is not atomic: after a kill in its middle the directory is no
	// repository, and it holds nothing that cannot be made again.
	if _, err := g.run(ctx, g.cfg.Scratch, nil, "rev-parse", "--git-dir"); err != nil {
		if err := errors.Join(os.RemoveAll(g.cfg.Scratch), os.MkdirAll(g.cfg.Scratch, 0o700)); err != nil {
			return "", err
		}
		if _, err := g.run(ctx, "", nil, "init", "--quiet", "--bare", "--template=", g.cfg.Scratch); err != nil {
			return "", err
		}
	}
	if tip != "" {
		if _, err := g.run(ctx, g.cfg.Scratch, nil, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", g.cfg.Repository, "+"+g.ref()+":refs/heads/held"); err != nil {
			return "", err
		}
	}
	blob, err := g.run(ctx, g.cfg.Scratch, bytes.NewReader(signed), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	tree, err := g.run(ctx, g.cfg.Scratch, strings.NewReader("100644 blob "+blob+"\t"+gitFile+"\n"), "mktree")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", tree, "-m", fmt.Sprintf("The log %s has %d entries", cp.Origin, cp.Size)}
	if tip != "" {
		args = append(args, "-p", tip)
	}
	return g.run(ctx, g.cfg.Scratch, nil, args...)
}

// run runs git in a repository, over no transport but files, and returns what
// it printed, without the last line feed. Hooks of the receiving repository run:
// git refuses one that belongs to another account.
func (g *Git) run(ctx context.Context, dir string, stdin io.Reader, args ...string) (string, error) {
	date := g.cfg.Now().UTC().Format("2006-01-02T15:04:05Z")
	return gitexec.Git{
		GitDir: dir, Protocol: "file", Env: gitexec.Identity("bailiwick", "bailiwick@invalid", date),
		Stdin: stdin, MaxOutput: note.MaxSigned + 1,
	}.Output(ctx, args...)
}
