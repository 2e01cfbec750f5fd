package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A source that is a partial clone, whose .git is a symbolic link, fails with the command
// that completes it, and works after that: the dispatch, and its patch in the work tree.
// No remote is asked before.
//
// proves R-S4
func TestAPartialCloneIsASourceOnceItIsComplete(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("origin", map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
		w.git("origin", "config", "uploadpack.allowFilter", "true")
		w.git(".", "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+w.path("origin"), "repo")
		must(t, os.Rename(w.path("repo/.git"), w.path("store")))
		must(t, os.Symlink("../store", w.path("repo/.git")))
		must(t, os.Lchown(w.path("repo/.git"), w.uid, w.uid))
		w.git("repo", "config", "remote.origin.uploadpack", "touch "+w.path("ran")+"; git-upload-pack")
		w.catalog(subagent{name: "edit", script: "echo changed > a.txt"})
		w.up()
		d := w.dispatch("edit", "--source", "repo")
		wantEnd(t, d, api.EventFailed, api.ReasonFetch)
		for _, want := range []string{"is missing from " + w.path("repo") + ", a partial clone", "git -C " + w.path("repo") + " fetch --refetch --no-filter origin"} {
			if !strings.Contains(d.Message, want) {
				t.Errorf("%q is missing from %s", want, d.Message)
			}
		}
		if _, err := os.Stat(w.path("ran")); err == nil {
			t.Error("the remote was asked")
		}
		w.git("repo", "fetch", "-q", "--refetch", "--no-filter", "origin")
		if _, err := os.Stat(w.path("ran")); err != nil {
			t.Error("control: git did not ask the remote")
		}
		w.git("repo", "reset", "-q", "--hard")
		d = w.dispatch("edit", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		w.must("dispatch", "apply", string(d.ID), "--repo", w.path("repo"))
		if b, err := os.ReadFile(w.path("repo/a.txt")); err != nil || string(b) != "changed\n" {
			t.Errorf("a.txt is %q, %v", b, err)
		}
	})
}
