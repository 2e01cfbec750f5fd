package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// tab is a page of a browser. Each has its own session.
type tab struct {
	b       *browser
	session string

	// Guarded by b.mu.
	requests []tabRequest
	console  []string // errors: uncaught exceptions, console.error, what the policy refused
	loaded   int      // documents that have loaded
	dialogs  []string // messages of alert, confirm and the like, which are dismissed
	held     []string // ids of requests that hold keeps
}

// tabRequest is a request that a page made, answered or not.
type tabRequest struct {
	ID     string
	Method string
	URL    string
	Type   string // Document, Stylesheet, Script, Fetch, EventSource, …
	Status int    // of the answer; 0: none
}

// open opens an empty tab.
func (b *browser) open() *tab {
	b.t.Helper()
	return b.openIn(members{})
}

// openApart opens an empty tab in a context of its own, which shares no cookie, storage or
// authenticator with others, like a browser of another device.
func (b *browser) openApart() *tab {
	b.t.Helper()
	var apart struct{ BrowserContextID string }
	b.must("", "Target.createBrowserContext", members{}, &apart)
	return b.openIn(members{"browserContextId": apart.BrowserContextID})
}

func (b *browser) openIn(context members) *tab {
	b.t.Helper()
	params := members{"url": "about:blank"}
	maps.Copy(params, context)
	var target struct{ TargetID string }
	b.must("", "Target.createTarget", params, &target)
	var s struct{ SessionID string }
	b.must("", "Target.attachToTarget", members{"targetId": target.TargetID, "flatten": true}, &s)
	t := &tab{b: b, session: s.SessionID}
	b.note(func() { b.tabs[t.session] = t })
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "DOM", "Accessibility"} {
		t.must(domain+".enable", nil, nil)
	}
	t.size(1000, 750)
	return t
}

