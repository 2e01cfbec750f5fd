package e2e

import (
	"slices"
	"strings"
	"testing"
)

// pageKinds is every kind of page that links lead to.
func pageKinds() []string {
	return []string{
		"/", "/inbox", "/runs", "/runs/ID", "/runs/ID/graph", "/dispatches", "/dispatches/ID", "/dispatches/ID/log", "/dispatches/ID/patch", "/dispatches/ID/outputs", "/dispatches/ID/tools", "/dispatches/ID/network", "/dispatches/ID/statement",
		"/log", "/log/ID", "/decisions/ID", "/catalog", "/catalog/ID", "/who", "/budgets", "/schedules",
	}
}

// wantKinds fails the test if the crawl missed a kind of page.
func wantKinds(t testing.TB, seen []string) {
	t.Helper()
	for _, k := range pageKinds() {
		if !slices.Contains(seen, k) {
			t.Errorf("no link leads to a page of the kind %s; seen: %q", k, seen)
		}
	}
}

// A person reads every page in a real browser, from a service with real runs: no rule of
// accessibility is violated at 1000 pixels, and no page is wider than 360; no error is on
// the console; nothing is sent elsewhere. Hostile text of agents, tools and callers is on the
// pages, and is text there: it makes no element, no request and no dialog, and hides or
// reorders nothing. Without scripts every page reads. What the forms that steer add is read
// dark and at 360 pixels, by TestABrowserReadsEveryPageThatSteers.
func TestABrowserReadsEveryPage(t *testing.T) {
	t.Parallel()
	w := newPeopledWorld(t)
	p := w.servePage()
	tab := p.signedIn()
	shown := map[string]bool{}
	wantKinds(t, p.crawl(tab, func(path string) {
		tab.size(1000, 750)
		for _, v := range tab.axe() {
			t.Errorf("%s: %s", path, v)
		}
		tab.size(360, 640)
		if n := tab.wide(); n > 0 {
			t.Errorf("%s is %d px wider than 360 px", path, n)
		}
		for _, found := range tab.planted() {
			t.Errorf("%s: %s", path, found)
		}
		if strings.Contains(tab.value("document.documentElement.textContent"), "data-planted") {
			shown[path] = true
		}
	}, w.starts()...))
	for _, path := range []string{"/runs/" + string(w.done), "/dispatches/" + string(w.dispatchOf("asks", "a"))} {
		if !shown[path] {
			t.Errorf("%s does not show the hostile text: the test shows nothing; seen on %v", path, shown)
		}
	}
	p.quiet(tab)
	for _, path := range []string{"/runs/" + plantedPath, "/dispatches/" + plantedPath, "/runs?state=" + plantedPath, "/runs?principal=" + plantedPath, "/search?q=" + plantedPath, "/log?kind=" + plantedPath, "/log/" + plantedPath, "/" + plantedPath} {
		tab.visit(p.origin + path)
		for _, found := range tab.planted() {
			t.Errorf("%s: %s", path, found)
		}
	}
	if got := p.elsewhere(p.origin); len(got) > 0 {
		t.Errorf("sent elsewhere: %q", got)
	}
	if len(tab.dialogs) > 0 {
		t.Errorf("dialogs: %q", tab.dialogs)
	}
	w.readsWithoutScripts(p)
}

// readsWithoutScripts reads every page in a tab that runs no scripts.
func (w *peopledWorld) readsWithoutScripts(p *page) {
	t := p.t
	t.Helper()
	tab := p.openApart()
	tab.script(false)
	tab.visit(p.origin + "/")
	tab.fill("input[name=code]", strings.TrimSpace(w.must("web", "open", "-o", "name")))
	tab.loads("the first page", func() { tab.press("Enter") })
	tab.forget()
	wantKinds(t, p.crawl(tab, func(path string) {
		if text := tab.text("main"); tab.count("main h1") != 1 || len(text) < 20 {
			t.Errorf("%s has no text without scripts: %q", path, text)
		}
	}, w.starts()...))
	for path, words := range map[string][]string{
		"/runs":                   {"whole", "broken", "asks", "under-way"},
		"/runs/" + string(w.done): {"first", "left", "right", "last", "done"},
		"/dispatches/" + string(w.dispatchOf("whole", "first")): {"quality", "finished"},
	} {
		p.at(tab, path)
		wantIn(t, path, tab.text("main"), words...)
	}
	p.quiet(tab)
}

// planted finds what content has made in a page: elements, attributes that run, links
// that run, and characters that hide or reorder text.
func (t *tab) planted() (found []string) {
	t.b.t.Helper()
	t.eval(`(() => {
		const found = [...document.querySelectorAll('[data-planted], script:not([src]), iframe, object, embed, base, meta[http-equiv], link[rel=preconnect], [onerror], [onload], [onclick], [srcdoc]')].map(e => e.outerHTML.slice(0, 200));
		for (const e of document.querySelectorAll('[href], [src], [action], [formaction]')) {
			for (const name of ['href', 'src', 'action', 'formaction']) {
				const url = e.getAttribute(name);
				if (url !== null && new URL(url, location).origin !== location.origin) found.push(e.outerHTML.slice(0, 200));
			}
		}
		const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
		const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/;
		for (let n = walk.currentNode; n; n = walk.nextNode()) {
			const texts = n.nodeType === Node.TEXT_NODE ? [n.data] : [...n.attributes].map(a => a.value);
			for (const text of texts) if (bad.test(text)) found.push('characters: ' + JSON.stringify(text.slice(Math.max(0, text.search(bad) - 40)).slice(0, 100)));
		}
		return found;
	})()`, &found)
	return found
}

// plantedPath is plantedText in a URL.
const plantedPath = "%22%3E%3Cb%20data-planted=1%3Ex%3C%2Fb%3E%3Cimg%20src=%22http:%2F%2Fplanted.example%2Fi%22%20onerror=%22alert(1)%22%3E%E2%80%AEevil%1B%5B31m"

// Positive control: on a page that forgets to escape, the same checks find the elements,
// the request and the characters, though its policy is the strict one; without that
// policy the content also runs.
func TestUnescapedContentIsFound(t *testing.T) {
	t.Parallel()
	controls := "\u202eevil \x1b[31m"
	b := newBrowser(t)
	tab := b.open()
	origin := samplePage(t, plantedText+controls)
	tab.visit(origin + "/")
	found := strings.Join(tab.planted(), "\n")
	wantIn(t, "what is found", found, "<b data-planted", "onerror", "onload", "<iframe", "preconnect", `characters: "`)
	eventually(t, "the preconnection arrives", func() bool { return len(b.elsewhere(origin)) > 0 })
	loose := looseSamplePage(t, plantedText)
	tab.visit(loose + "/")
	eventually(t, "the handler runs", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(tab.dialogs) > 0
	})
	wantIn(t, "what is sent", strings.Join(b.elsewhere(origin, loose), "\n"), "http://planted.example/i")
}
