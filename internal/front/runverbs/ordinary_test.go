package runverbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A patch is applied to every kind of repository that people have, and put on a branch.
func TestOrdinaryRepositoriesTakePatches(t *testing.T) {
	for name, change := range map[string]func(w *workshop){
		"sha256": func(*workshop) {},
		"link": func(w *workshop) {
			store := filepath.Join(t.TempDir(), "store")
			w.rename(".git", store)
			if err := os.Symlink(store, filepath.Join(w.dir, ".git")); err != nil {
				t.Fatal(err)
			}
		},
		"file": func(w *workshop) {
			w.git("init", "-q", "--separate-git-dir", filepath.Join(t.TempDir(), "store"))
		},
		"linked": func(w *workshop) { w.at("Größe und Maß's", "worktree", "add", "-q", "-b", "other") },
		"submodule": func(w *workshop) {
			from := w.dir
			w.at("super", "clone", "-q", "file://"+from)
			w.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "file://"+from, "sub")
			w.dir = filepath.Join(w.dir, "sub")
		},
		"shallow": func(w *workshop) { w.at("shallow", "clone", "-q", "--depth=1", "file://"+w.dir) },
		"partial": func(w *workshop) { w.at("partial", "clone", "-q", "--filter=blob:none", "file://"+w.dir) },
	} {
		var args []string
		if name == "sha256" {
			args = []string{"--object-format=sha256"}
		}
		w := newWorkshop(t, args...)
		w.git("config", "uploadpack.allowFilter", "true")
		s := newRunService()
		s.did("edit", w.base, w.edit("one.txt", strings.Replace(ten, "a\n", "A\n", 1)))
		change(w)
		if changed, filtered, err := uncommitted(t.Context(), w.env, w.dir); err != nil || changed+filtered > 0 || !HasCommit(t.Context(), w.env, w.dir) {
			t.Errorf("%s: %d changed, %d filtered, %v", name, changed, filtered, err)
		}
		if status, rep, errs := w.merge(s, "night"); status != 0 || w.git("rev-parse", "night") != rep.Commit {
			t.Errorf("%s: merge: %d, %+v, %s", name, status, rep, errs)
		}
		if status, _, errs := w.apply(s); status != 0 || w.read("one.txt") != strings.Replace(ten, "a\n", "A\n", 1) {
			t.Errorf("%s: apply: %d, %s", name, status, errs)
		}
	}
}

// at runs git with a new directory of this name as its last argument, and continues there.
func (w *workshop) at(name string, args ...string) {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), name)
	w.git(append(args, dir)...)
	w.dir = dir
}

func (w *workshop) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(filepath.Join(w.dir, from), to); err != nil {
		w.t.Fatal(err)
	}
}

// A patch whose files a partial clone lacks is no conflict: the error says how to get
// them, no remote is asked, and what it says to do is enough. The control is git, which
// asks the remote.
//
// proves R-P9, R-S4
func TestAPartialCloneIsNamedWhereItLacksObjects(t *testing.T) {
	for name, clone := range map[string][]string{
		"later":    {"--filter=blob:none"},
		"blobless": {"--filter=blob:none", "--no-checkout"},
		"treeless": {"--filter=tree:0", "--no-checkout"},
	} {
		w := newWorkshop(t)
		w.git("config", "uploadpack.allowFilter", "true")
		s := newRunService()
		s.did("edit", w.base, w.edit("one.txt", strings.Replace(ten, "a\n", "A\n", 1)))
		w.write("one.txt", ten+"more\n") // the clone has only this one
		w.commit("later")
		w.at(name, append([]string{"clone", "-q", "file://" + w.dir}, clone...)...)
		ran := filepath.Join(t.TempDir(), "ran")
		w.git("config", "remote.origin.uploadpack", "touch "+ran+"; git-upload-pack")
		fix := "git -C " + w.dir + " fetch --refetch --no-filter origin; or clone it again without --filter"
		for _, args := range [][]string{nil, {"--branch", "night"}} {
			status, _, errs := w.apply(s, args...)
			if status != 1 || !strings.Contains(errs, "is missing from repository "+w.dir+", a partial clone") || !strings.Contains(errs, fix) {
				t.Errorf("%s %v: status %d, %s", name, args, status, errs)
			}
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: git asked the remote", name)
		}
		w.git("fetch", "-q", "--refetch", "--no-filter", "origin")
		if _, err := os.Stat(ran); err != nil {
			t.Errorf("%s: control: git did not ask the remote", name)
		}
		if status, _, errs := w.apply(s, "--branch", "night"); status != 0 {
			t.Errorf("%s: after the fetch: status %d, %s", name, status, errs)
		}
	}
}

// The work tree that core.worktree names is not read, so no file counts as changed, and
// the error of apply names it. The control names its own folder.
func TestAWorkTreeElsewhereIsNotCompared(t *testing.T) {
	w := newWorkshop(t)
	s := newRunService()
	s.did("edit", w.base, w.edit("one.txt", strings.Replace(ten, "a\n", "A\n", 1)))
	w.write("two.txt", "changed\n")
	for named, want := range map[string]int{w.dir: 1, t.TempDir(): 0} {
		w.git("config", "core.worktree", named)
		if changed, filtered, err := uncommitted(t.Context(), w.env, w.dir); err != nil || changed != want || filtered != 0 {
			t.Errorf("%s: %d changed, %d filtered, %v", named, changed, filtered, err)
		}
	}
	w.git("config", "core.worktree", "/nonexistent")
	if status, _, errs := w.apply(s); status != 1 || !strings.Contains(errs, "is /nonexistent, not the repository's own folder") || !strings.Contains(errs, "core.worktree") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// A patch that does not fit is a conflict, also in a partial clone.
func TestAConflictInAPartialCloneIsOne(t *testing.T) {
	w := newWorkshop(t)
	w.git("config", "uploadpack.allowFilter", "true")
	s := newRunService()
	s.did("edit", w.base, strings.ReplaceAll(w.edit("one.txt", strings.Replace(ten, "a\n", "A\n", 1)), " b\n", " x\n"))
	w.at("partial", "clone", "-q", "--filter=blob:none", "file://"+w.dir)
	if status, rep, errs := w.apply(s); status != 1 || len(rep.Conflicts) != 1 || errs != "" {
		t.Errorf("status %d, %+v, %s", status, rep, errs)
	}
}
