package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A source whose history was rewritten no longer has the commit that a waiting
// dispatch has pinned.
//
// proves R-D3
func TestRewrittenSourceIsExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.manifest(subagent{name: "asks", script: `if [ -e inputs/resume.json ]; then cat a.txt; else echo '{"question": "Which?"}' > .bailiwick/question.json; fi`})
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	var ids []string
	for range 2 {
		d := w.dispatch("asks", "--source", "repo")
		wantEnd(t, d, api.EventNeedsInput, "")
		ids = append(ids, string(d.ID))
	}
	old := w.git("repo", "rev-parse", "HEAD")
	w.write("repo/a.txt", "two\n", 0o644)
	w.git("repo", "commit", "-q", "--amend", "-am", "rewritten")
	w.git("repo", "reflog", "expire", "--expire=now", "--all")
	w.git("repo", "gc", "-q", "--prune=now")
	gone := w.refused(1, []string{"no such commit"}, "dispatch", "run", "asks", "--source", "repo@"+old)
	if !strings.Contains(gone.stderr, old) {
		t.Errorf("a new dispatch from it: %s", gone)
	}
	must(t, os.RemoveAll(w.path("state/bailiwick/checkouts")))
	w.try("dispatch", "answer", ids[0], "this")
	d := w.awaitEnd(ids[0])
	wantEnd(t, d, api.EventFailed, api.ReasonFetch)
	if want := `source "repo": ` + w.path("repo") + " no longer has commit " + old + ": its history was rewritten, or it was replaced; dispatch again from a commit that it has"; d.Message != want {
		t.Errorf("message %q, want %q", d.Message, want)
	}
	// The source itself is gone.
	must(t, os.Rename(w.path("repo"), w.path("away")))
	w.try("dispatch", "answer", ids[1], "that")
	d = w.awaitEnd(ids[1])
	wantEnd(t, d, api.EventFailed, api.ReasonFetch)
	if !strings.Contains(d.Message, `source "repo": `) || !strings.Contains(d.Message, w.path("repo")) {
		t.Errorf("message %q", d.Message)
	}
	w.refused(1, []string{`source "repo"`, "not a git repository"}, "dispatch", "run", "asks", "--source", "repo")
	must(t, os.Rename(w.path("away"), w.path("repo")))
	wantEnd(t, w.dispatch("asks", "--source", "repo"), api.EventNeedsInput, "")
}

// While the catalog is gone nothing is dispatched, and what runs ends as it would.
//
// proves R-B7, R-D3
func TestVanishedCatalogIsExplained(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	id, _ := w.begun()
	dirs := []string{"data/bailiwick/catalog", "data/bailiwick"}
	if w.on != nil {
		dirs = dirs[:1] // the trust roots are root's, elsewhere
	}
	for _, dir := range dirs {
		must(t, os.Rename(w.path(dir), w.path("away")))
		hint := "bring back the directory " + w.named(w.path("data/bailiwick")) + " from a backup"
		w.refused(1, []string{"the catalog is refused", hint}, "dispatch", "run", "quick", "--source", "repo")
		for _, restart := range []bool{false, true} {
			if restart {
				w.must("down")
				if d := w.try("up"); d.status != 0 { // without operators.json nobody's consent is known
					if dir != "data/bailiwick" || !strings.Contains(d.stderr, "operators.json from a backup") {
						t.Errorf("up without %s: %s", dir, d)
					}
					break
				}
			}
			if d := w.try("status"); !strings.Contains(d.stdout, "NOT READY") || !strings.Contains(d.stdout, hint) || !strings.Contains(d.stdout, "1 started") {
				t.Errorf("without %s, after a restart %v: %s", dir, restart, d)
			}
		}
		must(t, os.Rename(w.path("away"), w.path(dir)))
		w.must("up")
		wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
	}
	w.openGate()
	wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
}
