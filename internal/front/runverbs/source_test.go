package runverbs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// trap is a setting of a repository that runs a program, and the command with which
// git runs it.
type trap struct {
	name    string
	key     string   // of the configuration; empty: the trap is a file
	value   string   // %s is the program
	control []string // of git
}

func traps() []trap {
	return []trap{
		{"fsmonitor", "core.fsmonitor", "%s", []string{"status"}},
		{"clean", "filter.evil.clean", "%s", []string{"hash-object", "--path", "two.txt", "two.txt"}},
		{"smudge", "filter.evil.smudge", "%s", []string{"cat-file", "--filters", "HEAD:two.txt"}},
		{"process", "filter.evil2.process", "%s", []string{"hash-object", "--path", "three.md", "two.txt"}},
		{"textconv", "diff.evil.textconv", "%s", []string{"cat-file", "--textconv", "HEAD:two.txt"}},
		{"driver", "diff.evil2.command", "%s", []string{"log", "-p", "--ext-diff", "--", "three.md"}},
		{"external", "diff.external", "%s", []string{"log", "-p", "--ext-diff", "--", "one.txt"}},
		{"merge", "merge.evil.driver", "%s", []string{"merge", "-q", "--no-edit", "conflicting"}},
		{"include", "include.path", "included", []string{"askedinclude"}},
		{"includeif", "includeIf.gitdir:/.path", "includedif", []string{"askedincludeif"}},
		{"credential", "credential.helper", "!%s", []string{"credential", "fill"}},
		{"askpass", "core.askPass", "%s", []string{"-c", "credential.helper=", "credential", "fill"}},
		{"ssh", "core.sshCommand", "%s", []string{"ls-remote", "ssh://host.invalid/x"}},
		{"gitproxy", "core.gitProxy", "%s", []string{"ls-remote", "git://host.invalid/x"}},
		{"uploadpack", "remote.origin.uploadpack", "%s", []string{"fetch", "origin"}},
		{"editor", "core.editor", "%s", []string{"commit", "--allow-empty", "-q"}},
		{"gpg", "gpg.program", "%s", []string{"commit", "-S", "--allow-empty", "-q", "-m", "x"}},
		{"alias", "alias.evil", "!%s", []string{"evil"}},
		{"hookspath", "core.hooksPath", "hooks", []string{"update-ref", "refs/heads/trapped", "HEAD"}},
		{"archive", "tar.evil.command", "%s", []string{"archive", "--format=evil", "HEAD"}},
		{"promisor", "", "", []string{"cat-file", "-p", strings.Repeat("1", 40)}},
		{"inner", "", "", []string{"status", "--ignore-submodules=none"}},
		{"hook", "", "", []string{"-c", "core.hooksPath=.git/hooks", "update-ref", "refs/heads/trapped2", "HEAD"}},
	}
}