// take notes an event. The caller holds b.mu.
func (t *tab) take(m devtools) {
	switch m.Method {
	case "Network.requestWillBeSent":
		var e struct {
			RequestID string
			Type      string
			Request   struct{ Method, URL string }
		}
		if json.Unmarshal(m.Params, &e) == nil && !strings.HasPrefix(e.Request.URL, "data:") {
			t.requests = append(t.requests, tabRequest{ID: e.RequestID, Method: e.Request.Method, URL: e.Request.URL, Type: e.Type})
		}
	case "Network.responseReceived":
		var e struct {
			RequestID string
			Response  struct{ Status int }
		}
		if json.Unmarshal(m.Params, &e) == nil {
			for i := range t.requests {
				if t.requests[i].ID == e.RequestID {
					t.requests[i].Status = e.Response.Status
				}
			}
		}
	case "Fetch.requestPaused":
		var e struct{ RequestID string }
		if json.Unmarshal(m.Params, &e) == nil {
			t.held = append(t.held, e.RequestID)
		}
	case "Page.loadEventFired":
		t.loaded++
	case "Page.javascriptDialogOpening":
		var e struct{ Message string }
		_ = json.Unmarshal(m.Params, &e) // the zero value has no text
		t.dialogs = append(t.dialogs, e.Message)
		go func() { _, _ = t.b.call(t.session, "Page.handleJavaScriptDialog", members{"accept": false}) }()
	case "Runtime.exceptionThrown":
		var e struct {
			ExceptionDetails struct {
				Text      string
				Exception struct{ Description string }
			}
		}
		_ = json.Unmarshal(m.Params, &e) // likewise
		t.console = append(t.console, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		var e struct {
			Type string
			Args []struct{ Value, Description any }
		}
		if json.Unmarshal(m.Params, &e) == nil && (e.Type == "error" || e.Type == "assert") {
			t.console = append(t.console, fmt.Sprint(e.Args))
		}
	case "Log.entryAdded":
		var e struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(m.Params, &e) == nil && e.Entry.Level == "error" {
			t.console = append(t.console, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// must calls a method of the tab.
func (t *tab) must(method string, params, result any) {
	t.b.t.Helper()
	t.b.must(t.session, method, params, result)
}

// size sets the viewport, in CSS pixels.
func (t *tab) size(width, height int) {
	t.b.t.Helper()
	t.must("Emulation.setDeviceMetricsOverride", members{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// scheme sets the preferred colours: light or dark.
func (t *tab) scheme(name string) {
	t.b.t.Helper()
	t.must("Emulation.setEmulatedMedia", members{"features": []members{{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// script allows or forbids the scripts of the pages that are opened from now on.
func (t *tab) script(on bool) {
	t.b.t.Helper()
	t.must("Emulation.setScriptExecutionDisabled", members{"value": !on}, nil)
}

// hold keeps requests whose URL matches a pattern until the function that it returns is
// called, which waits for one.
func (t *tab) hold(pattern string) (release func()) {
	t.b.t.Helper()
	t.must("Fetch.enable", members{"patterns": []members{{"urlPattern": pattern}}}, nil)
	return func() {
		t.b.t.Helper()
		t.awaitEvent("request "+pattern, func() bool { return len(t.held) > 0 })
		t.must("Fetch.disable", nil, nil) // lets all continue
	}
}

// downloads is instead of a status: the answer is a file to save, which is not saved.
const downloads = -1

// visit opens a page and waits until it has loaded. It returns the status of the answer,
// or downloads.
func (t *tab) visit(url string) int {
	t.b.t.Helper()
	t.b.mu.Lock()
	before := t.loaded
	t.b.mu.Unlock()
	var nav struct{ ErrorText string }
	t.must("Page.navigate", members{"url": url}, &nav)
	switch nav.ErrorText {
	case "":
		return t.awaitLoad(url, before)
	case "net::ERR_ABORTED":
		return downloads
	}
	t.b.t.Fatalf("open %s: %s", url, nav.ErrorText)
	return 0
}

// loads does what opens another page, and waits until it has loaded. It returns the
// status of the last document.
func (t *tab) loads(what string, do func()) int {
	t.b.t.Helper()
	t.b.mu.Lock()
	before := t.loaded
	t.b.mu.Unlock()
	do()
	return t.awaitLoad(what, before)
}

// awaitLoad waits until more documents have loaded than before.
func (t *tab) awaitLoad(what string, before int) int {
	t.b.t.Helper()
	t.awaitEvent("load "+what, func() bool { return t.loaded > before })
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	for _, r := range slices.Backward(t.requests) {
		if r.Type == "Document" {
			return r.Status
		}
	}
	return 0
}

// awaitEvent waits until a condition over the events of the tab holds; it is called with
// b.mu held.
func (t *tab) awaitEvent(what string, holds func() bool) {
	t.b.t.Helper()
	deadline := time.After(patience)
	for {
		t.b.mu.Lock()
		ok, gone, change := holds(), t.b.gone, t.b.change
		t.b.mu.Unlock()
		if ok {
			return
		}
		if gone {
			t.b.t.Fatalf("%s: Chromium has exited: %s", what, t.b.errs.String())
		}
		select {
		case <-change:
		case <-deadline:
			t.b.t.Fatalf("after %v not yet: %s", patience, what)
		}
	}
}

// eval evaluates an expression in the page, awaits a promise, and decodes the value into
// v unless that is nil.
func (t *tab) eval(expression string, v any) {
	t.b.t.Helper()
	if err := t.tryEval(expression, v); err != nil {
		t.b.t.Fatal(err)
	}
}

func (t *tab) tryEval(expression string, v any) error {
	raw, err := t.b.call(t.session, "Runtime.evaluate", members{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err != nil {
		return err
	}
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if e := r.ExceptionDetails; e != nil {
		return fmt.Errorf("%s %s in %.300s", e.Text, e.Exception.Description, expression)
	}
	if v == nil || r.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(r.Result.Value, v)
}

// value evaluates an expression to text.
func (t *tab) value(expression string) (s string) {
	t.b.t.Helper()
	t.eval("String("+expression+")", &s)
	return s
}

// await waits until an expression is true in the page. A page that is just being
// replaced answers nothing; the next one is asked.
func (t *tab) await(expression string) {
	t.b.t.Helper()
	for late := range polling(patience) {
		var ok bool
		if err := t.tryEval("Boolean("+expression+")", &ok); err == nil && ok {
			return
		}
		if late {
			t.b.t.Fatalf("after %v not true: %s\nat %s:\n%s\nconsole: %q", patience, expression, t.value("location.href"), t.text("body"), t.errors())
		}
	}
}

// quoted returns text as a literal of JavaScript.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string always encodes
	return string(b)
}

// text returns what a reader sees of the first element that matches a selector.
func (t *tab) text(selector string) string {
	t.b.t.Helper()
	return t.value("document.querySelector(" + quoted(selector) + ")?.innerText ?? ''")
}

// awaitText waits until an element shows a text.
func (t *tab) awaitText(selector, text string) {
	t.b.t.Helper()
	t.await("document.querySelector(" + quoted(selector) + ")?.innerText.includes(" + quoted(text) + ")")
}

// count returns how many elements match a selector.
func (t *tab) count(selector string) (n int) {
	t.b.t.Helper()
	t.eval("document.querySelectorAll("+quoted(selector)+").length", &n)
	return n
}

// click clicks into the middle of the first visible element that matches, as a mouse
// does: what lies above it gets the click.
func (t *tab) click(selector string) {
	t.b.t.Helper()
	find := "[...document.querySelectorAll(" + quoted(selector) + ")].find(e => e.checkVisibility() && e.getClientRects().length)"
	t.await(find)
	var at struct{ X, Y float64 }
	t.eval("(() => { const e = "+find+"; e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"+
		"const r = e.getClientRects()[0]; return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()", &at)
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		t.must("Input.dispatchMouseEvent", members{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// wheel turns the wheel of a mouse over an element, down by some pixels.
func (t *tab) wheel(selector string, pixels float64) {
	t.b.t.Helper()
	var at struct{ X, Y float64 }
	t.eval("(() => { const e = document.querySelector("+quoted(selector)+"); e.scrollIntoView({block: 'center', behavior: 'instant'});"+
		"const r = e.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()", &at)
	t.must("Input.dispatchMouseEvent", members{"type": "mouseWheel", "x": at.X, "y": at.Y, "deltaX": 0, "deltaY": pixels}, nil)
}

// fill clicks into a field and types text.
func (t *tab) fill(selector, text string) {
	t.b.t.Helper()
	t.click(selector)
	t.eval("document.activeElement.select?.()", nil)
	t.must("Input.insertText", members{"text": text}, nil)
}

// press presses keys, one after the other: characters, or the names Tab, Enter, Escape,
// ArrowDown, ArrowUp, ArrowRight, ArrowLeft.
func (t *tab) press(keys ...string) {
	t.b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	for _, key := range keys {
		down := members{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		switch {
		case key == "Enter":
			down["text"] = "\r"
		case codes[key] == 0:
			down["text"] = key
			delete(down, "code")
		}
		t.must("Input.dispatchKeyEvent", down, nil)
		t.must("Input.dispatchKeyEvent", members{"type": "keyUp", "key": key, "windowsVirtualKeyCode": codes[key]}, nil)
	}
}

// errors lists the errors of the console so far.
func (t *tab) errors() []string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return slices.Clone(t.console)
}

// sent lists the requests of the tab so far.
func (t *tab) sent() []tabRequest {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return slices.Clone(t.requests)
}

// screenshot returns the visible part of the page as PNG.
func (t *tab) screenshot() []byte {
	t.b.t.Helper()
	var shot struct{ Data string }
	t.must("Page.captureScreenshot", members{"format": "png", "optimizeForSpeed": false}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	must(t.b.t, err)
	return png
}

// authenticator adds a virtual authenticator with a resident key store and a user who is
// verified, and returns its id. options override its properties.
func (t *tab) authenticator(options members) string {
	t.b.t.Helper()
	o := members{
		"protocol": "ctap2", "ctap2Version": "ctap2_1", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
		"isUserVerified": true, "automaticPresenceSimulation": true,
	}
	maps.Copy(o, options)
	t.must("WebAuthn.enable", members{"enableUI": false}, nil)
	var added struct{ AuthenticatorID string }
	t.must("WebAuthn.addVirtualAuthenticator", members{"options": o}, &added)
	return added.AuthenticatorID
}
