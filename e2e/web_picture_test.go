package e2e

import (
	"bytes"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// pictureBytes is how large a picture of the guide may be.
const pictureBytes = 150 << 10

// The pictures of the guide show the page of a service with real runs; -update makes them
// again. Without it the test checks that each page can be taken, and that the guide has
// its picture.
func TestPicturesOfTheGuide(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	edit := func(id api.TaskID, word string, behind ...api.TaskID) api.PlanTask {
		return shellTask(id, "echo changing the colour to "+word+"; echo "+word+" > "+string(id)+".txt; sed -i s/one/"+word+"/ a.txt", after(behind...))
	}
	done := w.submit(planned("repaint", edit("plan", "red"), edit("walls", "green", "plan"), edit("doors", "blue", "plan"), edit("roof", "grey", "plan"), shellTask("check", "cat a.txt", after("walls", "doors", "roof"))))
	asks := w.submit(planned("choose", shellTask("colour", inquiry)))
	run := w.awaitSettled(done)
	w.awaitEvent(asks, event("task.waiting", "colour"))
	w.widened("brushes")
	w.passkey("ann")
	tier := api.Stateful
	pending, err := w.conn().Operator().SubmitDecision(t.Context(), api.PendingRequest{Record: api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: api.Principal(w.me()), Ceiling: &tier, Reason: "ticket 12"}})
	must(t, err)
	p := w.servePage("--sign-addr", "127.0.0.1:0")
	walls := p.origin + "/dispatches/" + string(task(t, run, "walls").DispatchID)
	tab := p.signedIn()
	p.signIn(tab, p.sign)
	tab.size(1000, 640)
	for name, url := range map[string]string{
		"overview": p.origin + "/", "inbox": p.origin + "/inbox", "run": p.origin + "/runs/" + string(done), "graph": p.origin + "/runs/" + string(done) + "/graph", "dispatch": walls,
		"patch": walls + "/patch", "log": walls + "/log", "entry": p.origin + "/log/20", "catalog": p.origin + "/catalog", "revision": p.origin + "/catalog/2", "sign": p.sign + "/" + string(pending.ID),
	} {
		if status := tab.visit(url); status != http.StatusOK {
			t.Errorf("%s has status %d", url, status)
		}
		tab.picture(name)
	}
	p.quiet(tab)
}

// picture takes a picture of the guide.
func (t *tab) picture(name string) {
	t.b.t.Helper()
	shot := t.screenshot()
	file := filepath.Join("../docs/page", name+".png")
	if *updateGuides {
		must(t.b.t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t.b.t, os.WriteFile(file, shot, 0o644))
	}
	kept, err := os.ReadFile(file)
	must(t.b.t, err)
	if _, err := png.DecodeConfig(bytes.NewReader(kept)); err != nil || len(kept) > pictureBytes {
		t.b.t.Errorf("%s has %d bytes, want at most %d: %v", file, len(kept), pictureBytes, err)
	}
	guide, err := os.ReadFile("../docs/guide-page.md")
	must(t.b.t, err)
	if !bytes.Contains(guide, []byte("(page/"+name+".png)")) {
		t.b.t.Errorf("docs/guide-page.md does not show %s", file)
	}
}
