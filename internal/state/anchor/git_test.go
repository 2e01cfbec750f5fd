package anchor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// repository returns a bare repository that refuses non-fast-forwards.
func repository(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "anchors.git")
	git(t, "", "init", "--quiet", "--bare", dir)
	git(t, dir, "config", "receive.denyNonFastForwards", "true")
	git(t, dir, "config", "receive.denyDeletes", "true")
	return dir
}

func tryGit(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_AUTHOR_NAME=eve", "GIT_AUTHOR_EMAIL=e@invalid", "GIT_COMMITTER_NAME=eve", "GIT_COMMITTER_EMAIL=e@invalid",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func openGit(t *testing.T, repo string) *Git {
	t.Helper()
	g, err := NewGit(GitConfig{Name: "history", Repository: repo, Branch: "bailiwick", Scratch: filepath.Join(t.TempDir(), "scratch.git"), Now: time.Now})
	must(t, err)
	return g
}

// proves R-A6
func TestGitKeepsCheckpoints(t *testing.T) {
	repo := repository(t)
	testKeeps(t, func() Anchor { return openGit(t, repo) })
	if n := git(t, repo, "rev-list", "--count", "bailiwick"); n != "7" {
		t.Errorf("%s commits for 7 checkpoints, each put three times", n)
	}
	if n := git(t, repo, "rev-list", "--count", "--min-parents=2", "bailiwick"); n != "0" {
		t.Errorf("%s merges", n)
	}
	git(t, repo, "fsck", "--strict")
}

// A kill within the creation of the scratch repository leaves part of one.
func TestGitRecreatesAnIncompleteScratchRepository(t *testing.T) {
	for name, damage := range map[string]func(scratch string) error{
		"without objects": func(scratch string) error { return os.RemoveAll(filepath.Join(scratch, "objects")) },
		"empty HEAD":      func(scratch string) error { return os.WriteFile(filepath.Join(scratch, "HEAD"), nil, 0o600) },
		"without HEAD":    func(scratch string) error { return os.Remove(filepath.Join(scratch, "HEAD")) },
	} {
		t.Run(name, func(t *testing.T) {
			g, k := openGit(t, repository(t)), newKey(t)
			put(t, g, signedAt(t, k, 3, "a"))
			must(t, damage(g.cfg.Scratch))
			put(t, g, signedAt(t, k, 5, "b"))
		})
	}
}

// The repository contains the commit that a receipt names, and refuses pushes that
// would replace it.
//
// proves R-A6
func TestAPushCannotRemoveACheckpoint(t *testing.T) {
	repo, k := repository(t), newKey(t)
	g := openGit(t, repo)
	first := put(t, g, signedAt(t, k, 3, "a"))
	last := put(t, g, signedAt(t, k, 5, "b"))
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "", "clone", "--quiet", "--branch", "bailiwick", repo, clone)
	if got := git(t, clone, "show", first.Git.ID+":checkpoint"); got+"\n" != string(first.Signed) {
		t.Errorf("the first is %q", got)
	}
	git(t, clone, "merge-base", "--is-ancestor", first.Git.ID, last.Git.ID)
	// An attacker with the real key pushes another history.
	git(t, clone, "reset", "--quiet", "--hard", first.Git.ID)
	must(t, os.WriteFile(filepath.Join(clone, "checkpoint"), signedAt(t, k, 5, "forged"), 0o600))
	git(t, clone, "commit", "--quiet", "-am", "forged")
	for name, args := range map[string][]string{"force": {"push", "--force", repo, "bailiwick"}, "delete": {"push", repo, ":bailiwick"}, "plain": {"push", repo, "bailiwick"}} {
		if out, err := tryGit(t, clone, args...); err == nil {
			t.Errorf("%s: pushed: %s", name, out)
		}
	}
	if got := newestOf(t, g); string(got) != string(last.Signed) {
		t.Errorf("the newest is %q", got)
	}
	// Control: a repository without the two settings accepts it, and is refused as
	// an anchor.
	git(t, repo, "config", "receive.denyNonFastForwards", "false")
	git(t, clone, "push", "--quiet", "--force", repo, "bailiwick")
	if _, err := g.Newest(t.Context()); err == nil || !strings.Contains(err.Error(), "git -C "+repo+" config receive.denyNonFastForwards true") {
		t.Errorf("%v", err)
	}
	if r, err := g.Put(t.Context(), signedAt(t, k, 7, "c")); err == nil {
		t.Errorf("%+v", r)
	}
}

