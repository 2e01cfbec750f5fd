package capture

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ordinary makes, below a new directory, a repository of each kind that people have, of
// the repository src, and returns their paths and what is wrong with them, if anything.
func ordinary(t *testing.T, src string) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	clone := func(name string, args ...string) {
		t.Helper()
		git(t, "/", append(append([]string{"clone", "-q"}, args...), "file://"+src, at(name))...)
	}
	git(t, src, "config", "uploadpack.allowFilter", "true")
	for _, name := range []string{"clone", "Größe und Maß's", "link", "link-file", "dangling", "super", "worktree-elsewhere", "relative"} {
		clone(name)
	}
	clone("bare.git", "--bare")
	clone("shallow", "--depth=1")
	clone("partial", "--filter=blob:none")
	clone("blobless", "--filter=blob:none", "--no-checkout")
	clone("bare-blobless.git", "--filter=blob:none", "--bare")
	clone("treeless", "--filter=tree:0", "--no-checkout")
	git(t, at("clone"), "worktree", "add", "-q", "--detach", at("linked"))
	git(t, at("super"), "-c", "protocol.file.allow=always", "submodule", "add", "-q", "file://"+src, "sub")
	git(t, at("worktree-elsewhere"), "config", "core.worktree", dir)
	for name, to := range map[string]string{"link": "stores/link", "link-file": "stores/file", "dangling": "stores/moved", "relative": "stores/relative"} {
		must(t, os.MkdirAll(at("stores"), 0o755))
		must(t, os.Rename(at(name+"/.git"), at(to)))
	}
	must(t, os.Symlink("../stores/link", at("link/.git")))
	write(t, at("stores/gitfile"), "gitdir: ../stores/file\n") // relative to the work tree, as for git
	must(t, os.Symlink("../stores/gitfile", at("link-file/.git")))
	must(t, os.Symlink("../stores/nowhere", at("dangling/.git")))
	write(t, at("relative/.git"), "gitdir: ../stores/relative\n")
	lacks := func(name string) string {
		return "is missing from " + at(name) + ", a partial clone (git clone --filter), and a dispatch does not fetch it; fetch all missing objects with: git -C " +
			at(name) + " fetch --refetch --no-filter origin; or clone it again without --filter"
	}
	return dir, map[string]string{
		"clone": "", "Größe und Maß's": "", "link": "", "link-file": "", "super": "", "super/sub": "", "worktree-elsewhere": "", "relative": "", "bare.git": "", "shallow": "",
		"partial": "", "linked": "", "stores/link": "",
		"dangling": at("dangling/.git") + " is a symbolic link that leads to no git directory",
		"blobless": lacks("blobless"), "treeless": lacks("treeless"), "bare-blobless.git": lacks("bare-blobless.git"),
	}
}

// A workspace starts from every kind of repository that people have, or the error says
// why not and what to do.
func TestOrdinaryRepositoriesAreSources(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		s := newScene(t, format, small)
		write(t, s.src+"/a.txt", "second\n")
		git(t, s.src, "commit", "-q", "-am", "second")
		commit := git(t, s.src, "rev-parse", "HEAD")
		whole := t.TempDir()
		must(t, s.repo.Checkout(t.Context(), commit, whole))
		dir, want := ordinary(t, s.src)
		for name, problem := range want {
			out := t.TempDir()
			commit, err := start(t, filepath.Join(dir, name), commit, out)
			if name == "super" { // it has a commit of its own
				problem, err = "", errors.Join(err, os.RemoveAll(out+"/sub"), os.Remove(out+"/.gitmodules"))
			}
			switch {
			case problem == "" && err != nil, problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
				t.Errorf("%s %s at %s: %v\nwant %q", format, name, commit, err, problem)
			case errors.Is(err, ErrNoCommit):
				t.Errorf("%s %s: the commit is taken for absent: %v", format, name, err)
			case err == nil:
				sameTrees(t, whole, out)
			}
		}
		// An older commit is not in a shallow clone.
		_, err := start(t, filepath.Join(dir, "shallow"), s.commit, t.TempDir())
		if !errors.Is(err, ErrNoCommit) || !strings.Contains(err.Error(), "git -C "+filepath.Join(dir, "shallow")+" fetch --unshallow") {
			t.Errorf("shallow: %v", err)
		}
	}
}

