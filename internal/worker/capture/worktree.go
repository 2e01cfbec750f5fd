package capture

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// worktreeConfig is the configuration of the agent's own repository.
const worktreeConfig = `[core]
	repositoryFormatVersion = 1
	bare = false
	fileMode = true
[gc]
	auto = 0
[extensions]
	objectFormat = %s
`

// Worktree creates dir/.git, which makes the checkout in or under dir a git work
// tree for the agent: one commit (full object name) without its history, on the
// branch "work". It borrows no objects, so the source repository is not reachable
// through it. Nothing reads back what an agent made of it.
func (r *Repo) Worktree(ctx context.Context, commit, dir string) (err error) {
	defer r.wrapGit(&err, "work tree of "+commit)
	own := filepath.Join(dir, ".git")
	for _, d := range []string{"", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags", "info"} {
		if err := os.Mkdir(filepath.Join(own, d), 0o755); err != nil { //nolint:gosec // G301: the jail's account reads it
			return err
		}
	}
	var names bytes.Buffer
	list, pack := r.git(), r.git()
	list.Stdout, pack.Stdin = &names, &names
	if err := list.Run(ctx, "rev-list", "--objects", "--no-walk", "--end-of-options", commit); err != nil {
		return err
	}
	// A git that is kept to some directories renames within one alone.
	packs, prefix := filepath.Join(r.dir, "objects", "pack"), "worktree"+rand.Text()
	if err := pack.Run(ctx, "pack-objects", "-q", "--window=0", filepath.Join(packs, prefix)); err != nil {
		return err
	}
	files, err := os.ReadDir(packs)
	for _, f := range files {
		if rest, ok := strings.CutPrefix(f.Name(), prefix); ok {
			err = errors.Join(err, os.Rename(filepath.Join(packs, f.Name()), filepath.Join(own, "objects", "pack", "pack"+rest)))
		}
	}
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"HEAD": "ref: refs/heads/work\n", "refs/heads/work": commit + "\n", "shallow": commit + "\n", "config": fmt.Sprintf(worktreeConfig, r.format),
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(content), 0o644); err != nil { //nolint:gosec // G306: the jail's account reads it
			return err
		}
	}
	index := r.git()
	index.Index = filepath.Join(own, "index")
	return index.Run(ctx, "read-tree", commit)
}
