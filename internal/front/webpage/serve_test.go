package webpage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// fakeService answers calls of the API by method and path, and keeps what it got.
type fakeService struct {
	socket string
	before func(http.ResponseWriter, *http.Request) bool // answers a call itself and returns true; may be nil

	mu      sync.Mutex
	answers map[string]any // by METHOD PATH; guarded by mu
	got     []string       // METHOD PATH?QUERY BODY; guarded by mu
}

func newFakeService(t testing.TB) *fakeService {
	t.Helper()
	s := &fakeService{socket: filepath.Join(t.TempDir(), "s"), answers: map[string]any{}}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

func (s *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.before != nil && s.before(w, r) {
		return
	}
	s.mu.Lock()
	s.got = append(s.got, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body)))
	answer, ok := s.answers[r.Method+" "+r.URL.Path]
	s.mu.Unlock()
	switch v := answer.(type) {
	case string:
		_, _ = io.WriteString(w, v)
		return
	case http.HandlerFunc:
		v(w, r)
		return
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer = api.Error{Code: api.CodeNotFound, Message: "nothing at " + r.URL.Path}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// answer sets what the service answers to METHOD PATH: a value as JSON, or a text as it
// is.
func (s *fakeService) answer(call string, with any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[call] = with
}

// calls returns what the service got whose text contains part, and forgets it.
func (s *fakeService) calls(part string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.got {
		if strings.Contains(c, part) {
			list = append(list, c)
		}
	}
	s.got = nil
	return list
}

// world is a page that is served, with a service of the test behind it.
type world struct {
	t       testing.TB
	service *fakeService
	url     *url.URL
	control string
	cookie  string // of the session that newWorld signed in with
	code    string // that the start printed; used up
	stop    func() error
}

// newWorld serves the page until the test ends, and signs in. change edits its
// configuration.
func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, service: newFakeService(t), control: filepath.Join(t.TempDir(), "control")}
	conn := client.New(client.Config{Socket: w.service.socket, UIDs: []int{os.Getuid()}})
	t.Cleanup(conn.Close)
	at := make(chan Invitation, 1)
	cfg := Config{
		Conn: conn, UID: os.Getuid(), Now: time.Now, Logger: slog.New(slog.DiscardHandler), Address: "127.0.0.1:0", Control: w.control,
		Listening: func(i Invitation) { at <- i },
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, cfg) }()
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case i := <-at:
		var err error
		if w.url, err = url.Parse(i.URL); err != nil {
			t.Fatal(err)
		}
		w.code = i.Code
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	if cfg.UID == os.Getuid() {
		w.cookie = w.signIn(w.code)
	}
	return w
}

// sent is a request over a raw connection. Empty fields are those of a signed-in
// browser that follows a link of the page.
type sent struct {
	method, path, host string
	header             []string // each replaces the default of its name; NAME: alone removes it
	form               url.Values
	anonymous          bool
}

