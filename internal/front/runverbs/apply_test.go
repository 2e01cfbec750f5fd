package runverbs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (w *workshop) apply(s *runService, args ...string) (int, mergeReport, string) {
	w.t.Helper()
	v := invocation{Output: console.Output{Env: w.env}}
	status, out, errs := with(w.t, v, s.serve(w.t), append(append([]string{"run", "apply", "r-one"}, args...), "--repo", w.dir, "-o", "json")...)
	var rep mergeReport
	if out != "" {
		if err := json.Unmarshal([]byte(out), &rep); err != nil {
			w.t.Fatalf("%v: %s", err, out)
		}
	}
	return status, rep, errs
}

func (w *workshop) read(path string) string {
	b, err := os.ReadFile(filepath.Join(w.dir, path))
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(b)
}

// The patches of a run become changes of the work tree on top of what is checked
// out, beside the user's own in other files; index, branches and commits stay.
func TestApplyChangesTheWorkTreeOnly(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("one.txt", strings.Replace(ten, "a\n", "A\n", 1)))
	s.did("add", w.base, w.patch(func() {
		w.write("new/dir/file.txt", "new\n")
		w.write("run.sh", "#!/bin/sh\n")
		w.git("update-index", "--add", "--chmod=+x", "run.sh")
		if err := os.Chmod(filepath.Join(w.dir, "run.sh"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("new/dir/file.txt", filepath.Join(w.dir, "link")); err != nil {
			t.Fatal(err)
		}
	}))
	s.did("drop", w.base, w.patch(func() { w.git("rm", "-q", "bin/data") }), "edit")
	w.write("one.txt", ten+"more\n") // the branch has another commit by now
	w.commit("later")
	w.write("two.txt", "my own\n")
	w.write("untracked", "mine\n")
	refs, index := w.git("for-each-ref"), w.git("ls-files", "-s")
	status, rep, errs := w.apply(s)
	if status != 0 || len(rep.Merged) != 3 || len(rep.Files) != 5 || rep.WorkTree == "" || rep.Commit != "" {
		t.Fatalf("status %d, %+v, %s", status, rep, errs)
	}
	for path, want := range map[string]string{
		"one.txt": strings.Replace(ten, "a\n", "A\n", 1) + "more\n", "new/dir/file.txt": "new\n", "link": "new\n", "two.txt": "my own\n", "untracked": "mine\n",
	} {
		if got := w.read(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if st, err := os.Stat(filepath.Join(w.dir, "run.sh")); err != nil || st.Mode()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", st, err)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "bin")); err == nil {
		t.Error("bin/data was not removed with its folder")
	}
	if w.git("for-each-ref") != refs || w.git("ls-files", "-s") != index {
		t.Error("a ref or the index has changed")
	}
	if left := w.git("status", "--porcelain"); strings.Contains(left, ".bailiwick") {
		t.Errorf("left behind: %s", left)
	}
	// Again: the changes are the user's own now, so nothing is written over them.
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "has changes of its own where the patch applies: ") || !strings.Contains(errs, "one.txt") {
		t.Errorf("status %d, %s", status, errs)
	}
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "applied")
	if status, rep, errs := w.apply(s); status != 0 || len(rep.Files) != 0 {
		t.Errorf("status %d, %+v, %s", status, rep, errs)
	}
}

// Of one task only its own patch is applied; of a task that is not done, none.
func TestApplyOfOneTask(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("one.txt", "only this\n"))
	s.did("other", w.base, w.edit("two.txt", "not this\n"))
	s.did("bad", w.base, w.edit("two.txt", "nor this\n")).State = api.TaskFailed
	if status, rep, errs := w.apply(s, "edit"); status != 0 || len(rep.Merged) != 1 || w.read("one.txt") != "only this\n" || w.read("two.txt") != "two\n" {
		t.Errorf("status %d, %+v, %s", status, rep, errs)
	}
	for task, want := range map[string]string{"bad": "only the patch of a done task is applied", "absent": "no task absent"} {
		if status, _, errs := w.apply(s, task); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", task, status, errs)
		}
	}
	if status, rep, errs := w.apply(s, "other", "--branch", "side"); status != 0 || rep.Commit == "" || w.git("show", "side:two.txt") != "not this" || w.read("two.txt") != "two\n" {
		t.Errorf("status %d, %+v, %s", status, rep, errs)
	}
}

