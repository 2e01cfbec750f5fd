package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// stateOf is an expression: the state that a run's page shows of a task.
func stateOf(task string) string {
	return "document.querySelector(" + quoted("tr[data-task="+task+"] .state") + ")?.dataset.state"
}

// followed returns a world whose run has begun its first task. The tasks first and second
// wait for the gates one and two.
func followed(t *testing.T) (*world, api.RunID) {
	t.Helper()
	w := orchestrated(t, 0)
	id := w.submit(planned("followed", shellTask("first", awaitGate("one")), shellTask("second", awaitGate("two"), after("first"))))
	t.Cleanup(func() { w.try("stop", "--all") })
	w.begunTask(id, "first")
	return w, id
}

// A run is followed live to its end, in the tab that holds the stream and in one that
// gets the news from it. Neither is loaded again.
func TestABrowserFollowsARun(t *testing.T) {
	t.Parallel()
	w, id := followed(t)
	p := w.servePage()
	tabs := []*tab{p.signedIn(), p.open()}
	for _, tab := range tabs {
		p.at(tab, "/runs/"+string(id))
		tab.await(stateOf("first") + " === 'running'")
		tab.eval("window.sameDocument = true", nil)
	}
	wait := func(tab *tab, task, state string) {
		t.Helper()
		tab.must("Page.bringToFront", nil, nil) // a hidden page is not kept current
		tab.await(stateOf(task) + " === " + quoted(state))
	}
	w.open("one")
	for _, tab := range tabs {
		wait(tab, "first", "done")
		wait(tab, "second", "running")
	}
	w.open("two")
	w.awaitSettled(id)
	for _, tab := range tabs {
		wait(tab, "second", "done")
		tab.await("document.querySelector('main dl .state').dataset.state === 'done'")
		if tab.value("window.sameDocument") != "true" {
			t.Error("the page was loaded again")
		}
		p.quiet(tab)
	}
}

// A page is read once, also by its script, while no entry concerns it. After an entry that
// does it is read again: the control.
func TestAPageIsReadOnce(t *testing.T) {
	t.Parallel()
	w, id := followed(t)
	p := w.servePage()
	tab := p.signedIn()
	path := "/runs/" + string(id)
	reads := func() (n int) {
		tab.b.note(func() {
			for _, r := range tab.requests {
				if r.URL == p.origin+path {
					n++
				}
			}
		})
		return n
	}
	p.at(tab, path)
	tab.awaitEvent("the stream", func() bool {
		return slices.ContainsFunc(tab.requests, func(r tabRequest) bool { return r.Type == "EventSource" && r.Status == http.StatusOK })
	})
	w.must("queue", "pause", "default") // an entry that does not concern the run
	w.must("queue", "resume", "default")
	if n := reads(); n != 1 {
		t.Errorf("the page was read %d times", n)
	}
	w.open("one")
	tab.await(stateOf("second") + " === 'running'")
	if n := reads(); n < 2 {
		t.Errorf("after its first task the page was read %d times", n)
	}
}

// While the service is away, an open page says so; afterwards it shows what happened
// meanwhile, and says nothing.
func TestAnOpenPageSaysWhenItIsOutOfDate(t *testing.T) {
	t.Parallel()
	w, id := followed(t)
	p := w.servePage()
	tabs := []*tab{p.signedIn(), p.open()}
	const note = "document.getElementById('stale').textContent"
	for _, tab := range tabs {
		tab.must("Emulation.setFocusEmulationEnabled", members{"enabled": true}, nil) // visible at the same time
		p.at(tab, "/runs/"+string(id))
		tab.await(stateOf("first") + " === 'running'")
		if got := tab.value(note); got != "" { // the control
			t.Errorf("the page says %q", got)
		}
	}
	w.must("down")
	for _, tab := range tabs {
		tab.await(note + ".includes('may be out of date')")
	}
	w.open("one")
	w.upRuns()
	for _, tab := range tabs {
		tab.await(note + " === '' && " + stateOf("second") + " === 'running'")
	}
	w.open("two")
	w.awaitSettled(id)
}

