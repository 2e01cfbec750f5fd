package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The revisions of the protocol, oldest first. The newest one has no
// initialize: each request carries what initialize did.
const (
	mcpJune, mcpNovember, mcpJuly = "2025-06-18", "2025-11-25", "2026-07-28"
)

func mcpRevisions() []string { return []string{mcpJune, mcpNovember, mcpJuly} }

// mcpSession is a minimal client of bailiwick-mcp on stdio that follows the
// protocol.
type mcpSession struct {
	t        testing.TB
	cmd      *exec.Cmd
	in       io.WriteCloser
	lines    *bufio.Reader
	errs     *bytes.Buffer
	revision string
	meta     map[string]any // of every request
	next     int
	notes    []mcpMessage
	schemas  map[string]*jsonschema.Resolved // of the outputs, by tool; see tools
}

// mcpMessage is a message from a server.
type mcpMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *mcpError       `json:"error"`
}

type mcpError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// mcpProgram is the built server.
func mcpProgram() string { return filepath.Join(bin, "bailiwick-mcp") }

// mcp starts the server and initializes a session in a revision of the
// protocol.
func (w *world) mcp(revision string, args ...string) *mcpSession {
	w.t.Helper()
	return w.mcpOf(mcpProgram(), revision, nil, args...)
}

// mcpOf starts a program as mcp does and adds the members of more to
// initialize.
func (w *world) mcpOf(program, revision string, more map[string]any, args ...string) *mcpSession {
	w.t.Helper()
	s := w.mcpRaw(program, args...)
	s.revision = revision
	if revision == mcpJuly {
		s.meta = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    revision,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
		return s
	}
	params := map[string]any{"protocolVersion": revision, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "e2e", "version": "1"}}
	maps.Copy(params, more)
	var got struct{ ProtocolVersion string }
	decode(w.t, string(s.must("initialize", params)), &got)
	if got.ProtocolVersion != revision {
		w.t.Errorf("requested revision %s, the server chose %s", revision, got.ProtocolVersion)
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// mcpRaw starts a program and sends it nothing.
func (w *world) mcpRaw(program string, args ...string) *mcpSession {
	w.t.Helper()
	s := &mcpSession{t: w.t, cmd: w.command(program, args...), errs: new(bytes.Buffer)}
	var err error
	s.in, err = s.cmd.StdinPipe()
	must(w.t, err)
	out, err := s.cmd.StdoutPipe()
	must(w.t, err)
	s.lines = bufio.NewReader(out)
	s.cmd.Stderr = s.errs
	must(w.t, s.cmd.Start())
	w.t.Cleanup(func() {
		_ = s.in.Close() // it may have exited
		_, _ = io.Copy(io.Discard, s.lines)
		_ = s.cmd.Wait()
		if w.t.Failed() && s.errs.Len() > 0 {
			w.t.Logf("log of the MCP server:\n%s", s.errs)
		}
	})
	return s
}

// send writes one line, valid or not.
func (s *mcpSession) send(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatalf("%v; standard error of the server: %s", err, s.errs)
	}
}

// read returns the next message that is not a notification.
func (s *mcpSession) read() (m mcpMessage) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the server has exited: %v; standard error: %s", err, s.errs)
		}
		m = mcpMessage{}
		decode(s.t, line, &m)
		if m.Method == "" {
			return m
		}
		s.notes = append(s.notes, m)
	}
}

// request sends a request and returns its response.
func (s *mcpSession) request(method string, params map[string]any) mcpMessage {
	s.t.Helper()
	s.next++
	whole := map[string]any{}
	maps.Copy(whole, params)
	if s.meta != nil {
		meta := maps.Clone(s.meta)
		if own, ok := params["_meta"].(map[string]any); ok {
			maps.Copy(meta, own)
		}
		whole["_meta"] = meta
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.next, "method": method, "params": whole})
	must(s.t, err)
	s.send(string(b))
	m := s.read()
	if string(m.ID) != fmt.Sprint(s.next) {
		s.t.Fatalf("%s: the response has the id %s, want %d: %+v", method, m.ID, s.next, m)
	}
	return m
}