// start makes a checkout of the commit, with a bound and as a work tree for an agent.
func start(t *testing.T, repo, commit, dir string) (string, error) {
	t.Helper()
	src, err := OpenSource(t.Context(), repo)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(repo + "/.gitmodules"); err == nil {
		git(t, repo, "commit", "-q", "-m", "submodule")
		commit = "HEAD"
	}
	if commit, err = src.Resolve(t.Context(), commit, ""); err != nil {
		return "", err
	}
	r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), repo)
	must(t, err)
	treeErr := r.Worktree(t.Context(), commit, t.TempDir())
	freeErr := r.Checkout(t.Context(), commit, t.TempDir())
	r.MaxCheckout = 1 << 20
	err = r.Checkout(t.Context(), commit, dir)
	for _, e := range []error{treeErr, freeErr} {
		if (e == nil) != (err == nil) || e != nil && !strings.Contains(e.Error(), "partial clone") {
			t.Errorf("%s: %v, but %v", repo, e, err)
		}
	}
	return commit, err
}

// Git never asks the remote of a partial clone, whose configuration names a program. The
// control is git in the clone, which runs it.
//
// proves R-S4
func TestAPartialCloneNeverFetches(t *testing.T) {
	s := newScene(t, "sha1", small)
	dir, _ := ordinary(t, s.src)
	for _, name := range []string{"blobless", "treeless"} {
		repo, ran := filepath.Join(dir, name), filepath.Join(t.TempDir(), "ran")
		git(t, repo, "config", "remote.origin.uploadpack", "touch "+ran+"; git-upload-pack")
		commit := git(t, repo, "rev-parse", "HEAD")
		if _, err := start(t, repo, commit, t.TempDir()); err == nil || !strings.Contains(err.Error(), "partial clone") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: git asked the remote", name)
		}
		git(t, repo, "cat-file", "-p", "HEAD:a.txt")
		if _, err := os.Stat(ran); err != nil {
			t.Errorf("%s: control: git did not ask the remote", name)
		}
		// What the error says to do is enough.
		git(t, repo, "fetch", "-q", "--refetch", "--no-filter", "origin")
		if _, err := start(t, repo, commit, t.TempDir()); err != nil {
			t.Errorf("%s: after the fetch: %v", name, err)
		}
	}
}

// A symbolic link does not lead to the repository of another user. The controls have one
// owner.
//
// proves R-S4
func TestALinkToARepositoryOfAnotherUserIsRefused(t *testing.T) {
	s := newScene(t, "sha1", small)
	dir, _ := ordinary(t, s.src)
	repo, store := filepath.Join(dir, "link"), filepath.Join(dir, "stores/link")
	if _, err := OpenSource(t.Context(), repo); err != nil {
		t.Fatalf("control: %v", err)
	}
	must(t, os.Chown(repo, 4711, 4711))
	must(t, os.Lchown(repo+"/.git", 4711, 4711))
	if _, err := OpenSource(t.Context(), repo); err == nil || !strings.Contains(err.Error(), store+" belongs to user 0 and the repository to user 4711") {
		t.Errorf("the repository of another: %v", err)
	}
	must(t, os.Chown(repo, 0, 0))
	if _, err := OpenSource(t.Context(), repo); err == nil || !strings.Contains(err.Error(), "belong to different users") {
		t.Errorf("a link of another: %v", err)
	}
	must(t, os.Lchown(repo+"/.git", 0, 0))
	if _, err := OpenSource(t.Context(), repo); err != nil {
		t.Errorf("control: %v", err)
	}
}
