package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// large is how many lines an agent prints in these tests: about 9 MiB, which the log keeps
// whole.
const large = 300_000

// prints is a subagent with a large log, of hostile lines, and a patch of hostile text in
// two files. Its verify command says one line more.
func prints() subagent {
	return subagent{name: "prints", script: fmt.Sprintf(`set -e
seq -f "line %%.0f of the log <b>$(printf '\033')[0m" %d
printf 'if ok { // \342\200\256 } \342\201\246\n' >> a.txt
mkdir -p .github/workflows
echo 'on: push' > .github/workflows/ci.yml
chmod +x .github/workflows/ci.yml`, large), more: "    verify: {command: [echo, checked]}\n"}
}

// viewed is a service with the settled run "view", whose first task printed a large log, and
// the page of its dispatch.
func viewed(t testing.TB) (w *world, dispatch string) {
	t.Helper()
	w = orchestrated(t, 0, prints())
	first := api.PlanTask{ID: "prints", Subagent: "prints"}
	w.submit(planned("view", first, shellTask("left", "true", after("prints")), shellTask("right", "exit 3", after("prints")),
		shellTask("last", "true", after("left")), shellTask("never", "true", after("left", "right"))))
	run := w.awaitSettled("view")
	if got := task(t, run, "prints"); got.State != api.TaskDone {
		t.Fatalf("task prints is %s: %s", got.State, got.Message)
	}
	return w, "/dispatches/" + string(task(t, run, "prints").DispatchID)
}

// The graph, the log and the patch are read in a browser, of a run whose agent printed
// 300,000 lines.
func TestABrowserReadsLargeViews(t *testing.T) {
	t.Parallel()
	w, dispatch := viewed(t)
	p := w.servePage()
	tab := p.signedIn()
	t.Run("accessible", func(*testing.T) { viewsAreAccessible(p, tab, dispatch) })
	t.Run("log", func(*testing.T) { logHasOnlyTheRowsInView(p, tab, dispatch) })
	t.Run("keyboard", func(*testing.T) { viewsWorkByKeyboard(p, tab, dispatch) })
	p.quiet(tab)
}

// No view has a violation of axe-core, in light and dark, wide and at 360 pixels, with
// script and without it. The five tasks of the graph are shown in all states: their colours
// differ.
func viewsAreAccessible(p *page, tab *tab, dispatch string) {
	t := p.t
	t.Helper()
	states, err := json.Marshal(api.TaskStates())
	must(t, err)
	for _, script := range []bool{true, false} {
		for _, path := range []string{"/runs/view/graph", "/runs/view/graph?trace=never", dispatch + "/log?find=line+30000", dispatch + "/patch"} {
			for _, width := range []int{1280, 360} {
				if !script && width == 1280 {
					continue // only what does not fit can differ
				}
				tab.script(script)
				tab.scheme("light")
				tab.size(width, 800)
				p.at(tab, path)
				name := fmt.Sprintf("%s, %d pixels, script %v", path, width, script)
				if n := tab.wide(); n > 0 {
					t.Errorf("%s: %d pixels wider than the window", name, n)
				}
				if !script {
					continue
				}
				for _, v := range tab.axe() {
					t.Errorf("%s: %s", name, v)
				}
				for round := range 2 {
					if round > 0 && tab.count("#graph .node") == 0 {
						break
					}
					tab.eval(fmt.Sprintf("document.querySelectorAll('#graph .node').forEach((e, i) => { e.dataset.state = %s[i + 5 * %d]; })", states, round), nil)
					for _, scheme := range []string{"light", "dark"} {
						tab.scheme(scheme)
						for _, v := range tab.axeColours() {
							t.Errorf("%s, %s, states %d: %s", name, scheme, round, v)
						}
					}
				}
			}
		}
	}
	tab.script(true)
	tab.scheme("light")
	tab.size(1280, 800)
}

// A log of 300,000 lines is one region, and only its rows in view exist: by a link to a line
// near the end, at the end, for a line that a search over all of them finds, and while a
// wheel scrolls.
func logHasOnlyTheRowsInView(p *page, tab *tab, dispatch string) {
	t := p.t
	t.Helper()
	bounded := func(where string) {
		t.Helper()
		if n := tab.count("#log li"); n > 200 || n < 10 {
			t.Errorf("%s: %d rows", where, n)
		}
	}
	p.at(tab, dispatch+"/log#L299999")
	tab.awaitText("#L299999 code", "line 299999 of the log <b>")
	bounded("by a link")
	tab.eval("document.getElementById('log').scrollTop = 1e9", nil)
	tab.awaitText(fmt.Sprintf("#L%d code", large+1), "checked")
	tab.awaitText(fmt.Sprintf("#L%d .who", large+1), "verify")
	bounded("at the end")
	tab.eval("location.hash = '#L7'", nil)
	tab.await("document.querySelector('#L7.chosen-line code')?.textContent.startsWith('line 7 ')")

	tab.fill("#find", "line 299987 of")
	tab.loads("what was found", func() { tab.press("Enter") })
	if n := tab.count(".hits li"); n != 1 {
		t.Errorf("%d lines are found", n)
	}
	tab.loads("the line", func() { tab.click(".hits a") })
	tab.await("document.querySelector('#L299987.chosen-line code')?.textContent.startsWith('line 299987 ')")
	bounded("after the search")

	const top = "document.getElementById('log').scrollTop"
	var from, to float64
	tab.eval(top, &from)
	for range 40 {
		tab.wheel("#log", -1000)
	}
	tab.await(fmt.Sprintf("%s < %f - 10000 && document.querySelectorAll('#log li code').length > 10", top, from))
	bounded("after a wheel")
	tab.eval(top, &to)
	row := int(to)/20 + 5 // of 20 pixels each
	tab.await(fmt.Sprintf("[...document.querySelectorAll('#log li')].some((e) => { const n = Number(e.id.slice(1)); return Math.abs(n - %d) < 5000 && e.textContent.includes(`line ${n} of`); })", row))
	if n := tab.count("#log b, #log script"); n > 0 {
		t.Errorf("the log made %d elements", n)
	}
}

// The graph is one stop of the keyboard, and arrows move in it. A viewed file of a patch
// stays so, by its digest.
func viewsWorkByKeyboard(p *page, tab *tab, dispatch string) {
	t := p.t
	t.Helper()
	p.at(tab, "/runs/view/graph")
	if n := tab.count("#graph .node[tabindex='0']"); n != 1 {
		t.Errorf("%d stops", n)
	}
	tab.eval("document.querySelector('#graph .node').focus()", nil)
	before := tab.value("document.activeElement.getAttribute('href')")
	tab.press("ArrowRight")
	if after := tab.value("document.activeElement.getAttribute('href')"); after == before || !strings.Contains(after, "trace=") {
		t.Errorf("the arrow leads from %s to %s", before, after)
	}
	tab.loads("the trace", func() { tab.press("Enter") })
	if tab.count(".chosen") != 1 || tab.count(".edge.on") == 0 {
		t.Errorf("no trace at %s", tab.value("location.href"))
	}
	p.at(tab, dispatch+"/patch")
	tab.click("#file-2 .viewed")
	tab.await("!document.querySelector('#file-2 details').open")
	p.at(tab, dispatch+"/patch")
	tab.await("document.querySelector('#file-2 .viewed').checked && !document.querySelector('#file-2 details').open && document.querySelector('#file-1 details').open")
}