func (w *world) text(s sent) string {
	if s.method == "" {
		s.method = "GET"
	}
	if s.path == "" {
		s.path = "/runs"
	}
	if s.host == "" {
		s.host = w.url.Host
	}
	body := s.form.Encode()
	lines := []string{"Host: " + s.host, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	if !s.anonymous {
		lines = append(lines, "Cookie: "+cookieName+"="+w.cookie)
	}
	if s.method == "POST" {
		lines = append(lines, "Content-Type: application/x-www-form-urlencoded", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	for _, h := range s.header {
		name, value, _ := strings.Cut(h, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+":") })
		if value != "" {
			lines = append(lines, h)
		}
	}
	return s.method + " " + s.path + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\nConnection: close\r\n\r\n" + body
}

// answered is an answer; status 0 means that the connection closed without one.
type answered struct {
	status int
	header http.Header
	body   string
}

func (w *world) raw(text string) answered {
	w.t.Helper()
	c, err := net.Dial("tcp", w.url.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text); err != nil {
		return answered{body: err.Error()}
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return answered{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answered{resp.StatusCode, resp.Header, string(b)}
}

func (w *world) send(s sent) answered {
	w.t.Helper()
	return w.raw(w.text(s))
}

// want fails the test unless the answer has the status and contains the words.
func (w *world) want(name string, s sent, status int, words ...string) answered {
	w.t.Helper()
	got := w.send(s)
	if got.status != status || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(got.body, word) }) {
		w.t.Errorf("%s: %d, want %d with %q: %.2000s", name, got.status, status, words, got.body)
	}
	return got
}

// signIn exchanges a code for the cookie of a session, or "".
func (w *world) signIn(code string) string {
	w.t.Helper()
	got := w.send(sent{method: "POST", path: "/login", form: url.Values{"code": {code}, "next": {"/runs"}}, anonymous: true})
	resp := http.Response{Header: got.header}
	for _, c := range resp.Cookies() {
		if c.Name == cookieName && got.status == http.StatusSeeOther {
			return c.Value
		}
	}
	return ""
}

const runList = "GET /v1/runtime/runs"

func TestThePageIsServedOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "127.0.0.2:0", "example.com:0", "127.0.0.1"} {
		err := Serve(t.Context(), Config{Address: address, Control: filepath.Join(t.TempDir(), "c"), Listening: func(Invitation) { t.Errorf("%s: it listens", address) }})
		if err == nil || !strings.Contains(err.Error(), "--addr") {
			t.Errorf("%s: %v", address, err)
		}
	}
	err := Serve(t.Context(), Config{Address: "localhost:0", lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}, Control: filepath.Join(t.TempDir(), "c")})
	if err == nil || !strings.Contains(err.Error(), "not loopback") {
		t.Errorf("localhost elsewhere: %v", err)
	}
	w := newWorld(t, nil) // the control
	w.service.answer(runList, []api.Run{})
	w.want("loopback", sent{}, 200, "No run matches")
}

