package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// tabTo presses Tab until an element that matches has the focus: a person reaches it with
// the keyboard alone.
func (t *tab) tabTo(selector string) {
	t.b.t.Helper()
	for range 400 {
		var there bool
		t.eval("document.activeElement.matches("+quoted(selector)+")", &there)
		if there {
			return
		}
		t.press("Tab")
	}
	t.b.t.Fatalf("Tab does not lead to %s at %s", selector, t.value("location.href"))
}

// write types text into the field with the focus.
func (t *tab) write(text string) {
	t.b.t.Helper()
	t.must("Input.insertText", members{"text": text}, nil)
}

// steerForms is the forms that --steer adds.
func steerForms() []string {
	return []string{
		"/dispatches/ID/answer", "/dispatches/ID/cancel", "/runs/ID/answer", "/runs/ID/cancel", "/runs/ID/pause", "/runs/ID/resume", "/runs/ID/retry",
	}
}

// With --steer every page reads as without it, and has the forms that steer: no violation of
// axe-core in either scheme, nothing wider than 360 pixels, hostile text is text, and no path
// answers with an error of the page, whatever a form sends it.
func TestABrowserReadsEveryPageThatSteers(t *testing.T) {
	t.Parallel()
	w := newPeopledWorld(t)
	const lone = `jq -nc --arg t 'Which <b data-planted=1>?' '{question: $t}' > .bailiwick/question.json`
	w.dispatch("quality", "--source", "repo", "--id", "lone", "--input", `{"do":`+quoted(lone)+`}`)
	w.submit(planned("paused", shellTask("a", "GATE="+w.path("gate")+"\n"+awaitGate("never"), as("quality"))))
	w.begunTask("paused", "a")
	w.must("run", "pause", "paused")
	p := w.servePage("--steer")
	tab := p.signedIn()
	var forms []string
	wantKinds(t, p.crawl(tab, func(path string) {
		tab.scheme("light")
		tab.size(360, 640)
		for _, v := range tab.axe() {
			t.Errorf("%s, light: %s", path, v)
		}
		tab.scheme("dark")
		for _, v := range tab.axeColours() {
			t.Errorf("%s, dark: %s", path, v)
		}
		if n := tab.wide(); n > 0 {
			t.Errorf("%s is %d px wider than 360 px", path, n)
		}
		for _, found := range tab.planted() {
			t.Errorf("%s: %s", path, found)
		}
		// Fields turn the browser's spell checker off: it may send the text to a third party.
		if n := tab.count("input:not([type=hidden], [type=radio], [type=checkbox], [spellcheck=false]), textarea:not([spellcheck=false])"); n > 0 {
			t.Errorf("%s has %d fields that a browser may send to a spelling service", path, n)
		}
		var actions []string
		tab.eval("[...document.querySelectorAll('main form[method=post]')].map((f) => new URL(f.action).pathname)", &actions)
		for _, a := range actions {
			_, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "/runs/"), "/dispatches/"), "/")
			forms = append(forms, "/"+strings.Split(a, "/")[1]+"/ID/"+verb)
		}
	}, append(w.starts(), "/inbox", "/runs/paused", "/runs/under-way", "/dispatches/"+string(w.dispatchOf("under-way", "a")), "/dispatches/lone")...))
	slices.Sort(forms)
	if forms = slices.Compact(forms); !slices.Equal(forms, steerForms()) {
		t.Errorf("the pages have the forms %q, want %q", forms, steerForms())
	}
	p.quiet(tab)

	// What a form or a link of no page sends.
	ids := []string{"no-such-run", "whole", "%3Cb%3E", strings.Repeat("x", 300)}
	bodies := []string{"", "attempt=1", "attempt=99999999999999999999&option=-1", "attempt=1&option=77&text=x&task=no&dispatch=no", "task=%00&dispatch=%3Cb%3E&attempt=x&reason=" + strings.Repeat("y", 2000), "text=%FF&reason=%FF&attempt=1", "%zz"}
	for _, form := range steerForms() {
		for _, id := range ids {
			for _, body := range bodies {
				path := strings.Replace(form, "ID", id, 1)
				if status := tab.status(path, "POST", body); status >= http.StatusInternalServerError || status == http.StatusNotFound && id == "whole" && strings.HasPrefix(form, "/runs/") && body == "" {
					t.Errorf("POST %s %q has status %d", path, body, status)
				}
			}
		}
	}
	for _, path := range []string{
		"/runs/x", "/runs/%00", "/runs?state=no", "/runs?after=no", "/runs?label=no", "/runs/whole?after=no", "/runs/whole/graph?trace=no&open=no&state=no&from=-1", "/runs/whole/graph?from=99999999999999999999",
		"/dispatches/x", "/dispatches/lone?attempt=99", "/dispatches/lone?attempt=x", "/dispatches/lone/log?from=0", "/dispatches/lone/log?find=" + strings.Repeat("z", 1001), "/dispatches/lone/log/lines?from=x", "/dispatches/lone/log/raw?attempt=7",
		"/dispatches/lone/output", "/dispatches/lone/output?path=../x", "/dispatches/lone/patch", "/dispatches/lone/patch/raw", "/dispatches/lone/statement", "/dispatches/lone/statement.json", "/dispatches/lone/tools?attempt=0",
		"/log/99999999", "/log/x", "/log?since=no", "/log?last=x", "/log?last=99999999", "/log?kind=no", "/schedules/no", "/search?q=%FF", "/search", "/static/no", "/events?after=x", "/no", "//", "/%2e%2e/",
	} {
		if status := tab.status(path, "GET", ""); status >= http.StatusInternalServerError {
			t.Errorf("GET %s has status %d", path, status)
		}
	}
	// The control: a service that does not answer is an error of the page.
	w.must("stop", "--all")
	w.must("down")
	if status := tab.status("/runs/whole/pause", "POST", ""); status != http.StatusServiceUnavailable {
		t.Errorf("without a service: status %d", status)
	}
}