// plant sets every trap in the repository, and returns where the programs leave a
// file with their name.
func plant(w *workshop) (ran string) {
	w.t.Helper()
	ran = w.t.TempDir()
	bin := w.t.TempDir()
	program := func(name string) string {
		path := filepath.Join(bin, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\ntouch '"+ran+"/"+name+"'\n"), 0o755); err != nil {
			w.t.Fatal(err)
		}
		return path
	}
	w.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n*.md filter=evil2 diff=evil2\n")
	w.write("three.md", "three\n")
	w.base = w.commit("attributes")
	w.git("branch", "conflicting")
	w.write("one.txt", "theirs\n")
	w.commit("ours")
	w.git("checkout", "-q", "conflicting")
	w.write("one.txt", "ours\n")
	w.commit("theirs")
	w.git("checkout", "-q", "main")
	w.base = w.git("rev-parse", "HEAD")
	w.git("init", "-q", "inner") // a submodule
	w.git("-C", "inner", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "inner")
	w.git("add", "inner")
	w.base = w.commit("submodule")
	w.git("worktree", "add", "-q", "--detach", filepath.Join(w.dir, "..", "linked"))
	w.git("-C", "inner", "config", "core.fsmonitor", program("inner"))
	w.git("config", "extensions.partialClone", "lost")
	w.git("config", "core.repositoryFormatVersion", "1")
	w.git("config", "protocol.ext.allow", "always")
	w.git("config", "remote.lost.url", "ext::"+program("promisor"))
	w.git("config", "remote.lost.promisor", "true")
	w.git("config", "remote.origin.url", w.dir)
	for _, name := range []string{"include", "includeif"} {
		file := map[string]string{"include": "included", "includeif": "includedif"}[name]
		w.write(".git/"+file, fmt.Sprintf("[alias]\n\tasked%s = !%s\n[filter \"evil3\"]\n\tclean = %[2]s\n", name, program(name)))
	}
	for dir, name := range map[string]string{".git/hooks": "hook", "hooks": "hookspath"} {
		for _, hook := range []string{"reference-transaction", "post-index-change", "post-checkout", "pre-commit", "pre-auto-gc", "fsmonitor-watchman"} {
			w.write(dir+"/"+hook, "#!/bin/sh\ntouch '"+ran+"/"+name+"'\n")
			if err := os.Chmod(filepath.Join(w.dir, dir, hook), 0o755); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, t := range traps() {
		if t.key != "" {
			w.git("config", t.key, strings.ReplaceAll(t.value, "%s", program(t.name)))
		}
	}
	// Files that git compares by content, which is what runs filters.
	for _, name := range []string{"one.txt", "two.txt", "three.md"} {
		if err := os.Chtimes(filepath.Join(w.dir, name), time.Time{}, time.Unix(1, 0)); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.RemoveAll(ran); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Mkdir(ran, 0o777); err != nil {
		w.t.Fatal(err)
	}
	return ran
}

// Nothing that a repository names runs, whatever we do with it: ask for its commit,
// compare its work tree, apply a patch to the work tree or put it on a branch, also with
// a linked work tree and a submodule. The control for each setting is git itself, which
// runs it.
//
// proves R-P9, R-S4
func TestNoUseOfARepositoryRunsWhatItNames(t *testing.T) {
	w := newWorkshop(t)
	plain := w.dir
	ran := plant(w)
	none := func(what string) {
		t.Helper()
		list, err := os.ReadDir(ran)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			t.Errorf("%s: %s ran", what, d.Name())
			_ = os.Remove(filepath.Join(ran, d.Name()))
		}
	}
	env := append(os.Environ(), "HOME="+t.TempDir())
	if !HasCommit(t.Context(), env, plain) {
		t.Error("no commit was found")
	}
	linked := filepath.Join(w.dir, "..", "linked")
	if changed, filtered, err := uncommitted(t.Context(), env, linked); err != nil || changed+filtered != 0 || !HasCommit(t.Context(), env, linked) {
		t.Errorf("linked: %d changed, %d filtered, %v", changed, filtered, err)
	}
	none("the search for a commit, and a linked work tree")
	if changed, filtered, err := uncommitted(t.Context(), env, plain); err != nil || changed+filtered != 0 {
		t.Errorf("%d changed, %d filtered, %v", changed, filtered, err)
	}
	none("the comparison of the work tree")
	w.write("two.txt", "mine\n")
	w.write("added.txt", "mine\n")
	if changed, filtered, err := uncommitted(t.Context(), env, plain); err != nil || filtered != 1 {
		t.Errorf("%d changed, %d filtered, %v", changed, filtered, err)
	}
	none("the comparison of changes")
	w.write("two.txt", "two\n")

	patch := "diff --git a/bin/new.txt b/bin/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/bin/new.txt\n@@ -0,0 +1 @@\n+new\n"
	s := newRunService()
	s.did("edit", w.base, patch)
	if status, _, errs := w.apply(s, "--branch", "side"); status != 0 {
		t.Errorf("status %d, %s", status, errs)
	}
	none("apply --branch")
	if status, _, errs := w.apply(s); status != 0 {
		t.Errorf("status %d, %s", status, errs)
	}
	none("apply")
	for _, c := range traps() {
		cmd := exec.Command("git", c.control...)
		cmd.Dir = plain
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "TERM=dumb"}
		cmd.Stdin = strings.NewReader("protocol=https\nhost=host.invalid\n\n")
		out, _ := cmd.CombinedOutput()
		if _, err := os.Stat(filepath.Join(ran, c.name)); err != nil {
			t.Errorf("control: git %v did not run %s: %s", c.control, c.name, out)
		}
		if c.key != "" { // a filter that fails ends the next control
			w.git("config", "--unset-all", c.key)
		}
	}
}

// A note about changes says what git status would, without a filter of the source.
func TestUncommittedIsWhatGitStatusSays(t *testing.T) {
	old := func(t *testing.T, w *workshop, name string) { // git compares the content of a file that is older than its index says
		t.Helper()
		if err := os.Chtimes(filepath.Join(w.dir, name), time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	again := func(w *workshop, name string) { // has git check a file out
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
			t.Fatal(err)
		}
		w.git("checkout", "-q", "--", name)
		if !strings.Contains(w.read(name), "\r\n") {
			t.Errorf("%s was checked out as %q", name, w.read(name))
		}
	}
	const content = "a large file\n"
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:0ddb8cbc8eab4d1f4fe7a9b4a8d1d3fdd8b7b7e1a8b4e6f4a7f2e28f1f6d1e3c\nsize 13\n"
	for name, c := range map[string]struct {
		prepare           func(t *testing.T, w *workshop)
		changed, filtered int
	}{
		"clean":     {func(t *testing.T, w *workshop) { old(t, w, "one.txt") }, 0, 0},
		"modified":  {func(_ *testing.T, w *workshop) { w.write("one.txt", "x\n") }, 1, 0},
		"untracked": {func(_ *testing.T, w *workshop) { w.write("new", "x\n") }, 0, 0},
		"staged and deleted": {func(_ *testing.T, w *workshop) {
			w.write("one.txt", "x\n")
			w.git("add", "one.txt")
			w.git("rm", "-q", "--cached", "two.txt")
		}, 2, 0},
		"umlauts": {func(_ *testing.T, w *workshop) {
			w.write("Größe für 日本語.txt", "x\n")
			w.commit("umlauts")
			w.write("Größe für 日本語.txt", "y\n")
		}, 1, 0},
		"autocrlf": {func(t *testing.T, w *workshop) {
			w.git("config", "core.autocrlf", "true")
			again(w, "one.txt")
			old(t, w, "one.txt")
		}, 0, 0},
		"autocrlf of the person": {func(t *testing.T, w *workshop) {
			w.write("../global", "[core]\n\tautocrlf = true\n")
			w.env = append(w.env, "GIT_CONFIG_GLOBAL="+filepath.Join(filepath.Dir(w.dir), "global"))
			w.git("config", "core.autocrlf", "true")
			again(w, "one.txt")
			w.git("config", "--unset", "core.autocrlf")
			old(t, w, "one.txt")
		}, 0, 0},
		"eol": {func(t *testing.T, w *workshop) {
			w.write(".gitattributes", "*.txt text eol=crlf\n")
			w.commit("attributes")
			again(w, "one.txt")
			old(t, w, "one.txt")
			w.write("two.txt", "other\r\n")
		}, 1, 0},
		"a filter": {func(t *testing.T, w *workshop) {
			w.git("config", "filter.mine.clean", "tr A-Z a-z")
			w.write(".gitattributes", "two.txt filter=mine\n")
			w.commit("attributes")
			w.write("two.txt", "TWO\n")
			w.write("one.txt", "x\n")
		}, 1, 1},
		"git lfs": {func(t *testing.T, w *workshop) {
			w.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
			w.write("same.bin", fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize %d\n", sha256.Sum256([]byte(content)), len(content)))
			w.write("other.bin", pointer)
			w.commit("pointers")
			w.write("same.bin", content)
			w.write("other.bin", content)
		}, 1, 0},
		"split index": {func(_ *testing.T, w *workshop) { w.git("update-index", "--split-index"); w.write("one.txt", "x\n") }, 1, 0},
		"sparse": {func(_ *testing.T, w *workshop) {
			w.git("sparse-checkout", "set", "--sparse-index", "bin")
			w.write("bin/data", "x")
		}, 1, 0},
		"linked": {func(t *testing.T, w *workshop) {
			linked := filepath.Join(t.TempDir(), "linked")
			w.git("worktree", "add", "-q", "--detach", linked)
			w.write("one.txt", "not seen there\n")
			w.dir = linked
			w.write("two.txt", "x\n")
		}, 1, 0},
		"bare": {func(t *testing.T, w *workshop) {
			bare := filepath.Join(t.TempDir(), "bare")
			w.git("clone", "-q", "--bare", ".", bare)
			w.dir = bare
		}, 0, 0},
		"of another account": {func(t *testing.T, w *workshop) {
			w.write("one.txt", "x\n")
			err := filepath.WalkDir(w.dir, func(p string, _ os.DirEntry, err error) error {
				if err == nil {
					err = os.Lchown(p, 12345, 12345)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			c.prepare(t, w)
			changed, filtered, err := uncommitted(t.Context(), w.env, w.dir)
			if err != nil || changed != c.changed || filtered != c.filtered {
				t.Errorf("%d changed, %d filtered, %v; want %d and %d", changed, filtered, err, c.changed, c.filtered)
			}
			if !HasCommit(t.Context(), os.Environ(), w.dir) {
				t.Error("no commit was found")
			}
		})
	}
}

// A branch has a reflog where the repository keeps reflogs, and none elsewhere.
func TestABranchHasTheReflogThatGitWouldWrite(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, w *workshop)
		reflog  bool
	}{
		"plain": {func(*testing.T, *workshop) {}, true},
		"off":   {func(_ *testing.T, w *workshop) { w.git("config", "core.logAllRefUpdates", "false") }, false},
		"without logs": {func(t *testing.T, w *workshop) {
			w.git("config", "core.logAllRefUpdates", "false")
			if err := os.RemoveAll(filepath.Join(w.dir, ".git/logs")); err != nil {
				t.Fatal(err)
			}
		}, false},
		"work tree of a bare repository": {func(t *testing.T, w *workshop) {
			bare, tree := filepath.Join(t.TempDir(), "bare"), filepath.Join(t.TempDir(), "tree")
			w.git("clone", "-q", "--bare", ".", bare)
			w.dir = bare
			w.git("worktree", "add", "-q", tree)
			w.dir = tree
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			c.prepare(t, w)
			s := newRunService()
			s.did("edit", w.base, w.edit("two.txt", "TWO\n"))
			if status, _, errs := w.apply(s, "--branch", "done"); status != 0 {
				t.Fatal(errs)
			}
			if logged := w.git("reflog", "show", "done") != ""; logged != c.reflog {
				t.Errorf("reflog: %v, want %v", logged, c.reflog)
			}
		})
	}
}

// The author is the one that git would name: from the person's configuration, wherever
// that is.
func TestTheAuthorIsFromTheConfigurationOfThePerson(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "TWO\n"))
	w.git("config", "--unset", "user.name")
	w.git("config", "--unset", "user.email")
	home := t.TempDir()
	for name, text := range map[string]string{
		"mine":       "[user]\n\tname = Jürgen\n\temail = j@example\n[include]\n\tpath = work\n",
		"work":       "[committer]\n\temail = bot@example\n",
		".gitconfig": "[user]\n\tname = Home\n\temail = home@example\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
	for branch, c := range map[string]struct {
		env  []string
		want string
	}{
		"home":        {base, "Home <home@example> Home <home@example>"},
		"global":      {append(base[:3:3], "GIT_CONFIG_GLOBAL="+filepath.Join(home, "mine")), "Jürgen <j@example> Jürgen <bot@example>"},
		"environment": {append(base[:3:3], "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=a@example"), "Ann <a@example> Home <home@example>"},
		"nobody":      {append(base[:3:3], "GIT_CONFIG_GLOBAL=/dev/null"), "bailiwick <bailiwick@invalid> bailiwick <bailiwick@invalid>"},
	} {
		w.env = c.env
		if status, _, errs := w.apply(s, "--branch", branch); status != 0 {
			t.Errorf("%s: status %d, %s", branch, status, errs)
			continue
		}
		if got := w.git("log", "-1", "--format=%an <%ae> %cn <%ce>", branch); got != c.want {
			t.Errorf("%s: %s, want %s", branch, got, c.want)
		}
	}
}

// A patch may turn a folder into a file, a file into a folder, and both at once; the
// user's own file in the folder is in the way and is named.
func TestApplyTurnsFoldersIntoFiles(t *testing.T) {
	replace := func(w *workshop, gone, path, text string) {
		if err := os.RemoveAll(filepath.Join(w.dir, gone)); err != nil {
			t.Fatal(err)
		}
		w.write(path, text)
	}
	for name, c := range map[string]struct {
		change func(w *workshop)
		path   string
		want   string
	}{
		"a folder": {func(w *workshop) { replace(w, "bin", "bin", "a file\n") }, "bin", "a file\n"},
		"a file":   {func(w *workshop) { replace(w, "two.txt", "two.txt/deep/file", "below\n") }, "two.txt/deep/file", "below\n"},
		"both": {func(w *workshop) {
			replace(w, "bin", "bin", "a file\n")
			replace(w, "two.txt", "two.txt/file", "below\n")
		}, "two.txt/file", "below\n"},
		"a deep folder": {func(w *workshop) { replace(w, "deep", "deep", "a file\n") }, "deep", "a file\n"},
		"a link": {func(w *workshop) {
			replace(w, "bin", "x", "x\n")
			if err := os.Symlink("two.txt", filepath.Join(w.dir, "bin")); err != nil {
				t.Fatal(err)
			}
		}, "bin", "two\n"},
	} {
		w := newWorkshop(t)
		w.write("deep/a/b/one", "1\n")
		w.write("deep/a/two", "2\n")
		base := w.commit("deep")
		s := newRunService()
		s.did("edit", base, w.patch(func() { c.change(w) }))
		if status, _, errs := w.apply(s); status != 0 || w.read(c.path) != c.want {
			t.Errorf("%s: status %d, %s has %q, %s", name, status, c.path, w.read(c.path), errs)
		}
		if name != "a folder" {
			continue
		}
		w.git("reset", "-q", "--hard")
		w.write("bin/mine", "my own\n")
		before := w.whole()
		if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "changes of its own where the patch applies: bin/mine") || w.whole() != before {
			t.Errorf("%s with a file of the user: status %d, %s", name, status, errs)
		}
	}
}

// A file that git checks out in another form is not called changed.
func TestApplyNamesFilesInAnotherForm(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "TWO\n"))
	w.git("config", "core.autocrlf", "true")
	if err := os.Remove(filepath.Join(w.dir, "two.txt")); err != nil {
		t.Fatal(err)
	}
	w.git("checkout", "-q", "--", "two.txt")
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "in another form than the commit, such as with other line endings: two.txt") {
		t.Errorf("status %d, %s", status, errs)
	}
	w.write("two.txt", "mine\r\n")
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "changes of its own") {
		t.Errorf("control: status %d, %s", status, errs)
	}
}

