package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// elsewhere makes repositories of the repository "Größe und Maß" whose objects lie elsewhere than at their path, and returns their
// names.
func (w *world) elsewhere() []string {
	w.t.Helper()
	const of = "Größe und Maß"
	w.repository(of, map[string]string{"a.txt": "one\n"})
	w.git(of, "worktree", "add", "-q", "--detach", w.path("linked"))
	w.git(".", "clone", "-q", w.path(of), w.path("super"))
	w.git("super", "-c", "protocol.file.allow=always", "submodule", "add", "-q", "file://"+w.path(of), "sub")
	w.git(".", "clone", "-q", "--shared", w.path(of), w.path("borrows"))
	must(w.t, os.Symlink(of, w.path("by-link")))
	must(w.t, os.Lchown(w.path("by-link"), w.uid, w.uid))
	return []string{of, "linked", "super/sub", "borrows", "by-link"}
}

// A source is whatever git takes for a repository: a linked work tree, a submodule, one that borrows objects, a symbolic link to
// one. Its patch has what an agent changed, also of an agent that wants a git work tree.
//
// proves R-S4
func TestASourceMayLieElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	names := w.elsewhere()
	w.init()
	w.manifest(subagent{name: "edit", script: "git log -1 --format=%s > seen; cat a.txt >> seen; echo two > a.txt"})
	w.replace("project/bailiwick.yaml", "from: capabilities/edit", "from: capabilities/edit, requires: [{git: worktree}]")
	var sources, granted []string
	for i, name := range names {
		id := "s" + string(rune('a'+i))
		sources = append(sources, "  - {name: "+id+", repo: \""+w.path(name)+"\"}\n")
		granted = append(granted, id)
	}
	w.replace("project/bailiwick.yaml", "sources:\n", "sources:\n"+strings.Join(sources, ""))
	w.replace("project/bailiwick.yaml", "sources: [repo]", "sources: [repo, "+strings.Join(granted, ", ")+"]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	for i, id := range granted {
		d := w.dispatch("edit", "--source", id)
		wantEnd(t, d, api.EventFinished, "")
		patch := w.must("dispatch", "patch", string(d.ID))
		for _, want := range []string{"+two", "+first", "+one", "-one"} {
			if !strings.Contains(patch, want) {
				t.Errorf("%s: %q is missing from the patch:\n%s", names[i], want, patch)
			}
		}
	}
	// What they borrow from belongs to another account.
	must(t, filepath.WalkDir(w.path("Größe und Maß/.git/objects"), func(path string, _ os.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(path, 4711, 4711)
	}))
	for _, id := range []string{"sb", "sd"} {
		w.refused(1, []string{`source "` + id + `"`, "belongs to user 4711", "make the repository self-contained"}, "dispatch", "run", "edit", "--source", id)
	}
	wantEnd(t, w.dispatch("edit", "--source", "sc"), api.EventFinished, "") // the control: a submodule has its own
}
