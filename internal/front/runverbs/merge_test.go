package runverbs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// workshop is a repository of the user, and the place where its patches are made.
type workshop struct {
	t    *testing.T
	dir  string
	base string
	env  []string // of the command that merges
}

func newWorkshop(t *testing.T, args ...string) *workshop {
	t.Helper()
	w := &workshop{t: t, dir: t.TempDir(), env: os.Environ()}
	w.git(append([]string{"init", "-q", "-b", "main"}, args...)...)
	w.git("config", "user.name", "Ann")
	w.git("config", "user.email", "ann@example")
	w.write("one.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n")
	w.write("two.txt", "two\n")
	w.write("bin/data", "\x00\x01\x02")
	w.base = w.commit("base")
	return w
}

func (w *workshop) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (w *workshop) write(path, text string) {
	w.t.Helper()
	full := filepath.Join(w.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workshop) commit(message string) string {
	w.git("add", "-A")
	w.git("commit", "-q", "-m", message)
	return w.git("rev-parse", "HEAD")
}

// patch returns what change does to the base, and undoes it.
func (w *workshop) patch(change func()) string {
	w.t.Helper()
	change()
	w.git("add", "-A")
	patch := w.git("diff", "--cached", "--binary", "--no-renames") + "\n"
	w.git("reset", "-q", "--hard")
	return patch
}

func (w *workshop) edit(path, text string) string {
	return w.patch(func() { w.write(path, text) })
}

// whole is everything that a merge must not touch: the work tree, the index and
// every ref.
func (w *workshop) whole() string {
	w.t.Helper()
	return w.git("status", "--porcelain", "--ignored") + "\n" + w.git("for-each-ref", "--format=%(refname) %(objectname)") + "\n" + w.git("symbolic-ref", "HEAD") +
		"\n" + w.git("ls-files", "-s")
}

func (w *workshop) merge(s *runService, args ...string) (int, mergeReport, string) {
	w.t.Helper()
	status, out, errs := with(w.t, invocation{Output: console.Output{Env: w.env}}, s.serve(w.t), append([]string{"run", "patch", "r-one", "--repo", w.dir, "-o", "json", "--merge"}, args...)...)
	var rep mergeReport
	if out != "" {
		if err := json.Unmarshal([]byte(out), &rep); err != nil {
			w.t.Fatalf("%v: %s", err, out)
		}
	}
	return status, rep, errs
}

const ten = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n"

func TestMergeFollowsTheDependencies(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	// "last" is first in the plan and depends on both others. Its patch includes
	// their changes, as that of a task which applied them does.
	top, bottom := strings.Replace(ten, "a\n", "A\n", 1), strings.Replace(ten, "j\n", "J\n", 1)
	s.did("last", w.base, w.edit("one.txt", strings.NewReplacer("a\n", "A\n", "j\n", "J\n", "e\n", "E\n").Replace(ten)), "top", "bottom")
	s.did("top", w.base, w.edit("one.txt", top))
	s.did("bottom", w.base, w.edit("one.txt", bottom))
	s.did("nothing", w.base, "")
	s.run.Tasks = append(s.run.Tasks, api.RunTask{Task: "broken", State: api.TaskFailed, Subagent: "edit", DispatchID: "d-broken"})
	w.write("untracked", "mine")
	w.write("two.txt", "changed and not committed\n")
	before := w.whole()
	status, rep, errs := w.merge(s, "night")
	if status != 0 || len(rep.Merged) != 3 || rep.Merged[2].Task != "last" || len(rep.Conflicts) != 0 || len(rep.LeftOut) != 2 {
		t.Fatalf("exit status %d, %+v, %s", status, rep, errs)
	}
	if got := w.git("show", "night:one.txt"); got+"\n" != strings.NewReplacer("a\n", "A\n", "j\n", "J\n", "e\n", "E\n").Replace(ten) {
		t.Errorf("the branch has %q", got)
	}
	if got := w.git("rev-parse", "night"); got != rep.Commit {
		t.Errorf("the branch is at %s, the report says %s", got, rep.Commit)
	}
	// Every task is a commit on the commit that it started from, and names its run.
	for _, m := range rep.Merged {
		if w.git("rev-parse", m.Commit+"^") != w.base {
			t.Errorf("the commit of %s does not stand on its base", m.Task)
		}
	}
	body := w.git("log", "-1", "--format=%an <%ae>%n%B", rep.Merged[0].Commit)
	for _, want := range []string{"Ann <ann@example>", "Bailiwick-Run: r-one", "Bailiwick-Task: top", "Bailiwick-Subagent: edit", "Bailiwick-Dispatch: d-top", "Bailiwick-Result: sha256:"} {
		if !strings.Contains(body, want) {
			t.Errorf("the commit does not say %q:\n%s", want, body)
		}
	}
	w.git("fsck", "--strict")
	w.git("update-ref", "-d", "refs/heads/night")
	if after := w.whole(); after != before {
		t.Errorf("more than the branch has changed:\n%s\nwas\n%s", after, before)
	}
}

func TestMergeReportsConflictsByFileAndWritesNothing(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("first", w.base, w.edit("one.txt", strings.Replace(ten, "e\n", "first\n", 1)))
	s.did("second", w.base, w.edit("one.txt", strings.Replace(ten, "e\n", "second\n", 1)))
	s.did("third", w.base, w.edit("two.txt", "three\n"))
	before, objects := w.whole(), w.git("count-objects", "-v")
	status, rep, errs := w.merge(s, "night")
	if status != 1 || rep.Commit != "" || len(rep.Conflicts) != 1 || rep.Conflicts[0].Task != "second" || len(rep.LeftOut) != 1 || rep.LeftOut[0].Task != "third" {
		t.Fatalf("exit status %d, %+v, %s", status, rep, errs)
	}
	if f := rep.Conflicts[0].Files; len(f) != 1 || f[0].Path != "one.txt" || len(f[0].With) != 1 || f[0].With[0] != "first" {
		t.Errorf("files %+v", f)
	}
	if w.whole() != before || w.git("count-objects", "-v") != objects {
		t.Error("something was written")
	}
	// The same as text, for people.
	status, out, _ := do(t, s.serve(t), "run", "patch", "r-one", "--repo", w.dir, "--merge", "night")
	if status != 1 || !strings.Contains(out, "CONFLICT    task second") || !strings.Contains(out, "one.txt (also changed by first)") || !strings.Contains(out, "nothing was written") {
		t.Errorf("exit status %d, %s", status, out)
	}
	// With --keep-going it leaves out that one and says so.
	status, rep, errs = w.merge(s, "night", "--keep-going")
	if status != 1 || rep.Commit == "" || len(rep.Merged) != 2 || rep.Merged[1].Task != "third" || len(rep.Conflicts) != 1 {
		t.Fatalf("exit status %d, %+v, %s", status, rep, errs)
	}
	if w.git("show", "night:one.txt") != strings.TrimSuffix(strings.Replace(ten, "e\n", "first\n", 1), "\n") || w.git("show", "night:two.txt") != "three" {
		t.Error("the branch is not the first and the third")
	}
}

func TestMergeTakesEveryKindOfChange(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("binary", w.base, w.edit("bin/data", "\x00\xff\x00\xfe"))
	s.did("mode", w.base, w.patch(func() {
		w.git("update-index", "--chmod=+x", "two.txt")
		_ = os.Chmod(filepath.Join(w.dir, "two.txt"), 0o755)
	}))
	s.did("link", w.base, w.patch(func() { _ = os.Symlink("one.txt", filepath.Join(w.dir, "link")) }))
	// One renames a file that another one edits: git finds the rename.
	s.did("rename", w.base, w.patch(func() { w.git("mv", "one.txt", "sub.txt") }))
	s.did("edit", w.base, w.edit("one.txt", strings.Replace(ten, "e\n", "E\n", 1)))
	status, rep, errs := w.merge(s, "night")
	if status != 0 || len(rep.Merged) != 5 {
		t.Fatalf("exit status %d, %+v, %s", status, rep, errs)
	}
	if got := w.git("show", "night:sub.txt"); !strings.Contains(got, "\nE\n") {
		t.Errorf("the edit did not follow the rename: %q", got)
	}
	tree := w.git("ls-tree", "-r", "night")
	if !strings.Contains(tree, "100755") || !strings.Contains(tree, "120000") || w.git("show", "night:bin/data") != "\x00\xff\x00\xfe" {
		t.Errorf("%s", tree)
	}
	// A file that one deletes and another changes is a conflict.
	s = newRunService()
	s.did("delete", w.base, w.patch(func() { w.git("rm", "-q", "two.txt") }))
	s.did("change", w.base, w.edit("two.txt", "changed\n"))
	status, rep, errs = w.merge(s, "other")
	if status != 1 || len(rep.Conflicts) != 1 || rep.Conflicts[0].Files[0].Path != "two.txt" {
		t.Errorf("exit status %d, %+v, %s", status, rep, errs)
	}
}

func TestMergeRefusesInvalidRequests(t *testing.T) {
	w, other := newWorkshop(t), newWorkshop(t)
	other.write("one.txt", "another history\n")
	elsewhere := other.commit("elsewhere")
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "changed\n"))
	w.git("branch", "taken")
	before := w.whole()
	for words, want := range map[string]string{
		"taken":            "branch taken already exists",
		"main":             "branch main already exists",
		"a..b":             "not a valid branch name",
		"-f":               "not a valid branch name",
		"HEAD":             "not a valid branch name",
		"taken/x":          "refs/heads/taken",
		"x --source other": `no done task with a patch of source "other"`,
	} {
		args := append([]string{"run", "patch", "r-one", "--repo", w.dir}, strings.Fields("--merge="+words)...)
		status, out, errs := do(t, s.serve(t), args...)
		if status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %s%s", words, status, out, errs)
		}
	}
	// A repository without the commit that the task started from.
	s2 := newRunService()
	s2.did("edit", elsewhere, w.edit("two.txt", "changed\n"))
	if status, _, errs := w.merge(s2, "night"); status != 1 || !strings.Contains(errs, "has no commit "+elsewhere+", which task edit started from") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	// No repository.
	if status, _, errs := do(t, s.serve(t), "run", "patch", "r-one", "--repo", t.TempDir(), "--merge", "night"); status != 1 || !strings.Contains(errs, "name a git repository with --repo") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	// Several sources and no --source.
	s.did("lib", w.base, w.edit("two.txt", "of the other\n"))
	d := s.dispatches["d-lib"]
	d.Source = &api.PinnedSource{Name: "library", Commit: w.base}
	s.dispatches["d-lib"] = d
	if status, _, errs := w.merge(s, "night"); status != 1 || !strings.Contains(errs, "changes 2 sources: service, library") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	if w.whole() != before {
		t.Error("something was written")
	}
	if status, rep, errs := w.merge(s, "night", "--source", "library"); status != 0 || len(rep.Merged) != 1 || len(rep.LeftOut) != 1 || !strings.Contains(rep.LeftOut[0].Why, "source service") {
		t.Errorf("exit status %d, %+v, %s", status, rep, errs)
	}
}

