package e2e

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// pagePolicy is the policy of the design: no exception of any kind.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// samplePage serves a small page under the page's policy. body is put where content is.
func samplePage(t *testing.T, body string) string {
	t.Helper()
	return sampleWith(t, pagePolicy, body)
}

// looseSamplePage is samplePage without a policy.
func looseSamplePage(t *testing.T, body string) string {
	t.Helper()
	return sampleWith(t, "", body)
}

func sampleWith(t *testing.T, policy, body string) string {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(pattern, kind, content string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			w.Header().Set("Content-Security-Policy", policy)
			fmt.Fprint(w, content)
		})
	}
	answer("/{$}", "text/html", `<!doctype html><html lang="en"><head><title>Sample</title><meta name="viewport" content="width=device-width">
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css"><script type="module" src="/app.js"></script></head><body><main><h1>Sample</h1>
<p id="note">no script</p><form action="/said" method="post"><label>Name <input name="name" id="name"></label> <button id="send">Send</button></form>
<button type="button" id="press">Press</button><p id="pressed">0</p>`+body+`</main></body></html>`)
	answer("/icon.svg", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>`)
	answer("/style.css", "text/css", "body { color: #111; background: #fff } @media (prefers-color-scheme: dark) { body { color: #eee; background: #111 } }\n.wide { width: 500px }")
	answer("/app.js", "text/javascript", `document.querySelector('#note').textContent = 'script';
document.querySelector('#press').addEventListener('click', () => { document.querySelector('#pressed').textContent++; });
addEventListener('keydown', e => { document.title = e.key; });`)
	mux.HandleFunc("POST /said", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Said</title><p id="said">%q</p>`, r.FormValue("name"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// The driver opens, reads, clicks, types, presses keys, changes width, colours and
// script, and makes pictures of a page under the page's policy, on which axe finds
// nothing, and which sends nothing elsewhere.
func TestTheDriverUsesAPage(t *testing.T) {
	t.Parallel()
	b, origin := newBrowser(t), samplePage(t, "")
	tab := b.open()
	tab.scheme("light")
	if status := tab.visit(origin + "/"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	tab.awaitText("#note", "script")
	for range 3 {
		tab.click("#press")
	}
	tab.awaitText("#pressed", "3")
	tab.press("?", "Escape")
	tab.await("document.title === 'Escape'")
	if v := tab.axe(); len(v) > 0 {
		t.Errorf("axe finds %q", v)
	}
	light := tab.value("getComputedStyle(document.body).backgroundColor")
	tab.scheme("dark")
	if dark := tab.value("getComputedStyle(document.body).backgroundColor"); dark == light {
		t.Errorf("both schemes have the background %s", dark)
	}
	tab.size(360, 600)
	if n := tab.wide(); n != 0 {
		t.Errorf("at 360 px the page is %d px too wide", n)
	}
	shot, err := png.Decode(bytes.NewReader(tab.screenshot()))
	if err != nil || shot.Bounds().Dx() != 360 || shot.Bounds().Dy() != 600 {
		t.Errorf("screenshot %v, %v", shot.Bounds(), err)
	}
	tab.fill("#name", "Ann & <b>Bob</b>")
	if status := tab.loads("the answer", func() { tab.click("#send") }); status != http.StatusAccepted {
		t.Errorf("the answer to the form has status %d", status)
	}
	if got := tab.text("#said"); got != `"Ann & Bob"` {
		t.Errorf("the answer shows %s", got) // this answer is not escaped
	}
	if got := tab.errors(); len(got) > 0 {
		t.Errorf("console: %q", got)
	}
	if got := b.elsewhere(origin); len(got) > 0 {
		t.Errorf("sent elsewhere: %q", got)
	}
	if got := tab.sent(); len(got) < 5 {
		t.Errorf("only these requests were seen: %+v", got)
	}

	tab.script(false)
	tab.visit(origin + "/")
	if got := tab.text("#note"); got != "no script" {
		t.Errorf("with scripts disabled the page says %q", got)
	}
}

// Positive controls: a page with a defect of each kind is found.
func TestTheDriverFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	for name, c := range map[string]struct {
		body  string
		found func(tab *tab, origin string) []string
		want  string
	}{
		"a violation of accessibility": {`<img src="/icon.svg" width="9" height="9">`, func(tab *tab, _ string) []string { return tab.axe() }, "image-alt"},
		"colours that are hard to read": {
			`<p><font color="#999999">faint</font></p>`, func(tab *tab, _ string) []string { return tab.axe() }, "color-contrast",
		},
		"colours that are hard to read, by their rules": {
			`<p><font color="#999999">faint</font></p>`, func(tab *tab, _ string) []string { tab.axe(); return tab.axeColours() }, "color-contrast",
		},
		"a page that is too wide": {`<p class="wide">wide</p>`, func(tab *tab, _ string) []string {
			tab.size(360, 600)
			return []string{fmt.Sprint(tab.wide() > 100)}
		}, "true"},
		"an inline script": {`<script>document.title = 'inline'</script>`, func(tab *tab, _ string) []string { return tab.errors() }, "script-src"},
		"an inline style":  {`<p style="color: red">red</p>`, func(tab *tab, _ string) []string { return tab.errors() }, "style-src"},
		"an error of a script": {``, func(tab *tab, _ string) []string {
			tab.eval("queueMicrotask(() => { throw new Error('planted') })", nil)
			return tab.errors()
		}, "planted"},
		"a link to another origin": {
			`<a id="away" href="http://elsewhere.example/x">away</a>`, func(tab *tab, origin string) []string {
				if tab.count("#away") > 0 {
					tab.loads("elsewhere", func() { tab.click("#away") })
				}
				return tab.b.elsewhere(origin)
			}, "http://elsewhere.example/x",
		},
		"a connection of the browser itself": {
			`<link rel="preconnect" href="http://early.example/">`, func(tab *tab, origin string) []string {
				return tab.b.elsewhere(origin)
			}, "a connection",
		},
		"an element from content": {`<b id="planted">x</b>`, func(tab *tab, _ string) []string { return []string{fmt.Sprint(tab.count("#planted"))} }, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			origin := samplePage(t, c.body)
			tab := b.open()
			tab.scheme("light")
			// A busy browser skips what a page only hints at, so it gets the page several times.
			eventually(t, "the defect is found: "+c.want, func() bool {
				tab.visit(origin + "/")
				tab.awaitText("#note", "script")
				return strings.Contains(strings.Join(c.found(tab, origin), "\n"), c.want)
			})
		})
	}
}

// A virtual authenticator makes a credential and an assertion on a secure origin.
func TestTheDriverHasAnAuthenticator(t *testing.T) {
	t.Parallel()
	b, origin := newBrowser(t), samplePage(t, "")
	tab := b.open()
	tab.authenticator(nil)
	tab.visit(strings.Replace(origin, "127.0.0.1", "sign.bailiwick.localhost", 1) + "/")
	if got := tab.value("window.isSecureContext"); got != "true" {
		t.Fatalf("isSecureContext is %s", got)
	}
	var flags int
	tab.eval(`(async () => {
		const bytes = n => crypto.getRandomValues(new Uint8Array(n));
		const made = await navigator.credentials.create({publicKey: {challenge: bytes(32), rp: {id: 'sign.bailiwick.localhost', name: 'test'},
			user: {id: bytes(16), name: 'ann', displayName: 'Ann'}, pubKeyCredParams: [{type: 'public-key', alg: -7}], authenticatorSelection: {userVerification: 'required'}}});
		const got = await navigator.credentials.get({publicKey: {challenge: bytes(32), rpId: 'sign.bailiwick.localhost', userVerification: 'required',
			allowCredentials: [{type: 'public-key', id: made.rawId}]}});
		return new Uint8Array(got.response.authenticatorData)[32];
	})()`, &flags)
	if flags&5 != 5 { // user present, user verified
		t.Errorf("flags of the assertion: %#x", flags)
	}
}
