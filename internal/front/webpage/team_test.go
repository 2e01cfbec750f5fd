package webpage

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

const teamOrigin = "https://team.example.com"

// teamWorld is the page of a team over TLS, with a service of the test behind it that knows
// the sessions ann and bob.
type teamWorld struct {
	t       *testing.T
	service *fakeService
	http    *http.Client
	url     string

	mu   sync.Mutex
	made []string // HANDLE METHOD PATH of each call of the service; guarded by mu
}

func newTeamWorld(t *testing.T, change func(*TeamConfig)) *teamWorld {
	t.Helper()
	w := &teamWorld{t: t, service: newFakeService(t)}
	people := map[string]api.Who{
		"ann": {Principal: "human:ann", Auth: api.AuthSession, Operator: true}, "bob": {Principal: "human:bob", Auth: api.AuthSession},
		"token": {Principal: "human:bob", Auth: api.AuthToken}, "": {Principal: "local:bailiwick-web", Auth: api.AuthAccount},
	}
	w.service.before = func(rw http.ResponseWriter, r *http.Request) bool {
		handle := r.Header.Get(api.SessionHeader)
		w.mu.Lock()
		w.made = append(w.made, strings.TrimSpace(handle+" "+r.Method+" "+r.URL.Path))
		w.mu.Unlock()
		who, ok := people[handle]
		switch {
		case !ok:
			rw.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(rw).Encode(api.Error{Code: api.CodeUnauthenticated, Message: "session: unknown handle"})
		case r.URL.Path == "/v1/runtime/who":
			_ = json.NewEncoder(rw).Encode(who)
		default:
			return false
		}
		return true
	}
	w.service.answer("GET /v1/login", api.LoginMethods{Passkeys: true})
	w.service.answer(runList, []api.Run{})
	conn := client.New(client.Config{Socket: w.service.socket, UIDs: []int{os.Getuid()}})
	t.Cleanup(conn.Close)
	cfg := TeamConfig{Conn: conn, Now: time.Now, Logger: slog.New(slog.DiscardHandler), Setting: websetting.Page{Setting: websetting.Setting{Origin: teamOrigin}}}
	if change != nil {
		change(&cfg)
	}
	s, err := newTeamSite(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	w.http, w.url = server.Client(), server.URL
	w.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

// calls returns the calls that the service got, and forgets them.
func (w *teamWorld) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.made
	w.made = nil
	return made
}

// asked is a request of a browser. Empty fields are those of a signed-in Bob who follows a
// link of the page, or sends a form of it with the token.
type asked struct {
	path    string
	form    url.Values // sends a form; nil: follows a link
	json    string     // sends this, as a script does
	handle  string     // of the session; "-": no cookie
	token   string     // of the form; "-": none
	host    string
	cookies []*http.Cookie
	header  []string // NAME: VALUE
}

func (w *teamWorld) ask(a asked) answered {
	w.t.Helper()
	method, body := "GET", io.Reader(nil)
	handle := a.handle
	if handle == "" {
		handle = "bob"
	}
	if a.token == "" {
		a.token = tokenOf(handle)
	}
	switch {
	case a.json != "":
		method, body = "POST", strings.NewReader(a.json)
	case a.form != nil:
		if method = "POST"; a.token != "-" {
			a.form.Set(tokenField, a.token)
		}
		body = strings.NewReader(a.form.Encode())
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+a.path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.Host = "team.example.com"; a.host != "" {
		r.Host = a.host
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	if a.json != "" {
		r.Header.Set("Content-Type", "application/json")
		if a.token != "-" {
			r.Header.Set(tokenHeader, a.token)
		}
	} else if a.form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if handle != "-" {
		r.AddCookie(&http.Cookie{Name: personCookie, Value: handle})
	}
	for _, c := range a.cookies {
		r.AddCookie(c)
	}
	for _, h := range a.header {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	resp, err := w.http.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(b)}
}

func (w *teamWorld) want(name string, a asked, status int, words ...string) answered {
	w.t.Helper()
	got := w.ask(a)
	if got.status != status || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(got.body, word) }) {
		w.t.Errorf("%s: %d, want %d with %q: %.1500s", name, got.status, status, words, got.body)
	}
	return got
}

// Every call that shows or changes something is made with the session of the person who
// asked; without one the page makes the calls of a login and no other. A handle that is
// unknown, of a token, or the page's own account has no principal.
//
// takeover system, page: until start, read work
//
// proves R-S2
func TestTheTeamsPageHasNoAuthority(t *testing.T) {
	w := newTeamWorld(t, nil)
	login := []string{"GET /v1/login", "POST /v1/login/enrol", "POST /v1/login/oidc", "POST /v1/login/passkey/begin", "POST /v1/login/passkey/finish"}
	for _, handle := range []string{"-", "stranger", "token", "ann", "bob"} {
		signed := handle == "ann" || handle == "bob"
		w.calls()
		for _, path := range []string{"/", "/inbox", "/runs", "/runs/some-run", "/runs/some-run/graph", "/dispatches", "/dispatches/some-d/log", "/dispatches/some-d/patch", "/log", "/log/1", "/events", "/catalog", "/catalog/1", "/who", "/budgets", "/schedules", "/search?q=1", "/sign", "/sign/l-aaaaaaaaaaaa", "/sessions", "/login", "/enrol"} {
			w.ask(asked{path: path, handle: handle})
		}
		for _, path := range []string{"/runs/some-run/cancel", "/runs/some-run/pause", "/dispatches/some-d/cancel", "/sign/votes", "/sign/l-aaaaaaaaaaaa", "/sessions/s-1/end", "/logout"} {
			w.ask(asked{path: path, handle: handle, form: url.Values{"reason": {"x"}}})
		}
		w.ask(asked{path: "/enrol", handle: handle, json: `{"code": "x"}`})
		w.ask(asked{path: "/login/passkey/begin", handle: handle, json: `{}`})
		seen := 0
		for _, call := range w.calls() {
			switch {
			case slices.Contains(login, call): // without a session
			case handle != "-" && call == handle+" GET /v1/runtime/who":
			case signed && strings.HasPrefix(call, handle+" "):
				seen++
			default:
				t.Errorf("%s: the page calls %q", handle, call)
			}
		}
		if signed && seen < 20 { // the control
			t.Errorf("%s: %d calls, the test shows nothing", handle, seen)
		}
	}
}

// Each attack is refused, and succeeds with its guard off.
func TestAttacksOnTheTeamsPageAreRefused(t *testing.T) {
	cancel := func(a asked) asked {
		a.path, a.form = "/runs/some-run/cancel", url.Values{"reason": {"x"}}
		return a
	}
	for _, attack := range []struct {
		name   string
		off    guard
		send   asked
		status int
		open   int // with the guard off
	}{
		{"a form without the token", guardToken, cancel(asked{token: "-"}), 403, 303},
		{"a form with the token of another session", guardToken, cancel(asked{token: tokenOf("ann")}), 403, 303},
		{"a script without the token", guardToken, asked{path: "/sign/l-aaaaaaaaaaaa", json: `{}`, token: "-"}, 403, 409},
		{"a form of another site", guardFetch, cancel(asked{header: []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}}), 403, 303},
		{"a form of a name below", guardFetch, cancel(asked{header: []string{"Sec-Fetch-Site: same-site", "Origin: https://evil.team.example.com"}}), 403, 303},
		{"a form of an older browser without TLS", guardFetch, cancel(asked{header: []string{"Sec-Fetch-Site: ", "Origin: http://team.example.com"}}), 403, 303},
		{"a login that another site begins", guardFetch, asked{path: "/login/passkey/begin", json: `{}`, handle: "-", header: []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}}, 403, 404},
		{"a frame", guardFetch, asked{path: "/runs", header: []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe"}}, 403, 200},
		{"another name", guardHost, asked{path: "/runs", host: "evil.example"}, 421, 200},
		{"the address", guardHost, asked{path: "/runs", host: "127.0.0.1"}, 421, 200},
	} {
		try := func(off guard) int {
			w := newTeamWorld(t, func(c *TeamConfig) { c.without = off })
			w.service.answer("POST /v1/operator/runs/some-run/cancel", api.Run{RunID: "some-run", State: api.RunRunning, Principal: "human:bob", Queue: "q", Plan: api.DigestOf(nil)})
			return w.ask(attack.send).status
		}
		if got := try(""); got != attack.status {
			t.Errorf("%s: %d, want %d", attack.name, got, attack.status)
		}
		if got := try(attack.off); got != attack.open {
			t.Errorf("%s, with the guard %s off: %d, want %d", attack.name, attack.off, got, attack.open)
		}
	}
	w := newTeamWorld(t, nil) // the ordinary cases
	w.service.answer("POST /v1/operator/runs/some-run/cancel", api.Run{RunID: "some-run", State: api.RunRunning, Principal: "human:bob", Queue: "q", Plan: api.DigestOf(nil)})
	w.want("a form", cancel(asked{}), 303)
	w.want("a form of an older browser", cancel(asked{header: []string{"Sec-Fetch-Site: ", "Origin: " + teamOrigin}}), 303)
	got := w.want("a link of another site", asked{path: "/runs", header: []string{"Sec-Fetch-Site: cross-site"}}, 200)
	for _, h := range []string{"Content-Security-Policy", "Strict-Transport-Security", "X-Frame-Options"} {
		if got.header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
}

// Forms are offered for what policy lets a person steer. One that is forged anyway reaches
// the service as that person, whose denial is shown.
func TestASessionSteersWhatItsPersonMay(t *testing.T) {
	w := newTeamWorld(t, nil)
	w.calls()
	w.want("the overview", asked{path: "/"}, 200, "only operators see this")
	for _, call := range w.calls() { // each would be a denial in the log
		if strings.Contains(call, "/v1/operator/") {
			t.Errorf("for a person who is no operator the page calls %s", call)
		}
	}
	for handle, offered := range map[string]bool{"bob": false, "ann": true} {
		if got := w.ask(asked{path: "/runs", handle: handle}); strings.Contains(got.body, `href="/log"`) != offered || !strings.Contains(got.body, `href="/sign"`) || strings.Contains(got.body, `data-live="all"`) != offered {
			t.Errorf("%s: the log is offered %v, want %v", handle, !offered, offered)
		}
	}
	for id, owner := range map[string]api.Principal{"of-bob": "human:bob", "of-carol": "human:carol"} {
		w.service.answer("GET /v1/runtime/runs/"+id, api.Run{RunID: api.RunID(id), State: api.RunRunning, Principal: owner, Queue: "q", Plan: api.DigestOf(nil)})
	}
	for _, c := range []struct {
		handle, run string
		offered     bool
	}{{"bob", "of-bob", true}, {"bob", "of-carol", false}, {"ann", "of-carol", true}} { // Ann is an operator
		got := w.want(c.run, asked{path: "/runs/" + c.run, handle: c.handle}, 200, "Run "+c.run)
		if strings.Contains(got.body, `action="/runs/`+c.run+`/cancel"`) != c.offered {
			t.Errorf("%s and the run %s: offered %v, want %v", c.handle, c.run, !c.offered, c.offered)
		}
		if c.offered != strings.Contains(got.body, `name="csrf" value="`+tokenOf(c.handle)+`"><label for="reason"`) {
			t.Errorf("%s: the form lacks the token of the session", c.run)
		}
	}
	w.service.answer("POST /v1/operator/runs/of-carol/cancel", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(rw).Encode(api.Error{Code: api.CodeDenied, Message: "denied to " + r.Header.Get(api.SessionHeader)})
	}))
	w.want("a forged form", asked{path: "/runs/of-carol/cancel", form: url.Values{}}, 403, "denied to bob")
}

