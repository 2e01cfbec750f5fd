package capture

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// proves R-B7
func TestResolveAcceptsOnlyBranchesTagsHeadAndObjects(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		s := newScene(t, format, small)
		git(t, s.src, "tag", "-a", "v1", "-m", "one")
		git(t, s.src, "branch", "feature/x")
		git(t, s.src, "tag", "both")
		git(t, s.src, "branch", "both")
		git(t, s.src, "branch", "packed")
		git(t, s.src, "pack-refs", "--all")
		git(t, s.src, "branch", "deadbeef")
		linked := filepath.Join(t.TempDir(), "linked")
		git(t, s.src, "worktree", "add", "-q", "--detach", linked)
		bare := filepath.Join(t.TempDir(), "bare")
		git(t, "/", "clone", "-q", "--bare", s.src, bare)
		for _, path := range []string{s.src, linked, bare} {
			src, err := OpenSource(t.Context(), path)
			must(t, err)
			for _, name := range []string{
				"HEAD", "main", "refs/heads/main", "v1", "refs/tags/v1", "feature/x", "packed", "deadbeef",
				"refs/heads/both", s.commit, s.commit[:7],
			} {
				if got, err := src.Resolve(t.Context(), name, ""); err != nil || got != s.commit {
					t.Errorf("%s %s: %q, %v", path, name, got, err)
				}
			}
			for _, name := range []string{
				"", "-v", "--upload-pack=touch x", "--help", "@", "HEAD@{1}", "main@{upstream}", "HEAD~1", "HEAD^", "main..v1", "main...v1",
				":/base", "main:a.txt", "^main", "refs/heads/*", "../../HEAD", "refs/../HEAD", "/etc/passwd", "a//b", ".hidden", "x.lock", "x.",
				"refs/heads/", "main ", "main\n", "main\x00", "mäin\xff", "$(id)", "`id`", "both", "nosuch", "refs/heads/nosuch", "config",
				strings.Repeat("a", 300), strings.Repeat("0", 40), "v1^{tree}", git(t, s.src, "rev-parse", "HEAD^{tree}"), git(t, s.src, "rev-parse", "HEAD:a.txt"),
			} {
				if got, err := src.Resolve(t.Context(), name, ""); err == nil {
					t.Errorf("%s %q: resolved to %s", path, name, got)
				}
			}
			if _, err := src.Resolve(t.Context(), "nosuch", ""); !errors.Is(err, ErrNoCommit) {
				t.Errorf("unknown name: %v", err)
			}
		}
	}
}

func FuzzCheckCommitish(f *testing.F) {
	for _, s := range []string{"HEAD", "main", "-x", "a..b", "a@{1}", "refs/heads/x", "a b", "\xff"} {
		f.Add(s)
	}
	repo := strictRepo(f)
	f.Fuzz(func(t *testing.T, s string) {
		if CheckCommitish(s) != nil || s == "HEAD" || len(s) > 200 {
			return
		}
		// What we accept git takes for a well-formed ref.
		if err := (gitexec.Git{Repo: repo}).Run(t.Context(), "check-ref-format", "refs/heads/"+s); err != nil {
			t.Errorf("%q: accepted, but git refuses it: %v", s, err)
		}
	})
}

// The control is git in the source itself, which runs the planted program.
//
// proves R-S4
func TestNothingPlantedInASourceTakesEffect(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		small(d)
		write(t, d+"/crlf.txt", "a\r\n$Id$\n")
		write(t, d+"/.gitattributes", "* text eol=lf ident filter=evil working-tree-encoding=UTF-16LE-BOM export-subst\n")
	})
	marker := filepath.Join(t.TempDir(), "marker")
	poison(t, s.src, marker)
	must(t, os.Remove(s.src+"/.gitattributes"))
	git(t, s.src, "config", "core.attributesFile", "/dev/null")
	// A replace ref that swaps the commit's content, and a graft.
	other := git(t, s.src, "-c", "core.fsmonitor=false", "commit-tree", "-m", "other", git(t, s.src, "hash-object", "-t", "tree", "-w", "/dev/null"))
	write(t, s.src+"/.git/refs/replace/"+s.commit, other+"\n")
	write(t, s.src+"/.git/info/grafts", s.commit+" "+other+"\n")
	must(t, os.RemoveAll(marker))

	src, err := OpenSource(t.Context(), s.src)
	must(t, err)
	if got, err := src.Resolve(t.Context(), "main", ""); err != nil || got != s.commit {
		t.Fatalf("main is %q, %v", got, err)
	}
	s.work = t.TempDir()
	s.checkout().snapshot()
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("something planted ran")
	}
	want := map[string]string{
		"a.txt": "file a\n", "dir/b.txt": "file b\n", "crlf.txt": "file a\n$Id$\n",
		".gitattributes": "file * text eol=lf ident filter=evil working-tree-encoding=UTF-16LE-BOM export-subst\n",
	}
	got := describe(t, s.work)
	want["crlf.txt"] = "file " + s.blob("crlf.txt") // as committed, whatever git made of it then
	want["a.txt"], want["dir/b.txt"] = "file "+s.blob("a.txt"), "file "+s.blob("dir/b.txt")
	want[".gitattributes"] = "file " + s.blob(".gitattributes")
	for p, v := range want {
		if got[p] != v {
			t.Errorf("%s: %q, want %q", p, got[p], v)
		}
	}
	if _, err := tryGit(s.src, "status"); err != nil {
		t.Logf("status: %v", err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error("control: git status in the source ran nothing; the control is void")
	}
}