// Nothing is written on a conflict, over the user's own changes, staged or not,
// or over an untracked file. The control is the same patch afterwards.
//
// proves R-S4
func TestApplyWritesNothingOverOtherWork(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.patch(func() {
		w.write("one.txt", strings.Replace(ten, "a\n", "A\n", 1))
		w.write("two.txt", "TWO\n")
		w.write("fresh.txt", "fresh\n")
	}))
	unchanged := func(name, want string) {
		t.Helper()
		before := w.whole() + w.read("one.txt") + w.read("two.txt") + w.read("fresh.txt")
		status, rep, errs := w.apply(s)
		text, _ := json.Marshal(rep)
		if status != 1 || !strings.Contains(errs+string(text), want) {
			t.Errorf("%s: status %d, %s%s", name, status, errs, text)
		}
		if after := w.whole() + w.read("one.txt") + w.read("two.txt") + w.read("fresh.txt"); after != before {
			t.Errorf("%s: changed to\n%s\nwas\n%s", name, after, before)
		}
	}
	w.write("two.txt", "mine\n")
	unchanged("changed", "two.txt")
	w.git("add", "two.txt")
	w.write("two.txt", "two\n") // as committed, but staged otherwise
	unchanged("staged", "two.txt")
	w.git("reset", "-q", "--hard")
	w.write("fresh.txt", "mine\n")
	unchanged("untracked", "fresh.txt")
	w.git("clean", "-fdq")
	if err := os.Remove(filepath.Join(w.dir, "two.txt")); err != nil {
		t.Fatal(err)
	}
	unchanged("deleted", "two.txt")
	w.git("reset", "-q", "--hard")
	w.write("one.txt", strings.Replace(ten, "a\n", "mine\n", 1))
	w.commit("conflicting")
	unchanged("conflict", "which is checked out")
	w.git("reset", "-q", "--hard", w.base)
	if status, _, errs := w.apply(s); status != 0 || w.read("two.txt") != "TWO\n" || w.read("fresh.txt") != "fresh\n" {
		t.Errorf("control: status %d, %s", status, errs)
	}
}