// A session ends at the service when its person signs out, and the browser forgets it.
func TestSigningOutOfATeam(t *testing.T) {
	w := newTeamWorld(t, nil)
	w.service.answer("GET /v1/sessions", []api.SessionInfo{{ID: "s-1", Principal: "human:bob"}, {ID: "s-2", Principal: "human:bob", Current: true}})
	w.service.answer("DELETE /v1/sessions/s-2", struct{}{})
	w.service.answer("DELETE /v1/sessions/s-1", struct{}{})
	w.want("the list", asked{path: "/sessions"}, 200, "s-1", "s-2 (this one)", `action="/sessions/s-1/end"`)
	w.want("another one", asked{path: "/sessions/s-1/end", form: url.Values{}}, 303)
	w.calls()
	got := w.want("sign out", asked{path: "/logout", form: url.Values{}}, 303)
	if made := w.calls(); !slices.Contains(made, "bob DELETE /v1/sessions/s-2") || slices.Contains(made, "bob DELETE /v1/sessions/s-1") {
		t.Errorf("%q", made)
	}
	if c := got.header.Get("Set-Cookie"); !strings.HasPrefix(c, personCookie+"=;") || !strings.Contains(c, "Max-Age=0") {
		t.Errorf("the cookie stays: %s", c)
	}
	w.want("an ended session", asked{path: "/runs", handle: "stranger"}, 401, "your session has ended", "passkey")
	w.want("a form of an ended session", asked{path: "/runs/some-run/cancel", form: url.Values{}, handle: "stranger"}, 401, "your session has ended")
}