func TestACodeIsValidOnceForAMinute(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	w := newWorld(t, func(c *Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	w.service.answer(runList, []api.Run{})
	open := func() string {
		i, err := Open(t.Context(), w.control)
		if err != nil || i.URL != w.url.String() {
			t.Fatal(i, err)
		}
		return i.Code
	}
	if w.cookie == "" || w.signIn(w.code) != "" {
		t.Error("a code is not valid exactly once")
	}
	code := open()
	pass(59 * time.Second)
	if w.signIn(strings.ToLower(strings.ReplaceAll(code, "-", " "))) == "" {
		t.Error("refused within its minute, in lower case")
	}
	code = open()
	pass(61 * time.Second)
	if w.signIn(code) != "" {
		t.Error("accepted after its minute")
	}
	first := open()
	if second := open(); w.signIn(first) != "" || w.signIn(second) == "" {
		t.Error("an earlier code is valid, or the newest one is not")
	}
	code = open()
	for range codeTries {
		w.signIn("0000-0000")
	}
	if w.signIn(code) != "" {
		t.Error("accepted after many wrong ones")
	}
	w.want("signed in", sent{}, 200)
	pass(sessionTime + time.Second)
	w.want("a session that was not used", sent{}, 401, "bailiwick web open")
}

func TestASessionEndsWithTheProcess(t *testing.T) {
	first := newWorld(t, nil)
	second := newWorld(t, nil)
	second.service.answer(runList, []api.Run{})
	second.want("its own", sent{}, 200)
	second.cookie = first.cookie
	second.want("of another process", sent{}, 401)
	if _, err := os.Stat(first.control); err != nil {
		t.Error(err)
	}
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(first.control); err == nil {
		t.Error("the socket that gives codes is left")
	}
	if _, err := Open(t.Context(), first.control); api.CodeOf(err) != api.CodeUnavailable {
		t.Error(err)
	}
}

func TestSigningOutEndsTheSession(t *testing.T) {
	w := newWorld(t, nil)
	w.service.answer(runList, []api.Run{})
	w.want("before", sent{}, 200)
	w.want("sign out", sent{method: "POST", path: "/logout"}, 303)
	w.want("after", sent{}, 401)
}

// Each attack is refused, and succeeds with its guard off.
func TestLocalAttacksAreRefused(t *testing.T) {
	form := url.Values{"code": {"0000-0000"}}
	for _, attack := range []struct {
		name   string
		off    guard
		change func(*Config)
		send   sent
		status int // 0: no answer
		open   int // with the guard off
	}{
		{"DNS rebinding", guardHost, nil, sent{host: "evil.example:80"}, 421, 200},
		{"another port's name", guardHost, nil, sent{host: "127.0.0.1:1"}, 421, 200},
		{"no cookie", guardSession, nil, sent{anonymous: true}, 401, 200},
		{"a guessed cookie", guardSession, nil, sent{header: []string{"Cookie: " + cookieName + "=x"}}, 401, 200},
		{"a form of another port", guardFetch, nil, sent{method: "POST", path: "/logout", header: []string{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:1"}}, 403, 303},
		{"a form of another site", guardFetch, nil, sent{method: "POST", path: "/login", form: form, anonymous: true, header: []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}}, 403, 401},
		{"a form of an older browser", guardFetch, nil, sent{method: "POST", path: "/logout", header: []string{"Sec-Fetch-Site:", "Origin: http://127.0.0.1:1"}}, 403, 303},
		{"a form without an origin", guardFetch, nil, sent{method: "POST", path: "/logout", header: []string{"Sec-Fetch-Site:"}}, 403, 303},
		{"fetch of another port", guardFetch, nil, sent{header: []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: empty"}}, 403, 200},
		{"a frame", guardFetch, nil, sent{header: []string{"Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: iframe"}}, 403, 200},
		{"a script element", guardFetch, nil, sent{path: "/static/style.css", header: []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"}}, 403, 200},
		{"another account, with the cookie", guardPeer, func(c *Config) { c.UID++ }, sent{}, 0, 200},
	} {
		try := func(off guard) int {
			w := newWorld(t, func(c *Config) {
				if c.without = off; attack.change != nil {
					attack.change(c)
				}
			})
			w.service.answer(runList, []api.Run{})
			if attack.change != nil && off != "" {
				w.cookie = w.signIn(w.code)
			}
			return w.send(attack.send).status
		}
		if got := try(""); got != attack.status {
			t.Errorf("%s: %d, want %d", attack.name, got, attack.status)
		}
		if got := try(attack.off); got != attack.open {
			t.Errorf("%s, with the guard %s off: %d, want %d", attack.name, attack.off, got, attack.open)
		}
	}
}

// What the user does is not refused by the guard of the attacks.
func TestLinksOfOtherSitesOpen(t *testing.T) {
	w := newWorld(t, nil)
	w.service.answer(runList, []api.Run{})
	w.want("an address typed", sent{header: []string{"Sec-Fetch-Site: none"}}, 200)
	w.want("a link", sent{header: []string{"Sec-Fetch-Site: cross-site"}}, 200)
	w.want("an older browser", sent{header: []string{"Sec-Fetch-Site:", "Sec-Fetch-Mode:", "Sec-Fetch-Dest:"}}, 200)
	w.want("localhost", sent{host: "localhost:" + w.url.Port()}, 200)
	w.want("a form of an older browser", sent{method: "POST", path: "/logout", header: []string{"Sec-Fetch-Site:", "Origin: " + strings.TrimSuffix(w.url.String(), "/")}}, 303)
}

func TestSmuggledRequestsAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.service.answer(runList, []api.Run{})
	text := w.text(sent{})
	if got := w.raw(text); got.status != 200 {
		t.Fatal(got) // the control
	}
	for _, field := range []string{"Host: " + w.url.Host, "Cookie: " + cookieName + "=x", "Sec-Fetch-Site: none", "Content-Length: 0\r\nContent-Length: 0"} {
		if got := w.raw(strings.Replace(text, "\r\n\r\n", "\r\n"+field+"\r\n\r\n", 1)); got.status != 400 {
			t.Errorf("%q once more: %d", field, got.status)
		}
	}
}

// A wrong next must not lead away from the page.
func TestSigningInLeadsBackToThePageOnly(t *testing.T) {
	for next, want := range map[string]string{
		"/runs/a?x=1": "/runs/a?x=1", "": "/", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/", "javascript:alert(1)": "/",
		"/%2f/evil": "/", "runs": "/", "http:/runs": "/", "/a\r\nb": "/", "///evil.example": "/", "/runs#x": "/runs",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
	w := newWorld(t, nil)
	i, err := Open(t.Context(), w.control)
	if err != nil {
		t.Fatal(err)
	}
	got := w.want("after a code", sent{method: "POST", path: "/login", form: url.Values{"code": {i.Code}, "next": {"//evil.example/"}}, anonymous: true}, 303)
	if got.header.Get("Location") != "/" {
		t.Error(got.header)
	}
	c := got.header.Get("Set-Cookie")
	for _, part := range []string{"__Host-bailiwick=", "Path=/", "HttpOnly", "Secure", "SameSite=Strict"} {
		if !strings.Contains(c, part) {
			t.Errorf("the cookie lacks %s: %s", part, c)
		}
	}
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	check := func(without guard) (lacks int) {
		w := newWorld(t, func(c *Config) { c.without = without })
		w.service.answer(runList, []api.Run{})
		for name, s := range map[string]sent{
			"a page": {}, "no such path": {path: "/nothing"}, "no such run": {path: "/runs/nothing-here"}, "a bad id": {path: "/runs/A"}, "a file": {path: "/static/style.css"},
			"no file": {path: "/static/none"}, "a folder": {path: "/static/"}, "sign-in": {anonymous: true}, "another host": {host: "evil.example"}, "another site": {method: "POST", header: []string{"Sec-Fetch-Site: cross-site"}},
			"a wrong code": {method: "POST", path: "/login"}, "sign-out": {method: "POST", path: "/logout"}, "another method": {method: "PUT"},
		} {
			got := w.send(s)
			for _, h := range []string{
				"Content-Security-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "Permissions-Policy",
			} {
				if got.header.Get(h) == "" {
					if lacks++; without == "" {
						t.Errorf("%s (%d) has no %s", name, got.status, h)
					}
				}
			}
		}
		return lacks
	}
	check("")
	if check(guardHeaders) == 0 {
		t.Error("the check finds no missing header without the guard")
	}
}

// What the service answers is text, wherever it is shown.
func TestHostileContentIsText(t *testing.T) {
	w := newWorld(t, nil)
	const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\u200b\x1b[2J"
	w.service.answer("GET /v1/runtime/runs/bad-run", api.Run{
		RunID: "bad-run", State: api.RunFailed, Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil), CancelReason: hostile, Labels: map[api.Name]string{"a": hostile},
		Tasks: []api.RunTask{{Task: "one", State: api.TaskFailed, Message: hostile}},
	})
	line, err := json.Marshal(api.LogLine{Seq: 1, Text: hostile})
	if err != nil {
		t.Fatal(err)
	}
	w.service.answer("GET /v1/operator/log", string(line)+"\n")
	got := w.want("a run", sent{path: "/runs/bad-run"}, 200, "&lt;script&gt;", "U&#43;202E", "U&#43;200B", "U&#43;001B")
	for _, bad := range []string{"<script>", "<img", "\x1b"} {
		if strings.Contains(got.body, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	w.service.answer("GET /v1/runtime/runs/bad-one", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(rw).Encode(api.Error{Code: api.CodeConflict, Message: hostile, Hint: hostile})
	}))
	w.want("an error", sent{path: "/runs/bad-one"}, 409, "&lt;script&gt;", "U&#43;202E")
}

// What a browser sends reaches the service only as what the page parsed of it.
func TestNothingIsForwarded(t *testing.T) {
	w := newWorld(t, nil)
	w.service.answer(runList, []api.Run{})
	w.service.calls("")
	w.want("a filter", sent{path: "/runs?state=done&injected=1&limit=100000&queue=", header: []string{"Bailiwick-Session: x", "Authorization: Bearer y"}}, 200)
	if got := w.service.calls("/runs"); len(got) != 1 || got[0] != "GET /v1/runtime/runs?limit=50&state=done" {
		t.Errorf("%q", got)
	}
	for _, path := range []string{"/runs/..%2f..%2foperator", "/runs/a%00b", "/runs?state=x", "/dispatches/a..b", "/dispatches/some-id?attempt=-1"} {
		w.want(path, sent{path: path}, 400)
	}
	// A page that follows the log reads its newest entry first.
	if got := slices.DeleteFunc(w.service.calls(""), func(call string) bool { return call == "GET /v1/operator/log?follow=false&last=1" }); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestAFailedServiceIsAnError(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Conn = client.New(client.Config{Socket: filepath.Join(t.TempDir(), "none"), UIDs: []int{os.Getuid()}})
	})
	w.want("no service", sent{}, 503, "bailiwick up")
}