// What an editor saves after the check and before the write is neither lost nor
// overwritten, and then nothing is written. The control saves nothing.
func TestApplyLosesNothingThatIsSavedMeanwhile(t *testing.T) {
	for name, save := range map[string]func(w *workshop){
		"changed": func(w *workshop) { w.write("two.txt", "saved\n") },
		"new":     func(w *workshop) { w.write("fresh.txt", "saved\n") },
		"control": nil,
	} {
		w := newWorkshop(t)
		w.write("one.txt", "ONE\n")
		w.write("two.txt", "TWO\n")
		w.write("fresh.txt", "fresh\n")
		tree := w.commit("theirs")
		w.git("reset", "-q", "--hard", w.base)
		m, err := (&patchVerbs{&commands{Config{Output: &console.Output{Env: w.env}}}}).openMerge(t.Context(), w.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close() //nolint:errcheck // a temporary folder
		tr, err := m.openWorkTree(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close() //nolint:errcheck // only read
		changes, err := tr.changesTo(t.Context(), tree)
		if err != nil || len(changes) != 3 {
			t.Fatalf("%+v, %v", changes, err)
		}
		if err := tr.check(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		if save == nil {
			if err := tr.write(t.Context(), changes); err != nil || w.read("two.txt") != "TWO\n" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		save(w)
		state := func() string {
			return w.git("status", "--porcelain") + w.read("one.txt") + w.read("two.txt") + w.read("fresh.txt")
		}
		before := state()
		if err := tr.write(t.Context(), changes); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
		if after := state(); after != before {
			t.Errorf("%s: it is\n%s\nwas\n%s", name, after, before)
		}
	}
}

// A patch reaches nothing but the files of the work tree: neither through its
// paths, nor through links that it makes, nor through links that are there. The
// control is a link that stays inside.
//
// proves R-S4
func TestApplyStaysInTheWorkTree(t *testing.T) {
	link := func(path, target string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode 120000\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+" + target + "\n\\ No newline at end of file\n"
	}
	file := func(path string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode 100755\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+touch ran\n"
	}
	for name, c := range map[string]struct{ patch, want string }{
		"absolute link":       {link("l", "/etc/passwd"), "leads out of the work tree"},
		"link upwards":        {link("sub/l", "../../x"), "leads out of the work tree"},
		"link up after down":  {link("sub/l", "d/../../two.txt"), "leads out of the work tree"},
		"link to git":         {link("l", ".git/config"), "leads out of the work tree"},
		"link to GIT":         {link("sub/l", "../.GIT/hooks"), "leads out of the work tree"},
		"git directory":       {file(".git/hooks/post-checkout"), "invalid path"},
		"nested git":          {file("sub/.git/config"), "invalid path"},
		"upwards":             {file("../outside"), "invalid path"},
		"through a link":      {file("hooks/post-checkout"), "hooks is no folder"},
		"through a link out":  {file("out/file"), "out is no folder"},
		"a submodule":         {"diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+Subproject commit 1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c\n", "mode 160000"},
		"control: stays here": {link("sub/l", "../two.txt"), ""},
	} {
		w := newWorkshop(t)
		outside := t.TempDir()
		for from, to := range map[string]string{"hooks": ".git/hooks", "out": outside} { // untracked, of the user
			if err := os.Symlink(to, filepath.Join(w.dir, from)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(w.dir, ".git/hooks"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := newRunService()
		s.did("evil", w.base, c.patch)
		before := w.whole()
		status, rep, errs := w.apply(s)
		text, _ := json.Marshal(rep)
		if c.want == "" {
			if status != 0 || w.read("sub/l") != "two\n" {
				t.Errorf("%s: status %d, %s%s", name, status, errs, text)
			}
			continue
		}
		if status != 1 || !strings.Contains(errs+string(text), c.want) {
			t.Errorf("%s: status %d, %s%s", name, status, errs, text)
		}
		if after := w.whole(); after != before {
			t.Errorf("%s: changed to\n%s\nwas\n%s", name, after, before)
		}
		for _, path := range []string{filepath.Join(w.dir, ".git/hooks/post-checkout"), filepath.Join(outside, "file"), filepath.Join(filepath.Dir(w.dir), "outside")} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s: %s was written", name, path)
			}
		}
	}
}

// A git directory in the work tree under a name of its own is one as well. The
// control is a folder beside it.
//
// proves R-S4
func TestApplyStaysOutOfASeparateGitDirectory(t *testing.T) {
	w := newWorkshop(t)
	if err := os.Rename(filepath.Join(w.dir, ".git"), filepath.Join(w.dir, "gitdata")); err != nil {
		t.Fatal(err)
	}
	w.write(".git", "gitdir: gitdata\n")
	file := func(path string) string {
		return "diff --git a/" + path + " b/" + path + "\nnew file mode 100755\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+touch ran\n"
	}
	for path, ok := range map[string]bool{"gitdata/hooks/post-checkout": false, "GITDATA/hooks/post-checkout": false, "gitdata2/file": true} {
		s := newRunService()
		s.did("evil", w.base, file(path))
		status, _, errs := w.apply(s)
		_, err := os.Lstat(filepath.Join(w.dir, path))
		if (status == 0) != ok || (err == nil) != ok || !ok && !strings.Contains(errs, "not one of the work tree's files") {
			t.Errorf("%s: status %d, %v, %s", path, status, err, errs)
		}
	}
}

// No program that the repository names runs: neither a hook, nor a filter, nor a
// file system monitor. The control is git itself, which runs the filter.
//
// proves R-S4
func TestApplyRunsNothingOfTheRepository(t *testing.T) {
	w := newWorkshop(t)
	ran := filepath.Join(t.TempDir(), "ran")
	w.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n")
	base := w.commit("attributes")
	s := newRunService()
	s.did("edit", base, w.edit("two.txt", "TWO\n"))
	program := "touch " + ran + "; cat"
	for _, key := range []string{"filter.evil.smudge", "filter.evil.clean", "core.fsmonitor", "diff.evil.textconv", "merge.evil.driver", "diff.external", "core.pager"} {
		w.git("config", key, program)
	}
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction", "pre-commit", "applypatch-msg"} {
		w.write(".git/hooks/"+hook, "#!/bin/sh\ntouch "+ran+"\n")
		if err := os.Chmod(filepath.Join(w.dir, ".git/hooks", hook), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if status, rep, errs := w.apply(s); status != 0 || w.read("two.txt") != "TWO\n" {
		t.Fatalf("status %d, %+v, %s", status, rep, errs)
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a program of the repository ran")
	}
	w.git("checkout", "-q", "--", "two.txt")
	if _, err := os.Lstat(ran); err != nil {
		t.Error("the control did not run the filter")
	}
}

// The configuration of a repository does not say where files are written. The
// controls are a linked work tree and a submodule, which lie elsewhere by right.
//
// proves R-S4
func TestApplyWritesOnlyWhereTheRepositoryLies(t *testing.T) {
	victim := t.TempDir()
	for name, prepare := range map[string]func(w *workshop){
		"another folder": func(w *workshop) { w.git("config", "core.worktree", victim) },
		"another repository": func(w *workshop) {
			other := newWorkshop(t)
			w.git("config", "core.worktree", other.dir)
			victim = other.dir
		},
		"a repository in a folder": func(w *workshop) { // as a patch may leave one
			w.git("clone", "-q", "--bare", ".", "sub")
			w.dir = filepath.Join(w.dir, "sub")
			w.git("config", "core.bare", "false")
			w.git("config", "core.worktree", victim)
		},
	} {
		w := newWorkshop(t)
		s := newRunService()
		s.did("edit", w.base, w.edit("fresh.txt", "fresh\n"))
		prepare(w)
		if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "not the repository's own folder") {
			t.Errorf("%s: status %d, %s", name, status, errs)
		}
		if _, err := os.Lstat(filepath.Join(victim, "fresh.txt")); err == nil {
			t.Errorf("%s: the folder was written to", name)
		}
	}
	for name, prepare := range map[string]func(w *workshop){
		"linked": func(w *workshop) {
			linked := filepath.Join(t.TempDir(), "linked")
			w.git("worktree", "add", "-q", "--detach", linked)
			w.dir = linked
		},
		"submodule": func(w *workshop) {
			outer := newWorkshop(t)
			outer.git("-c", "protocol.file.allow=always", "submodule", "-q", "add", w.dir, "inner")
			w.dir = filepath.Join(outer.dir, "inner")
		},
	} {
		w := newWorkshop(t)
		s := newRunService()
		s.did("edit", w.base, w.edit("fresh.txt", "fresh\n"))
		prepare(w)
		if status, _, errs := w.apply(s); status != 0 || w.read("fresh.txt") != "fresh\n" {
			t.Errorf("%s: status %d, %s", name, status, errs)
		}
	}
}

// The patch of a single dispatch is applied as that of a task is.
func TestApplyOfADispatch(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("two.txt", "TWO\n"))
	s.did("none", w.base, "")
	s.did("bad", w.base, w.edit("two.txt", "bad\n"))
	d := s.dispatches["d-bad"]
	d.State, d.ID = api.EventFailed, "d-badly"
	s.dispatches["d-badly"] = d
	s.dispatches["d-nones"] = s.dispatches["d-none"]
	socket := s.serve(t)
	apply := func(args ...string) (int, string, string) {
		v := invocation{Output: console.Output{Env: w.env}}
		return with(t, v, socket, append(args, "--repo", w.dir)...)
	}
	if status, _, errs := apply("dispatch", "apply", "d-badly"); status != 1 || !strings.Contains(errs, "only the patch of a finished one is applied") {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, _, errs := apply("dispatch", "apply", "d-nones"); status != 1 || !strings.Contains(errs, "has no patch") {
		t.Errorf("status %d, %s", status, errs)
	}
	status, out, errs := apply("dispatch", "apply", "d-edit", "--branch", "fix")
	if status != 0 || !strings.HasPrefix(out, "branch      fix at ") || w.git("show", "fix:two.txt") != "TWO" || w.read("two.txt") != "two\n" {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if body := w.git("log", "-1", "--format=%B", "fix"); !strings.HasPrefix(body, "Dispatch d-edit of edit\n") || strings.Contains(body, "Bailiwick-Run") {
		t.Errorf("%s", body)
	}
	status, out, errs = apply("dispatch", "apply", "d-edit")
	if status != 0 || !strings.Contains(out, "1 file changed, nothing is staged or committed\n            modified two.txt\n") || !strings.Contains(out, "next        git -C ") || w.read("two.txt") != "TWO\n" {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	bare := filepath.Join(t.TempDir(), "bare")
	w.git("clone", "-q", "--bare", w.dir, bare)
	w.dir = bare
	if status, _, errs := apply("dispatch", "apply", "d-edit"); status != 1 || !strings.Contains(errs, "has no work tree") || !strings.Contains(errs, "--branch") {
		t.Errorf("status %d, %s", status, errs)
	}
}