// A passkey's answer opens a session whose cookie is of this host alone. What the page tells
// about the passkeys before that is no name.
func TestSigningInWithAPasskey(t *testing.T) {
	w := newTeamWorld(t, nil)
	w.service.answer("POST /v1/login/passkey/begin", api.PasskeyChallenge{ID: "c1", Challenge: []byte("x"), Passkeys: []api.PasskeyInfo{{Key: "passkey:1", Name: "ann's laptop", Credential: []byte("id")}}})
	got := w.want("begin", asked{path: "/login/passkey/begin", json: `{}`, handle: "-"}, 200, `"id":"c1"`, `"credentials":["aWQ="]`)
	if strings.Contains(got.body, "laptop") || strings.Contains(got.body, "passkey:1") {
		t.Errorf("who is not signed in learns of passkeys: %s", got.body)
	}
	if calls := w.service.calls("passkey/begin"); len(calls) != 1 || !strings.Contains(calls[0], teamOrigin) {
		t.Errorf("%q", calls)
	}
	w.service.answer("POST /v1/login/passkey/finish", api.PersonSession{Session: "bob", ID: "s-1", Principal: "human:bob", ExpiresAt: time.Now().Add(time.Hour)})
	finish := `{"id": "c1", "assertion": {"authenticatorData": "eA==", "clientDataJSON": "eA==", "credentialId": "eA==", "signature": "eA=="}}`
	got = w.want("finish", asked{path: "/login/passkey/finish", json: finish, handle: "-"}, 200)
	c := got.header.Get("Set-Cookie")
	for _, part := range []string{personCookie + "=bob", "Path=/", "HttpOnly", "Secure", "SameSite=Strict", "Expires="} {
		if !strings.Contains(c, part) || strings.Contains(c, "Domain") {
			t.Errorf("the cookie lacks %s: %s", part, c)
		}
	}
	w.service.answer("POST /v1/login/passkey/finish", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(rw).Encode(api.Error{Code: api.CodeUnauthenticated, Message: "passkey: the challenge has expired", Hint: "try again"})
	}))
	if got = w.want("refused", asked{path: "/login/passkey/finish", json: finish, handle: "-"}, 401, "has expired", "try again"); got.header.Get("Set-Cookie") != "" {
		t.Error("a refused login sets a cookie")
	}
	w.want("no assertion", asked{path: "/login/passkey/finish", json: `{"id": "c1", "more": 1}`, handle: "-"}, 400)
}