// A window that loads while another one has the stream misses no entry.
func TestASecondWindowMissesNothing(t *testing.T) {
	t.Parallel()
	w, id := followed(t)
	p := w.servePage()
	first, second := p.signedIn(), p.open()
	for _, tab := range []*tab{first, second} {
		tab.must("Emulation.setFocusEmulationEnabled", members{"enabled": true}, nil) // visible at the same time
	}
	p.at(first, "/runs/"+string(id))
	first.awaitEvent("the stream", func() bool {
		return slices.ContainsFunc(first.requests, func(r tabRequest) bool { return r.Type == "EventSource" && r.Status == http.StatusOK })
	})
	release := second.hold("*/static/live.js")
	second.must("Page.navigate", members{"url": p.origin + "/runs/" + string(id)}, nil)
	second.awaitEvent("its script", func() bool { return len(second.held) > 0 })
	second.await(stateOf("first") + " === 'running'") // the control
	w.open("one")
	first.await(stateOf("second") + " === 'running'")
	release()
	second.await(stateOf("second") + " === 'running'")
	w.open("two")
	w.awaitSettled(id)
	second.await(stateOf("second") + " === 'done'")
}

// With --steer a person answers a question on the page, with the same entry as the
// command's, and cancels, pauses, resumes and retries a run. Without --steer the page has
// no form for it, and its paths do not exist.
func TestABrowserAnswersAQuestion(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	byPage := w.submit(planned("by-page", shellTask("a", inquiry)))
	byCommand := w.submit(planned("by-command", shellTask("a", inquiry)))
	asked := w.awaitEvent(byPage, event("task.waiting", "a"))
	w.awaitEvent(byCommand, event("task.waiting", "a"))

	t.Run("read only", func(t *testing.T) {
		w := w.in(t)
		p := w.servePage()
		tab := p.signedIn()
		for _, path := range []string{"/inbox", "/runs/" + string(byPage), "/dispatches/" + string(asked.DispatchID)} {
			p.at(tab, path)
			if n := tab.count("main form[method=post]"); n > 0 {
				t.Errorf("%s has %d forms without --steer", path, n)
			}
		}
		var status int
		tab.eval("fetch('/runs/"+string(byPage)+"/answer', {method: 'POST', body: new URLSearchParams({task: 'a', text: 'x'})}).then(r => r.status)", &status)
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("an answer without --steer has status %d", status)
		}
	})

	p := w.servePage("--steer")
	tab := p.signedIn()
	p.at(tab, "/inbox")
	form := "form[action='/runs/" + string(byPage) + "/answer']"
	tab.click(form + " input[type=radio][value='2']")
	tab.loads("the answered run", func() { tab.click(form + " button") })
	w.must("run", "answer", string(byCommand), "--task", "a", "--option", "2")
	if got := w.awaitSettled(byPage); got.State != api.RunDone {
		t.Errorf("after the answer on the page the run is %s", got.State)
	}
	w.awaitSettled(byCommand)
	same := func(run api.RunID) string {
		for line := range strings.Lines(w.must("audit", "list", "--run", string(run))) {
			if strings.Contains(line, "answered") {
				_, words, _ := strings.Cut(line, "answered")
				words, _, _ = strings.Cut(words, " [#") // the number of the entry
				return strings.Replace(words, string(run), "RUN", 1)
			}
		}
		t.Errorf("no entry of %s has the answer", run)
		return ""
	}
	if a, b := same(byPage), same(byCommand); a != b {
		t.Errorf("the entries differ: by the page %q, by the command %q", a, b)
	}

	run := w.submit(planned("steered", shellTask("a", awaitGate("never")), shellTask("b", "true", after("a"))))
	w.begunTask(run, "a")
	p.at(tab, "/runs/"+string(run))
	tab.loads("paused", func() { tab.click("#pause") })
	tab.await("document.querySelector('main dl .state').dataset.state === 'paused'")
	tab.loads("resumed", func() { tab.click("#resume") })
	tab.await("document.querySelector('main dl .state').dataset.state !== 'paused'")
	tab.fill("#reason", "enough <b>")
	tab.loads("cancelled", func() { tab.click("#cancel") })
	if got := w.awaitSettled(run); got.State != api.RunCancelled || got.CancelReason != "enough <b>" {
		t.Errorf("the run is %s, reason %q", got.State, got.CancelReason)
	}
	w.open("never")
	p.at(tab, "/runs/"+string(run))
	// A double click retries once.
	tab.loads("retried", func() {
		tab.eval("(() => { const form = document.querySelector('#retry').form; const send = HTMLFormElement.prototype.requestSubmit; send.call(form); send.call(form) })()", nil)
	})
	next := strings.TrimPrefix(tab.value("location.pathname"), "/runs/")
	if got := w.awaitSettled(api.RunID(next)); got.State != api.RunDone || got.RetryOf != run {
		t.Errorf("the retry %s is %s, of %s", next, got.State, got.RetryOf)
	}
	if n := len(w.entries("--kind", "run.submitted")); n != 4 {
		t.Errorf("%d runs were submitted, want 3 and one retry", n)
	}
	p.quiet(tab)
}
