package capture

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAWorktreeHasOneCommitAndNoAlternates(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			source, work := t.TempDir(), t.TempDir()
			git(t, source, "init", "-q", "--object-format="+format)
			write(t, filepath.Join(source, "secret.txt"), "only in the history\n")
			git(t, source, "add", "-A")
			git(t, source, "commit", "-qm", "first")
			secret := git(t, source, "rev-parse", "HEAD:secret.txt")
			must(t, os.Remove(filepath.Join(source, "secret.txt")))
			write(t, filepath.Join(source, "dir/a file.txt"), "one\n")
			git(t, source, "add", "-A")
			git(t, source, "commit", "-qm", "second")
			commit := git(t, source, "rev-parse", "HEAD")

			r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "git"), source)
			must(t, err)
			err = r.Checkout(t.Context(), commit, work)
			must(t, err)
			must(t, r.Worktree(t.Context(), commit, work))
			must(t, os.RemoveAll(source))

			if got := git(t, work, "status", "--porcelain"); got != "" {
				t.Errorf("status of an untouched work tree: %s", got)
			}
			git(t, work, "fsck", "--full")
			if got := git(t, work, "log", "--format=%H %s"); got != commit+" second" {
				t.Errorf("log = %s", got)
			}
			if out, err := tryGit(work, "cat-file", "-p", secret); err == nil {
				t.Errorf("the history can be read: %s", out)
			}
			write(t, filepath.Join(work, "dir/a file.txt"), "two\n")
			if got := git(t, work, "diff", "--stat"); got == "" {
				t.Error("a change is not seen")
			}
		})
	}
}