// Logins and enrolments of one address are limited; other addresses and what people do who
// are signed in are not.
func TestAttemptsAreLimited(t *testing.T) {
	now := time.Unix(0, 0)
	l := newAddressLimit(func() time.Time { return now })
	for i := range attemptBurst {
		if !l.allow("192.0.2.1:" + fmt.Sprint(1000+i)) {
			t.Fatalf("attempt %d is refused", i)
		}
	}
	for remote, want := range map[string]bool{"192.0.2.1:1": false, "[::ffff:192.0.2.1]:1": false, "192.0.2.2:1": true, "no address": false} {
		if l.allow(remote) != want {
			t.Errorf("%s: want %v", remote, want)
		}
	}
	for range attemptBurst {
		l.allow("[2001:db8::1]:1")
	}
	if l.allow("[2001:db8::ffff:1]:1") || !l.allow("[2001:db8:0:1::1]:1") {
		t.Error("an address of IPv6 is counted as another than its network, or as the next one")
	}
	if now = now.Add(attemptEvery); !l.allow("192.0.2.1:1") || l.allow("192.0.2.1:1") {
		t.Error("the limit does not renew as it says")
	}
	for i := range maxAddresses {
		l.allow(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if len(l.seen) > maxAddresses {
		t.Errorf("%d addresses are kept", len(l.seen))
	}
	w := newTeamWorld(t, func(c *TeamConfig) { c.Now = func() time.Time { return now } })
	for range attemptBurst {
		w.ask(asked{path: "/enrol", json: `{"code": "guess"}`, handle: "-"})
	}
	w.want("a further guess", asked{path: "/enrol", json: `{"code": "guess"}`, handle: "-"}, 429, "wait a minute")
	w.want("who is signed in", asked{path: "/runs"}, 200)
}

// The page is served over TLS alone, by the files of the configuration.
func TestTheTeamsPageIsServedOverTLS(t *testing.T) {
	for want, set := range map[string]websetting.Setting{
		"web.listen":      {Origin: teamOrigin, Listen: "localhost"},
		"web.certificate": {Origin: teamOrigin, Listen: "127.0.0.1:0"},
	} {
		if err := ServeTeam(t.Context(), TeamConfig{Setting: websetting.Page{Setting: set}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	places := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	signed := httptest.NewTLSServer(nil) // has a certificate
	defer signed.Close()
	server.Listener = &tlsListener{Listener: server.Listener, secure: signed.TLS, places: places}
	server.Start()
	defer server.Close()
	get := func(scheme string) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // G402: a certificate of the test
		resp, err := (&http.Client{Transport: transport}).Get(strings.Replace(server.URL, "http://", scheme, 1))
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	if err := get("http://"); err == nil {
		t.Error("it answers without TLS")
	}
	places <- struct{}{}
	<-places
	for range 3 { // each gives its place back
		if err := get("https://"); err != nil {
			t.Error(err)
		}
		places <- struct{}{} // waits until the connection has given its place back
		<-places
	}
	places <- struct{}{}
	if err := get("https://"); err == nil {
		t.Error("it answers beyond its places")
	}
}