func (s *scene) blob(p string) string {
	s.t.Helper()
	t, err := s.repo.tree(s.t.Context(), s.commit)
	must(s.t, err)
	o, err := s.repo.openObjects(s.t.Context())
	must(s.t, err)
	defer o.close()
	_, _, b, err := o.get(t.byPath[p].id)
	must(s.t, err)
	return string(b)
}

// proves R-S4
func TestObjectsThatDoNotMatchTheirNamesAreRefused(t *testing.T) {
	s := newScene(t, "sha1", small)
	id := git(t, s.src, "rev-parse", "HEAD:a.txt")
	other := git(t, s.src, "rev-parse", "HEAD:dir/b.txt")
	file := func(id string) string { return filepath.Join(s.src, ".git/objects", id[:2], id[2:]) }
	b, err := os.ReadFile(file(other))
	must(t, err)
	must(t, os.Chmod(file(id), 0o644))
	must(t, os.WriteFile(file(id), b, 0o644))
	if err := s.repo.Checkout(t.Context(), s.commit, t.TempDir()); err == nil {
		t.Error("content of another object was checked out")
	}
}

// proves R-S4
func TestCheckoutRefusesHostilePaths(t *testing.T) {
	s := newScene(t, "sha1", small)
	blob := git(t, s.src, "rev-parse", "HEAD:a.txt")
	for _, entry := range []string{"100644 blob %s\t.git", "100644 blob %s\tgit~1", "100644 blob %s\t..", "120000 blob %s\t.gitmodules", "100644 blob %s\t.g\u200cit"} {
		spec := strings.Replace(entry, "%s", blob, 1) + "\n"
		mktree := exec.CommandContext(t.Context(), "git", "-C", s.src, "mktree")
		mktree.Stdin = strings.NewReader(spec)
		out, err := mktree.Output()
		must(t, err)
		id := strings.TrimSpace(string(out))
		dir := t.TempDir()
		if err := s.repo.Checkout(t.Context(), id, dir); err == nil || len(describe(t, dir)) != 0 {
			t.Errorf("tree with %q: %v", spec, err)
		}
	}
	if err := s.repo.Checkout(t.Context(), s.commit, s.work); err == nil {
		t.Error("checked out into a directory that is not empty")
	}
}

// proves R-S4
func TestASourceOfSeveralOwnersIsRefused(t *testing.T) {
	s := newScene(t, "sha1", small)
	must(t, os.Chmod(filepath.Dir(s.src), 0o755))
	lent := newScene(t, "sha1", func(d string) { write(t, d+"/private", "private\n") })
	write(t, s.src+"/.git/objects/info/alternates", lent.src+"/.git/objects\n")
	if _, err := OpenSource(t.Context(), s.src); err != nil {
		t.Errorf("alternates of one owner: %v", err)
	}
	if os.Getuid() == 0 {
		must(t, os.Chown(lent.src+"/.git/objects", 65530, 65530))
	} else {
		write(t, s.src+"/.git/objects/info/alternates", "/usr\n") // root's
	}
	if _, err := OpenSource(t.Context(), s.src); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("alternates of another owner: %v", err)
	}
}

func TestContentInASubmoduleIsReported(t *testing.T) {
	s := newScene(t, "sha1", small)
	git(t, s.src, "update-index", "--add", "--cacheinfo", "160000,"+s.commit+",lib/sub")
	git(t, s.src, "commit", "-q", "-m", "sub")
	s.commit, s.work = git(t, s.src, "rev-parse", "HEAD"), t.TempDir()
	s.checkout().snapshot()
	if st, err := os.Stat(s.work + "/lib/sub"); err != nil || !st.IsDir() {
		t.Fatalf("submodule: %v", err)
	}
	if res := s.capture(); res.PatchFile != "" || len(res.LeftOut) != 0 {
		t.Errorf("untouched: %+v", res)
	}
	write(t, s.work+"/lib/sub/x", "x\n")
	write(t, s.work+"/a.txt", "changed\n")
	res := s.capture()
	s.applied(res)
	if changes(res.Files) != "m a.txt\n" || leftOut(res.LeftOut) != "lib/sub: "+whySubmodule+"\n" {
		t.Errorf("files:\n%sleft out:\n%s", changes(res.Files), leftOut(res.LeftOut))
	}
}