// status sends a request of the page itself and returns the status of the answer; 0: it
// leads elsewhere.
func (t *tab) status(path, method, body string) (status int) {
	t.b.t.Helper()
	options := "{method: " + quoted(method) + ", redirect: 'manual'"
	if method == "POST" {
		options += ", headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: " + quoted(body)
	}
	t.eval(fmt.Sprintf("(() => { const c = new AbortController(); return fetch(location.origin + %s, {...%s}, signal: c.signal}).then((r) => { c.abort(); return r.status; }); })()", quoted(path), options), &status)
	return status
}

// Every form of the page works with the keyboard alone: Tab leads to each field and button.
func TestEveryFormWorksByKeyboard(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	asks := w.submit(planned("asks", shellTask("a", inquiry)))
	held := w.submit(planned("held", shellTask("a", awaitGate("never")), shellTask("b", "true", after("a"))))
	t.Cleanup(func() { w.open("never") })
	alone := map[string]api.DispatchID{}
	for _, id := range []string{"lone", "other"} {
		alone[id] = w.dispatch("sh", "--source", "repo", "--id", id, "--input", `{"do":`+quoted(inquiry)+`}`).ID
	}
	w.begunTask("held", "a")
	w.awaitEvent("asks", event("task.waiting", "a"))
	p := w.servePage("--steer")
	tab := p.signedIn()
	enter := func(button string) {
		t.Helper()
		tab.tabTo(button)
		tab.loads(button, func() { tab.press("Enter") })
	}

	// Forms that filter and search.
	p.at(tab, "/runs")
	tab.tabTo("#queue")
	tab.write("default")
	enter("#filter button")
	if got := tab.value("location.search"); !strings.Contains(got, "queue=default") {
		t.Errorf("the filter leads to %s", got)
	}
	tab.tabTo("#state")
	tab.press("ArrowDown")
	enter("#filter button")
	if got := tab.value("new URL(location).searchParams.get('state')"); got == "" {
		t.Errorf("the filter leads to %s", tab.value("location.search"))
	}
	p.at(tab, "/log")
	tab.tabTo("#f-run")
	tab.write("held")
	tab.loads("the log of the run", func() { tab.press("Enter") })
	wantIn(t, "the log", tab.text("main"), "held")
	tab.tabTo("#q")
	tab.write("held")
	tab.loads("what was found", func() { tab.press("Enter") })
	p.at(tab, "/runs/held/graph")
	tab.tabTo("#task")
	tab.write("b")
	tab.loads("the filtered table", func() { tab.press("Enter") })
	p.at(tab, "/dispatches/lone/log")
	tab.tabTo("#find")
	tab.write("x")
	tab.loads("the lines found", func() { tab.press("Enter") })

	// Forms that steer.
	p.at(tab, "/inbox")
	tab.tabTo("form[action='/runs/" + string(asks) + "/answer'] input[type=radio]")
	tab.press("ArrowDown")
	tab.await("document.querySelector(" + quoted("form[action='/runs/"+string(asks)+"/answer'] input[value='2']") + ").checked")
	tab.tabTo("form[action='/runs/" + string(asks) + "/answer'] button")
	// What was filled in stays when something else happens.
	second := p.open()
	p.at(second, "/inbox")
	later := w.submit(planned("later", shellTask("a", inquiry)))
	second.must("Page.bringToFront", nil, nil)
	second.await("document.querySelector(" + quoted("form[action='/runs/"+string(later)+"/answer']") + ")")
	tab.must("Page.bringToFront", nil, nil)
	enter("form[action='/runs/" + string(asks) + "/answer'] button")
	if got := w.awaitSettled("asks"); got.State != api.RunDone {
		t.Errorf("after the answer the run is %s", got.State)
	}
	answered := task(t, w.run("asks"), "a").DispatchID
	wantIn(t, "the patch", w.must("dispatch", "patch", string(answered)), "+blue")
	for _, step := range []struct{ button, state string }{{"#pause", "paused"}, {"#resume", "running"}} {
		p.at(tab, "/runs/held")
		enter(step.button)
		tab.await("document.querySelector('main dl .state').dataset.state === " + quoted(step.state))
	}
	tab.tabTo("#reason")
	tab.write("enough")
	enter("#cancel")
	if got := w.awaitSettled("held"); got.State != api.RunCancelled || got.CancelReason != "enough" {
		t.Errorf("the run is %s, reason %q", got.State, got.CancelReason)
	}
	w.open("never")
	p.at(tab, "/runs/held")
	enter("#retry")
	next := api.RunID(strings.TrimPrefix(tab.value("location.pathname"), "/runs/"))
	if got := w.awaitSettled(next); got.State != api.RunDone || got.RetryOf != held {
		t.Errorf("the retry %s is %s, of %s", next, got.State, got.RetryOf)
	}
	p.at(tab, "/inbox")
	tab.tabTo("#text-" + string(alone["lone"]))
	tab.write("green")
	enter("form[action='/dispatches/" + string(alone["lone"]) + "/answer'] button")
	p.at(tab, "/dispatches/other")
	tab.tabTo("#reason")
	tab.write("not now")
	enter("#cancel")
	for _, c := range []struct {
		id    string
		state api.Event
	}{{"lone", api.EventFinished}, {"other", api.EventCancelled}} {
		eventually(t, c.id+" ends", func() bool { return w.show(c.id).State == c.state })
	}
	p.quiet(tab)
	enter("#logout")
	if tab.count("input[name=code]") != 1 {
		t.Errorf("after signing out the browser is at %s", tab.value("location.href"))
	}
}
