package mcpserve

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

// standIn is a service at the other end of a unix socket, as far as the HTTP
// transport speaks to it. e2e has the real one.
type standIn struct {
	socket string
	ready  api.HTTPReady
	after  func(path string) // called before each answer

	mu      sync.Mutex
	tokens  map[string]api.Principal // good ones; guarded by mu
	handles map[string]string        // token by handle; guarded by mu
	seen    []string                 // requests: path, headers, body; guarded by mu
	refused []string                 // principal and message; guarded by mu
	ceiling string                   // of the last request that had one; guarded by mu
	failing api.Code                 // what an exchange is refused with; guarded by mu
}

func goodToken(n int) string { return api.TokenText([32]byte{byte(n), byte(n >> 8)}) }

func newStandIn(t testing.TB) *standIn {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	s := &standIn{
		socket: filepath.Join(dir, "s"), ready: api.HTTPReady{Token: true, Audit: true}, handles: map[string]string{},
		tokens: map[string]api.Principal{goodToken(1): "agent:ann", goodToken(2): "agent:ben", goodToken(3): "agent:ann"},
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s} //nolint:gosec // G112: only this test calls
	go srv.Serve(l)                 //nolint:errcheck // ends with the test
	t.Cleanup(func() {
		_ = srv.Close()
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if s.after != nil {
		s.after(r.URL.Path)
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

// with does something to the stand-in while it answers nobody.
func (s *standIn) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *standIn) server(t testing.TB) *Server {
	t.Helper()
	conn := client.New(client.Config{Socket: s.socket, UIDs: []int{os.Getuid()}})
	t.Cleanup(conn.Close)
	server, err := New(Config{Conn: conn, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// front is a server on HTTP.
type front struct {
	t       testing.TB
	service *standIn
	url     *url.URL
	end     func() error // as SIGTERM does
}

// newFront serves until the test ends. Change makes it different.
func newFront(t testing.TB, change func(*HTTPConfig)) *front {
	t.Helper()
	f := &front{t: t, service: newStandIn(t)}
	limits := defaultHTTPLimits()
	limits.failedWait, limits.failedBurst = time.Millisecond, 1000
	at := make(chan string, 1)
	cfg := HTTPConfig{
		Address: "127.0.0.1:0", limits: &limits, Listening: func(url string) { at <- url },
		selfTest: func(context.Context) error { return nil }, Rate: maxRate,
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	server := f.service.server(t)
	go func() { ended <- server.HTTP(ctx, cfg) }()
	f.end = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := f.end(); err != nil {
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

// request is what is sent over a raw socket. What a test leaves out is that of
// a request that succeeds: tools/list of the newest revision.
type rawRequest struct {
	method, path, host, token, body string
	header                          []string // further lines
	without                         string   // a header to leave out
}

const (
	newest    = "2026-07-28"
	toolsList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

func (f *front) text(r rawRequest) string {
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
	for _, h := range append(strings.Split(r.without, ","), r.header...) { // a header that is given replaces
		name, _, _ := strings.Cut(h, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return name != "" && strings.HasPrefix(l, name+":") })
	}
	return or(r.method, "POST") + " " + or(r.path, "/mcp") + " HTTP/1.1\r\n" + strings.Join(append(lines, r.header...), "\r\n") + "\r\n\r\n" + body
}

type rawReply struct {
	status int
	header http.Header
	body   string
}

func (r rawReply) String() string { return fmt.Sprintf("%d %v %.300s", r.status, r.header, r.body) }

// dial opens a raw connection.
func (f *front) dial() net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.url.Host)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// read reads one answer; status 0 is a connection that ended without one.
func read(r *bufio.Reader, method string) rawReply {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return rawReply{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return rawReply{body: err.Error()}
	}
	return rawReply{resp.StatusCode, resp.Header, string(b)}
}

// raw sends bytes on a connection of their own and reads one answer.
func (f *front) raw(text string) rawReply {
	f.t.Helper()
	c := f.dial()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return rawReply{body: err.Error()}
	}
	method, _, _ := strings.Cut(text, " ")
	return read(bufio.NewReader(c), method)
}

func (f *front) send(r rawRequest) rawReply {
	f.t.Helper()
	return f.raw(f.text(r))
}

// want fails the test unless a request is answered with a status and words.
func (f *front) want(name string, r rawRequest, status int, words ...string) rawReply {
	f.t.Helper()
	got := f.send(r)
	if got.status != status {
		f.t.Errorf("%s: %s", name, got)
	}
	for _, w := range words {
		if !strings.Contains(fmt.Sprint(got.header, got.body), w) {
			f.t.Errorf("%s: not %q: %s", name, w, got)
		}
	}
	return got
}

// old is a request of a revision that has sessions.
func old(version, session, body string, more ...string) rawRequest {
	r := rawRequest{body: body, header: append([]string{"Mcp-Protocol-Version: " + version}, more...), without: "Mcp-Method"}
	if session != "" {
		r.header = append(r.header, "Mcp-Session-Id: "+session)
	}
	return r
}

func initialize(version, more string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","clientInfo":{"name":"t","version":"1"}` + more + `}}`
}

const oldList = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// open opens a session and returns its id.
func (f *front) open(token, version, more string) string {
	f.t.Helper()
	r := old(version, "", initialize(version, more))
	r.token = token
	got := f.want("initialize", r, 200, `"protocolVersion":"`+version+`"`)
	id := got.header.Get("Mcp-Session-Id")
	if len(id) != 32 {
		f.t.Fatalf("session %q", id)
	}
	return id
}