// A file outside a sparse checkout is not called one in another form.
func TestApplyNamesFilesThatAreNotCheckedOut(t *testing.T) {
	w := newWorkshop(t)
	w.write("dir/three.txt", "three\n")
	w.commit("a folder")
	s := newRunService()
	s.did("edit", w.git("rev-parse", "HEAD"), w.edit("dir/three.txt", "THREE\n"))
	w.git("sparse-checkout", "set", "bin")
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "does not have files that the patch changes: dir/three.txt") {
		t.Errorf("status %d, %s", status, errs)
	}
	w.git("sparse-checkout", "disable")
	w.write("dir/three.txt", "mine\n")
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "changes of its own") {
		t.Errorf("control: status %d, %s", status, errs)
	}
}

// A repository of another account is written to only when the person lists it.
func TestApplyAsksForTheOwnerAsGitDoes(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "TWO\n"))
	for _, dir := range []string{w.dir, filepath.Join(w.dir, ".git")} {
		if err := os.Lchown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	v := invocation{Output: console.Output{Env: w.env}}
	status, _, errs := with(t, v, s.serve(t), "run", "apply", "r-one", "--repo", w.dir)
	if status != 1 || !strings.Contains(errs, "safe.directory") || w.read("two.txt") != "two\n" {
		t.Errorf("status %d, %s", status, errs)
	}
	v.Env = append(w.env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0="+w.dir)
	if status, _, errs := with(t, v, s.serve(t), "run", "apply", "r-one", "--repo", w.dir); status != 0 {
		t.Errorf("listed: status %d, %s", status, errs)
	}
}