// Neither a hostile patch nor the settings of a hostile repository make git run a
// program, write elsewhere or hide a conflict. Controls: plain git runs the hooks,
// the driver and the filter, and hides the conflict.
func TestMergeIgnoresHostilePatchesAndSettings(t *testing.T) {
	w := newWorkshop(t)
	ran := filepath.Join(t.TempDir(), "ran")
	w.write(".gitattributes", "* merge=evil filter=evil diff=evil\n")
	w.base = w.commit("attributes")
	spy := "sh -c 'echo \"$0\" >> " + ran + "; cat' "
	for _, kv := range [][2]string{
		{"merge.evil.driver", spy + "merge"},
		{"filter.evil.clean", spy + "clean"},
		{"filter.evil.smudge", spy + "smudge"},
		{"diff.evil.textconv", spy + "textconv"},
		{"diff.evil.command", spy + "diff"},
		{"core.fsmonitor", spy + "fsmonitor"},
		{"core.pager", spy + "pager"},
		{"core.editor", spy + "editor"},
		{"core.hooksPath", w.dir + "/.git/hooks"},
		{"diff.external", spy + "external"},
		{"merge.default", "evil"},
	} {
		w.git("config", kv[0], kv[1])
	}
	for _, hook := range []string{"reference-transaction", "post-checkout", "pre-commit", "post-merge", "post-index-change", "commit-msg"} {
		path := filepath.Join(w.dir, ".git/hooks", hook)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+hook+" >> "+ran+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, ".git/info/attributes"), []byte("* merge=evil filter=evil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("update-ref", "refs/heads/control", w.base)
	if b, _ := os.ReadFile(ran); !strings.Contains(string(b), "reference-transaction") {
		t.Fatalf("control: plain git runs no hook: %q", b)
	}
	patch := func(from, to string) string {
		return "diff --git a/one.txt b/one.txt\n--- a/one.txt\n+++ b/one.txt\n@@ -4,3 +4,3 @@\n d\n-" + from + "\n+" + to + "\n f\n"
	}
	attributes := "diff --git a/.gitattributes b/.gitattributes\n--- a/.gitattributes\n+++ b/.gitattributes\n@@ -1 +1,2 @@\n * merge=evil filter=evil diff=evil\n+* merge=union\n"
	s := newRunService()
	s.did("first", w.base, attributes+patch("e", "first"))
	s.did("second", w.base, attributes+patch("e", "second"))
	if err := os.Remove(ran); err != nil {
		t.Fatal(err)
	}
	// The user's own settings may be as hostile as those of a repository.
	home := t.TempDir()
	settings, err := os.ReadFile(filepath.Join(w.dir, ".git/config"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{".gitconfig": string(settings) + "[core]\n\tattributesFile = " + home + "/attributes\n", "attributes": "* merge=evil filter=evil\n"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{"HOME=" + home, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=" + w.dir + "/.git/hooks", "GIT_EXTERNAL_DIFF=" + spy}
	status, rep, errs := w.merge(s, "night", "--keep-going")
	if status != 1 || len(rep.Merged) != 1 || len(rep.Conflicts) != 1 || rep.Conflicts[0].Files[0].Path != "one.txt" {
		t.Errorf("exit status %d, %+v, %s: the conflict is not seen", status, rep, errs)
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("something ran: %s", b)
	}
	// Control: with the user's own git directory and these attributes there is
	// no conflict, and a driver runs.
	if err := os.WriteFile(filepath.Join(w.dir, ".git/info/attributes"), []byte("* merge=union\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("config", "core.fsmonitor", "false")
	a := w.commitPatch(patch("e", "first"))
	b := w.commitPatch(patch("e", "second"))
	w.git("merge-tree", "--write-tree", a, b) // fails the test where there is a conflict
}

// commitPatch makes a commit of a patch on the base with plain git.
func (w *workshop) commitPatch(patch string) string {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "p")
	if err := os.WriteFile(file, []byte(patch), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.git("read-tree", w.base)
	w.git("apply", "--cached", file)
	c := w.git("commit-tree", "-p", w.base, "-m", "control", w.git("write-tree"))
	w.git("read-tree", w.base)
	return c
}

func TestMergeRefusesPathsOutsideTheTree(t *testing.T) {
	w := newWorkshop(t)
	add := func(path string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+x\n"
	}
	for _, path := range []string{"../escaped", ".git/hooks/post-checkout", ".GIT/config", "sub/.git/config", "git~1/config", ".g\u200cit/config", "/etc/x"} {
		s := newRunService()
		s.did("bad", w.base, add(path))
		s.did("good", w.base, add("fine.txt"))
		status, rep, errs := w.merge(s, "night", "--keep-going")
		if status != 1 || len(rep.Conflicts) != 1 || rep.Conflicts[0].Task != "bad" || len(rep.Merged) != 1 {
			t.Errorf("%s: exit status %d, %+v, %s", path, status, rep, errs)
		}
		if names := w.git("ls-tree", "-r", "--name-only", "night"); names != "bin/data\nfine.txt\none.txt\ntwo.txt" {
			t.Errorf("%s: the branch has %s", path, names)
		}
		w.git("update-ref", "-d", "refs/heads/night")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(w.dir), "escaped")); err == nil {
		t.Error("a file was written beyond the repository")
	}
}

func TestMergeCommitsHaveTheUsersIdentity(t *testing.T) {
	w := newWorkshop(t)
	w.git("config", "--unset", "user.name")
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "changed\n"))
	home := t.TempDir()
	w.env = []string{"HOME=" + home}
	if status, _, errs := w.merge(s, "nobodys"); status != 0 || !strings.Contains(errs, "the author of the commits is bailiwick <bailiwick@invalid>") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := w.merge(s, "bobs"); status != 0 || errs != "" {
		t.Errorf("exit status %d, %s", status, errs)
	}
	for branch, want := range map[string]string{"nobodys": "bailiwick <bailiwick@invalid>", "bobs": "Bob <ann@example>"} {
		if got := w.git("log", "-1", "--format=%an <%ae>", branch); got != want {
			t.Errorf("%s is by %s, want %s", branch, got, want)
		}
	}
}

func TestMergeRefusesOldGit(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "changed\n"))
	for version, want := range map[string]string{"2.37.9": "install git 2.38 or later", "1.99": "install git", "none": "install git"} {
		bin := t.TempDir()
		if version != "none" {
			if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho git version "+version+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(version, func(t *testing.T) {
			t.Setenv("PATH", bin)
			if status, _, errs := w.merge(s, "night"); status != 1 || !strings.Contains(errs, want) {
				t.Errorf("exit status %d, %s", status, errs)
			}
		})
	}
}

func TestMergeWorksInEveryKindOfRepository(t *testing.T) {
	for name, prepare := range map[string]func(w *workshop) string{
		"sha256":             func(w *workshop) string { return w.dir },
		"a subfolder":        func(w *workshop) string { return filepath.Join(w.dir, "bin") },
		"a linked work tree": func(w *workshop) string { w.git("worktree", "add", "-q", w.dir+"-linked"); return w.dir + "-linked" },
		"a bare one": func(w *workshop) string {
			w.git("clone", "-q", "--bare", w.dir, w.dir+"-bare")
			return w.dir + "-bare"
		},
		"one that borrows": func(w *workshop) string {
			w.git("clone", "-q", "--shared", w.dir, w.dir+"-borrows")
			return w.dir + "-borrows"
		},
		"a shallow one": func(w *workshop) string {
			w.write("three.txt", "3\n")
			w.base = w.commit("more")
			w.git("clone", "-q", "--depth", "1", "file://"+w.dir, w.dir+"-shallow")
			return w.dir + "-shallow"
		},
		"a strange name": func(w *workshop) string {
			w.git("clone", "-q", w.dir, w.dir+"/a \"b\\\u00e9\n")
			return w.dir + "/a \"b\\\u00e9\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w *workshop
			if name == "sha256" {
				w = newWorkshop(t, "--object-format=sha256")
			} else {
				w = newWorkshop(t)
			}
			repo := prepare(w)
			s := newRunService()
			s.did("alpha", w.base, "diff --git a/two.txt b/two.txt\n--- a/two.txt\n+++ b/two.txt\n@@ -1 +1 @@\n-two\n+2\n")
			s.did("beta", w.base, "diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n")
			status, out, errs := do(t, s.serve(t), "run", "patch", "r-one", "--repo", repo, "--merge", "night")
			if status != 0 {
				t.Fatalf("exit status %d, %s%s", status, out, errs)
			}
			w.dir = repo
			if got := w.git("show", "night:two.txt"); got != "2" {
				t.Errorf("the branch has %q", got)
			}
			w.git("fsck", "--strict")
		})
	}
}