// must sends a request that must succeed.
func (s *mcpSession) must(method string, params map[string]any) json.RawMessage {
	s.t.Helper()
	m := s.request(method, params)
	if m.Error != nil {
		s.t.Fatalf("%s: %+v", method, m.Error)
	}
	return m.Result
}

// mcpTool is a tool as a client sees it.
type mcpTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  map[string]any  `json:"annotations"`
}

// tools lists the tools, from all pages.
func (s *mcpSession) tools() []mcpTool {
	s.t.Helper()
	var all []mcpTool
	for params := map[string]any{}; ; {
		var page struct {
			Tools      []mcpTool
			NextCursor string
		}
		decode(s.t, string(s.must("tools/list", params)), &page)
		all = append(all, page.Tools...)
		if page.NextCursor == "" {
			return all
		}
		params["cursor"] = page.NextCursor
	}
}

func names(tools []mcpTool) []string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

// mcpResult is the result of a call.
type mcpResult struct {
	Content []struct{ Type, Text string }
	Value   json.RawMessage `json:"structuredContent"`
	IsError bool
}

// text is the result as shown by a client that ignores structured content.
func (r mcpResult) text() string {
	var all strings.Builder
	for _, c := range r.Content {
		all.WriteString(c.Text)
	}
	return all.String()
}

// failure is the error that a result holds.
func (r mcpResult) failure() api.Error {
	var v struct{ Error api.Error }
	_ = json.Unmarshal(r.Value, &v) // the zero value has no code
	return v.Error
}

// call calls a tool and checks its result against the output schema of the
// tool.
func (s *mcpSession) call(name string, arguments any, more ...map[string]any) mcpResult {
	s.t.Helper()
	params := map[string]any{"name": name, "arguments": arguments}
	for _, m := range more {
		maps.Copy(params, m)
	}
	var r mcpResult
	decode(s.t, string(s.must("tools/call", params)), &r)
	if s.schemas == nil {
		s.schemas = map[string]*jsonschema.Resolved{}
		for _, t := range s.tools() {
			var schema jsonschema.Schema
			decode(s.t, string(t.OutputSchema), &schema)
			resolved, err := schema.Resolve(nil)
			must(s.t, err)
			s.schemas[t.Name] = resolved
		}
	}
	var v any
	decode(s.t, string(r.Value), &v)
	if err := s.schemas[name].Validate(v); err != nil {
		s.t.Errorf("%s: the result does not match the output schema: %v: %s", name, err, r.Value)
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" || r.Content[0].Text == "" {
		s.t.Errorf("%s: the result has no text: %+v", name, r.Content)
	}
	return r
}

// ok makes a call that must succeed; v receives its structured content.
func (s *mcpSession) ok(name string, arguments, v any, more ...map[string]any) {
	s.t.Helper()
	r := s.call(name, arguments, more...)
	if r.IsError {
		s.t.Fatalf("%s %v: %s", name, arguments, r.text())
	}
	decode(s.t, string(r.Value), v)
}

// refused makes a call that must fail with a code and contain every one of
// words.
func (s *mcpSession) refused(code api.Code, words []string, name string, arguments any, more ...map[string]any) api.Error {
	s.t.Helper()
	r := s.call(name, arguments, more...)
	e := r.failure()
	if !r.IsError || e.Code != code {
		s.t.Fatalf("%s %v: want %s, got %s", name, arguments, code, r.Value)
	}
	for _, word := range append(words, string(code), e.Message, e.Hint) {
		if !strings.Contains(r.text(), word) {
			s.t.Errorf("%s %v: the error lacks %q: %s", name, arguments, word, r.text())
		}
	}
	return e
}

// members is a JSON object.
type members = map[string]any

// sorted returns a sorted copy, for comparing sets.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
