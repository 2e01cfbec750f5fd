package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A person reads in the browser what the second revision changed: the lines that catalog
// diff prints, and who signed it. The history, the log and the revisions beside it lead
// there. A revision that does not verify is an error that names what.
//
// proves R-B5
func TestABrowserShowsWhatARevisionChanged(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.widened("for the painters")
	p := w.servePage()
	tab := p.signedIn()
	p.at(tab, "/catalog")
	tab.loads("the second revision", func() { tab.click("td a[href='/catalog/2']") })
	shown := tab.text("main")
	var diff api.CatalogDiff
	decode(t, w.must("catalog", "diff", "1", "2", "-o", "json"), &diff)
	if n := tab.count(".authority[data-kind=widens] li"); n != len(diff.Widens) || n != 1 {
		t.Errorf("the page has %d lines that widen authority, catalog diff %d, want 1", n, len(diff.Widens))
	}
	for _, l := range diff.Widens {
		wantIn(t, "revision 2", shown, "Widens "+string(l.Ref)+": "+l.What)
	}
	var root struct{ Keys []struct{ ID string } }
	decode(t, w.read("data/bailiwick/trust.json"), &root)
	wantIn(t, "revision 2", shown, "in force", "for the painters", "+ added env/planted", "widens authority", "~ changed env/colours", "values.COLOUR", "blue", "red", root.Keys[0].ID)
	tab.loads("the revision before", func() { tab.click("a[rel=prev]") })
	wantIn(t, "revision 1", tab.text("main"), "revision 2 is in force", "What the first revision has", "subagent/sh")
	tab.loads("the next one", func() { tab.click("a[rel=next]") })
	entries := w.audited("--kind", "catalog.revision")
	p.at(tab, "/log/"+strconv.FormatUint(entries[len(entries)-1].Seq, 10))
	tab.loads("the revision of an entry", func() { tab.click("main a[href='/catalog/2']") })
	wantIn(t, "revision 2", tab.text("main"), "Widens env/planted")
	p.quiet(tab)

	env := ""
	must(t, filepath.WalkDir(w.path("data/bailiwick/catalog/blobs"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `"COLOUR":"blue"`) {
				env = path
			}
		}
		return err
	}))
	must(t, os.Remove(env))
	if status := tab.visit(p.origin + "/catalog/2"); status == 200 {
		t.Errorf("a revision is compared with one that does not verify:\n%s", tab.text("main"))
	}
	wantIn(t, "a past that does not verify", tab.text("main"), "does not verify", "revision 1", "env/colours")
}
