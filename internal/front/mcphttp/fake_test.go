package mcphttp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// fakeService answers what the HTTP transport asks the service over a unix
// socket. e2e has the real service.
type fakeService struct {
	socket string
	ready  api.HTTPReady
	before func(path string) // called before each answer; may be nil

	mu      sync.Mutex
	tokens  map[string]api.Principal // valid ones; guarded by mu
	handles map[string]string        // token by handle; guarded by mu
	seen    []string                 // requests: path, headers, body; guarded by mu
	refused []string                 // principal and message; guarded by mu
	ceiling string                   // of the last request that had one; guarded by mu
	failing api.Code                 // refuses token exchanges; guarded by mu
}

func goodToken(n int) string { return api.TokenText([32]byte{byte(n), byte(n >> 8)}) }

func newFakeService(t testing.TB) *fakeService {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeService{
		socket: filepath.Join(dir, "s"), ready: api.HTTPReady{Token: true, Audit: true}, handles: map[string]string{},
		tokens: map[string]api.Principal{goodToken(1): "agent:ann", goodToken(2): "agent:ben", goodToken(3): "agent:ann"},
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s} //nolint:gosec // G112: only this test connects
	go srv.Serve(l)                 //nolint:errcheck // ends with the test
	t.Cleanup(func() {
		_ = srv.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.before != nil {
		s.before(r.URL.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprint(r.URL.Path, r.Header, string(body)))
	if c := r.Header.Get(api.CeilingHeader); c != "" {
		s.ceiling = c
	}
	answer := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	fail := func(code api.Code) { answer(api.Table()[code].HTTP, api.Errorf(code, "no")) }
	handle := r.Header.Get(api.SessionHeader)
	who, known := s.tokens[s.handles[handle]]
	switch {
	case handle != "" && !known:
		fail(api.CodeUnauthenticated)
	case r.URL.Path == "/v1/session":
		var req api.SessionRequest
		_ = json.Unmarshal(body, &req)
		who, ok := s.tokens[req.Token]
		switch {
		case ok:
			handle := fmt.Sprintf("h%d", len(s.handles))
			s.handles[handle] = req.Token
			answer(200, api.Session{Handle: handle, Principal: who, ExpiresAt: time.Now().Add(10 * time.Minute)})
		case s.failing != "":
			fail(s.failing)
		default:
			fail(api.CodeUnauthenticated)
		}
	case r.URL.Path == "/v1/runtime/http-ready":
		answer(200, s.ready)
	case r.URL.Path == "/v1/runtime/who" && known:
		answer(200, api.Who{Principal: who})
	case r.URL.Path == "/v1/runtime/refused" && known:
		var req api.Refused
		_ = json.Unmarshal(body, &req)
		s.refused = append(s.refused, string(who)+": "+req.Message)
		answer(200, struct{}{})
	case strings.HasPrefix(r.URL.Path, "/v1/runtime/catalog/") && known:
		answer(200, api.ListingPage{Items: []api.Listing{}})
	default:
		fail(api.CodeNotFound)
	}
}

// with calls f while no request is being answered.
func (s *fakeService) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeService) connect(t testing.TB) *client.RuntimeConn {
	t.Helper()
	conn := client.NewRuntime(client.Config{Socket: s.socket, UIDs: []int{os.Getuid()}})
	t.Cleanup(conn.Close)
	return conn
}

// testServer is a running HTTP server with a fake service behind it.
type testServer struct {
	t       testing.TB
	service *fakeService
	url     *url.URL
	stop    func() error // as SIGTERM does
}

// newTestServer serves until the test ends. change edits its configuration.
func newTestServer(t testing.TB, change func(*Config)) *testServer {
	t.Helper()
	f := &testServer{t: t, service: newFakeService(t)}
	l := defaultLimits()
	l.failureDelay, l.failureBurst = time.Millisecond, 1000
	at := make(chan string, 1)
	cfg := Config{
		Conn: f.service.connect(t), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Address: "127.0.0.1:0", limits: &l, Listening: func(url string) { at <- url },
		selfTest: func(context.Context) error { return nil }, Rate: maxRate,
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, cfg) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case u := <-at:
		var err error
		if f.url, err = url.Parse(u); err != nil {
			t.Fatal(err)
		}
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return f
}

// rawRequest is a request as sent over a raw socket. Empty fields are those of a
// request that succeeds: tools/list of the newest revision.
type rawRequest struct {
	method, path, host, token, body string
	header                          []string // additional lines; each replaces the default of its name
	without                         string   // default headers to omit, separated by commas
}

const (
	newest    = "2026-07-28"
	toolsList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

func (f *testServer) text(r rawRequest) string {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	body := or(r.body, toolsList)
	lines := []string{
		"Host: " + or(r.host, f.url.Host), "Authorization: Bearer " + or(r.token, goodToken(1)), "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: " + newest, "Mcp-Method: tools/list", fmt.Sprintf("Content-Length: %d", len(body)),
	}
	for _, h := range append(strings.Split(r.without, ","), r.header...) {
		name, _, _ := strings.Cut(h, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return name != "" && strings.HasPrefix(l, name+":") })
	}
	return or(r.method, "POST") + " " + or(r.path, "/mcp") + " HTTP/1.1\r\n" + strings.Join(append(lines, r.header...), "\r\n") + "\r\n\r\n" + body
}

type rawAnswer struct {
	status int
	header http.Header
	body   string
}

func (r rawAnswer) String() string { return fmt.Sprintf("%d %v %.300s", r.status, r.header, r.body) }

// dial opens a raw connection.
func (f *testServer) dial() net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.url.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// read reads one answer; status 0 means that the connection closed without one.
func read(r *bufio.Reader, method string) rawAnswer {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return rawAnswer{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return rawAnswer{body: err.Error()}
	}
	return rawAnswer{resp.StatusCode, resp.Header, string(b)}
}

// raw sends text on a new connection and reads one answer.
func (f *testServer) raw(text string) rawAnswer {
	f.t.Helper()
	c := f.dial()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return rawAnswer{body: err.Error()}
	}
	method, _, _ := strings.Cut(text, " ")
	return read(bufio.NewReader(c), method)
}

func (f *testServer) send(r rawRequest) rawAnswer {
	f.t.Helper()
	return f.raw(f.text(r))
}

// want fails the test unless the answer has the status and contains the words.
func (f *testServer) want(name string, r rawRequest, status int, words ...string) rawAnswer {
	f.t.Helper()
	got := f.send(r)
	if got.status != status {
		f.t.Errorf("%s: %s", name, got)
	}
	for _, w := range words {
		if !strings.Contains(fmt.Sprint(got.header, got.body), w) {
			f.t.Errorf("%s: answer lacks %q: %s", name, w, got)
		}
	}
	return got
}

// withSession is a request of a revision that has sessions.
func withSession(version, session, body string, more ...string) rawRequest {
	r := rawRequest{body: body, header: append([]string{"Mcp-Protocol-Version: " + version}, more...), without: "Mcp-Method"}
	if session != "" {
		r.header = append(r.header, "Mcp-Session-Id: "+session)
	}
	return r
}

func initialize(version, more string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","clientInfo":{"name":"t","version":"1"}` + more + `}}`
}

const plainList = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// open opens a session and returns its id.
func (f *testServer) open(token, version, more string) string {
	f.t.Helper()
	r := withSession(version, "", initialize(version, more))
	r.token = token
	got := f.want("initialize", r, 200, `"protocolVersion":"`+version+`"`)
	id := got.header.Get("Mcp-Session-Id")
	if len(id) != 32 {
		f.t.Fatalf("session %q", id)
	}
	return id
}