// Two services with a common history cannot both extend one branch.
func TestGitRefusesADivergedBranch(t *testing.T) {
	repo, k := repository(t), newKey(t)
	one := openGit(t, repo)
	put(t, one, signedAt(t, k, 3, "a"))
	tip, err := one.tip(t.Context())
	must(t, err)
	commit, err := one.commit(t.Context(), signedAt(t, k, 4, "b"), cpAt(4), tip)
	must(t, err)
	put(t, openGit(t, repo), signedAt(t, k, 5, "c")) // concurrently
	if _, err := one.run(t.Context(), scratchOf(t, one), nil, "push", "--quiet", repo, commit+":"+one.ref()); err == nil {
		t.Error("a diverged commit was pushed")
	}
}

func TestGitRefusesUnsafeRepositories(t *testing.T) {
	k, dir := newKey(t), t.TempDir()
	g := openGit(t, dir)
	if signed, err := g.Newest(t.Context()); err == nil {
		t.Errorf("%q", signed)
	}
	if r, err := g.Put(t.Context(), signedAt(t, k, 1, "a")); err == nil {
		t.Errorf("%+v", r)
	}
	// A branch with other content does not count as empty.
	repo := repository(t)
	work := filepath.Join(dir, "work")
	git(t, "", "init", "--quiet", "-b", "bailiwick", work)
	git(t, work, "commit", "--quiet", "--allow-empty", "-m", "x")
	git(t, work, "push", "--quiet", repo, "bailiwick")
	if signed, err := openGit(t, repo).Newest(t.Context()); err == nil {
		t.Errorf("%q", signed)
	}
}

// proves R-T7: git reaches no other machine, and inherits nothing of this process.
func TestGitStaysOnThisMachine(t *testing.T) {
	for _, place := range []string{"https://example.com/x.git", "ssh://example.com/x", "git@example.com:x.git", "host:/x", "ext::sh -c touch% /tmp/x", "relative", "/a/../b", "file:///x", "/x:y", "-x", ""} {
		if _, err := NewGit(GitConfig{Repository: place, Branch: "b"}); err == nil {
			t.Errorf("%q: accepted", place)
		}
	}
	for _, branch := range []string{"", "-x", "a/b", "a b", "..", "a.lock", "@", "+x", "refs/heads/x"} {
		if _, err := NewGit(GitConfig{Repository: "/x", Branch: branch}); err == nil {
			t.Errorf("branch %q: accepted", branch)
		}
	}
	g := openGit(t, repository(t))
	for _, place := range []string{"https://127.0.0.1:1/x.git", "ssh://127.0.0.1/x", "ext::true", "git://127.0.0.1/x"} {
		_, err := g.run(t.Context(), gitexec.Repo{}, nil, "ls-remote", place)
		if err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", place, err)
		}
	}
	if _, err := g.run(t.Context(), gitexec.Repo{}, nil, "ls-remote", g.cfg.Repository); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A hook that hangs is killed with its children.
func TestAHangingGitIsKilled(t *testing.T) {
	repo, k := repository(t), newKey(t)
	g := openGit(t, repo)
	put(t, g, signedAt(t, k, 1, "a"))
	fifo := filepath.Join(t.TempDir(), "began")
	must(t, mkfifo(fifo))
	must(t, os.WriteFile(filepath.Join(repo, "hooks", "pre-receive"), []byte("#!/bin/sh\nsleep 5683 &\necho $! > "+fifo+"\nwait\n"), 0o700))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("it took too long")
	began := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(fifo)
		cancel(enough)
		began <- strings.TrimSpace(string(b))
	}()
	if r, err := g.Put(ctx, signedAt(t, k, 2, "b")); !errors.Is(err, enough) {
		t.Errorf("%+v, %v", r, err)
	}
	for pid := <-began; alive(pid); { // the kernel needs a moment; otherwise the test times out
		runtime.Gosched()
	}
	must(t, os.Remove(filepath.Join(repo, "hooks", "pre-receive")))
	put(t, g, signedAt(t, k, 2, "b"))
}

func scratchOf(t *testing.T, g *Git) gitexec.Repo {
	t.Helper()
	r, err := gitexec.Open(g.cfg.Scratch)
	must(t, err)
	return r
}

// The commands that errors advise are single commands of a shell, whatever the path is.
func TestGitAdviceIsQuotedForAShell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's; true")
	quoted := "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	g, err := NewGit(GitConfig{Name: "a", Repository: dir, Branch: "b", Scratch: t.TempDir(), Now: time.Now})
	must(t, err)
	err = g.Scan(t.Context(), nil, func(Item) error { return nil })
	if err == nil || !strings.HasSuffix(err.Error(), "run: git init --bare "+quoted) {
		t.Errorf("%v", err)
	}
	git(t, filepath.Dir(dir), "init", "--quiet", "--bare", dir)
	if _, err := g.Newest(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "run: git -C "+quoted+" config receive.denyNonFastForwards true") {
		t.Errorf("%v", err)
	}
}
