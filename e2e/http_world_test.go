package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// httpServer is the built MCP server on HTTP, connected to a real service.
type httpServer struct {
	t    testing.TB
	w    *webWorld
	cmd  *exec.Cmd
	errs *lockedBuffer
	url  *url.URL
}

// lockedBuffer may be written and read concurrently.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// webWorld has a service, and two principals with a token each and the grants
// of the world's account.
type webWorld struct {
	*world
	ann, ben string // tokens
	annID    api.TokenID
	benID    api.TokenID
}

func newWebWorld(t testing.TB, uid int, subagents ...subagent) *webWorld {
	t.Helper()
	w := &webWorld{world: newWorld(t, uid)}
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(append(subagents, subagent{name: "edit", script: "echo two > a.txt"}, subagent{name: "looks", script: "true", tier: "observe"})...)
	w.up()
	w.addPrincipals()
	return w
}

func (w *webWorld) addPrincipals() {
	w.t.Helper()
	w.grants("agent:ann", "agent:ben")
	w.ann, w.annID = w.token("agent:ann")
	w.ben, w.benID = w.token("agent:ben")
	w.must("ceiling", "set", "agent:ann", "reversible")
	w.must("ceiling", "set", "agent:ben", "reversible")
}

// http starts the built server until the test ends.
func (w *webWorld) http(args ...string) *httpServer {
	w.t.Helper()
	return w.httpOf(mcpProgram(), args...)
}

func (w *webWorld) httpOf(program string, args ...string) *httpServer {
	w.t.Helper()
	s := &httpServer{t: w.t, w: w, cmd: w.command(program, append([]string{"--http", "127.0.0.1:0"}, args...)...), errs: &lockedBuffer{}}
	out, err := s.cmd.StderrPipe()
	must(w.t, err)
	must(w.t, s.cmd.Start())
	r := bufio.NewReader(io.TeeReader(out, s.errs))
	w.t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		_ = s.cmd.Wait()
		if w.t.Failed() {
			w.t.Logf("log of the HTTP server:\n%s", s.errs)
		}
	})
	line, err := r.ReadString('\n')
	_, at, ok := strings.Cut(strings.TrimSpace(line), "listening at ")
	if err != nil || !ok {
		w.t.Fatalf("%v: %s", err, line)
	}
	s.url, err = url.Parse(at)
	must(w.t, err)
	go io.Copy(io.Discard, r) //nolint:errcheck // until the server exits
	return s
}

// ask is a request over a raw socket. Zero fields default to a request that
// succeeds: tools/list of the newest revision, with ann's token.
type ask struct {
	method, path, host, token, body string
	header                          []string // additional lines, which replace those of the same name
	without                         string   // names of headers to leave out
}

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// callOf returns a call of a tool in the newest revision, with meta added to
// _meta.
func callOf(tool, arguments, meta string) ask {
	body := strings.Replace(listTools, "tools/list", "tools/call", 1)
	body = strings.Replace(body, `"_meta":{`, `"name":"`+tool+`","arguments":`+arguments+`,"_meta":{`+meta, 1)
	return ask{body: body, header: []string{"Mcp-Method: tools/call", "Mcp-Name: " + tool}}
}

// encoded encodes the arguments of a call.
func encoded(arguments map[string]any) string {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err) // a test's own maps
	}
	return string(text)
}

// oldAsk returns a request of a revision that has sessions.
func oldAsk(revision, session, body string) ask {
	a := ask{body: body, header: []string{"Mcp-Protocol-Version: " + revision}, without: "Mcp-Method"}
	if session != "" {
		a.header = append(a.header, "Mcp-Session-Id: "+session)
	}
	return a
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (s *httpServer) text(a ask) string {
	body := orElse(a.body, listTools)
	lines := []string{
		"Host: " + orElse(a.host, s.url.Host), "Authorization: Bearer " + orElse(a.token, s.w.ann), "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: " + mcpJuly, "Mcp-Method: tools/list", fmt.Sprintf("Content-Length: %d", len(body)),
	}
	for _, h := range append(strings.Split(a.without, ","), a.header...) {
		name, _, _ := strings.Cut(h, ":")
		lines = slices.DeleteFunc(lines, func(l string) bool { return name != "" && strings.HasPrefix(l, name+":") })
	}
	return orElse(a.method, "POST") + " " + orElse(a.path, "/mcp") + " HTTP/1.1\r\n" + strings.Join(append(lines, a.header...), "\r\n") + "\r\n\r\n" + body
}

// answer is a response; status 0 means the connection was closed without one.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %v %.400s", a.status, a.header, a.body) }

// message is the JSON-RPC message of a response, which may be an event.
func (a answer) message(t testing.TB) (m mcpMessage) {
	t.Helper()
	text := a.body
	if _, event, ok := strings.Cut(text, "data: "); ok {
		text = strings.TrimSpace(event)
	}
	decode(t, text, &m)
	return m
}

func (s *httpServer) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.url.Host)
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	must(s.t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	return c
}

func readAnswer(r *bufio.Reader) answer {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// raw sends bytes on a new connection.
func (s *httpServer) raw(text string) answer {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return answer{body: err.Error()}
	}
	return readAnswer(bufio.NewReader(c))
}

func (s *httpServer) send(a ask) answer {
	s.t.Helper()
	return s.raw(s.text(a))
}

// want fails the test unless the response to a request has the status and
// contains every one of words.
func (s *httpServer) want(name string, a ask, status int, words ...string) answer {
	s.t.Helper()
	got := s.send(a)
	if got.status != status {
		s.t.Errorf("%s: want %d, got %s", name, status, got)
	}
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(got.header, got.body), word) {
			s.t.Errorf("%s: the response lacks %q: %s", name, word, got)
		}
	}
	return got
}

// open initializes a session and returns its ID.
func (s *httpServer) open(token, revision, more string) string {
	s.t.Helper()
	a := oldAsk(revision, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+`","clientInfo":{"name":"t","version":"1"}`+more+`}}`)
	a.token = token
	return s.want("initialize", a, 200, `"protocolVersion":"`+revision+`"`).header.Get("Mcp-Session-Id")
}

// tools lists the tools in a revision.
func (s *httpServer) tools(revision string) []string {
	s.t.Helper()
	a := ask{}
	if revision != mcpJuly {
		a = oldAsk(revision, s.open("", revision, ""), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	var list struct{ Tools []mcpTool }
	must(s.t, json.Unmarshal(s.want("tools/list in "+revision, a, 200).message(s.t).Result, &list))
	return names(list.Tools)
}

// refuses starts the server, which must exit with one line of error, and
// returns that line.
func (w *world) refuses(env []string, args ...string) string {
	w.t.Helper()
	cmd := w.command(mcpProgram(), args...)
	cmd.Env = append(cmd.Env, env...)
	return w.exitsWithOneLine(cmd)
}

func (w *world) exitsWithOneLine(cmd *exec.Cmd) string {
	w.t.Helper()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() <= 0 {
		w.t.Fatalf("%q: %v: %s", cmd.Args, err, out)
	}
	if n := strings.Count(string(out), "\n"); n != 1 {
		w.t.Errorf("%q exits with %d lines: %s", cmd.Args, n, out)
	}
	return string(out)
}
