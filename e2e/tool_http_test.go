package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolHost is a tool server of the SDK over HTTP, in the process of the test. It records
// what reaches it.
type toolHost struct {
	*mcp.Server

	mcp     http.Handler
	mu      sync.Mutex
	calls   []string // NAME ARGUMENTS
	headers []http.Header
	admits  func(http.Header) bool // nil: everybody
}

// newToolHost makes one that speaks one revision of MCP, or all of them.
func newToolHost(revisions ...string) *toolHost {
	h := &toolHost{Server: mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: revisions})}
	h.mcp = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return h.Server }, &mcp.StreamableHTTPOptions{Stateless: slices.Contains(revisions, "2026-07-28")}) // that revision has no sessions
	h.tool("echo", "Says it again.", func(text string) string { return text + " in " + strings.Join(revisions, ", ") })
	return h
}

// tool adds a tool that takes a text.
func (h *toolHost) tool(name, does string, answer func(text string) string) {
	type input struct {
		Text string `json:"text"`
	}
	mcp.AddTool(h.Server, &mcp.Tool{Name: name, Description: does}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		h.mu.Lock()
		h.calls = append(h.calls, name+" "+in.Text)
		h.mu.Unlock()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer(in.Text)}}}, nil, nil
	})
}

func (h *toolHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.headers = append(h.headers, r.Header.Clone())
	admits := h.admits
	h.mu.Unlock()
	if admits != nil && !admits(r.Header) {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	h.mcp.ServeHTTP(w, r)
}

// called returns the calls so far.
func (h *toolHost) called() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// serve serves it on this machine until the test ends, and returns its URL.
func (h *toolHost) serve(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams that a client left open
		s.Close()
	})
	return s.URL + "/mcp"
}

// tokens issues tokens to a client with a password (RFC 6749, section 4.4). Each is good
// for three requests.
type tokens struct {
	password string

	mu     sync.Mutex
	issued []string
	left   int
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, password, basic := r.BasicAuth()
	if !basic {
		id, password = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if r.Method != http.MethodPost || r.PostFormValue("grant_type") != "client_credentials" || id != "bailiwick" || password != s.password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued, s.left = append(s.issued, newKey()), 3
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": s.issued[len(s.issued)-1], "token_type": "Bearer", "expires_in": 3600, "scope": r.PostFormValue("scope")})
}

func (s *tokens) admits(h http.Header) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.issued) == 0 || s.left == 0 || h.Get("Authorization") != "Bearer "+s.issued[len(s.issued)-1] {
		return false
	}
	s.left--
	return true
}

func (s *tokens) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.issued)
}

// Servers over HTTPS get the credential of the catalog: a header, or tokens of OAuth
// client credentials, which are renewed when the server refuses one. What the agent
// sends reaches no server. Neither secrets nor tokens are in anything that is kept; the
// control finds a planted one.
//
// takeover both modes, tool server: yes read a secret
//
// proves R-G5
func TestToolServersOverHTTPHaveTheirOwnCredentials(t *testing.T) {
	t.Parallel()
	n := newInternet(t)
	key, ids := newKey(), &tokens{password: newKey()}
	keyed, granted := newToolHost(), newToolHost()
	keyed.admits = func(h http.Header) bool { return h.Get("X-Api-Key") == key }
	granted.admits = ids.admits
	n.host("keyed.example.com", keyed)
	n.host("granted.example.com", granted)
	n.host("id.example.com", ids)
	w := newCallWorld(t, 0, []string{"reader observe"}, `
  - server: keyed
    http: {url: "https://keyed.example.com/mcp"}
    credential: {header: X-Api-Key, secret: key}
    allow: [{tool: echo, roles: [reader], tier: observe}]
  - server: granted
    http: {url: "https://granted.example.com/mcp"}
    oauth: {tokenURL: "https://id.example.com/token", clientID: bailiwick, secret: client, scopes: [tools]}
    allow: [{tool: echo, roles: [reader], tier: observe}]
`, "")
	w.replace(manifest, "\nenvs:\n", "\nsecrets:\n  - {name: key, ref: \""+w.secretRef("key", "KEY_VALUE")+"\"}\n  - {name: client, ref: \""+w.secretRef("client", "CLIENT_VALUE")+"\"}\nenvs:\n")
	w.net = n.island
	if w.unit != nil {
		w.unit.knows(n)
	}
	w.pinned("key", key, "client", ids.password)
	w.upKnowing(map[string][2]string{"key": {"KEY_VALUE", key}, "client": {"CLIENT_VALUE", ids.password}}, n)
	d := w.do("reader", `
for i in 1 2 3 4 5 6; do
	message keyed_echo '{"text": "keyed '$i'"}' | post -H 'X-Api-Key: of-the-agent' -H 'Authorization: Bearer of-the-agent' >> outputs/keyed
	message granted_echo '{"text": "granted '$i'"}' | post -H 'Authorization: Bearer of-the-agent' -H 'Cookie: of-the-agent' >> outputs/granted
done
curl -sS -m 5 https://keyed.example.com/mcp > outputs/direct 2>&1; true`)
	for i := 1; i <= 6; i++ {
		wantIn(t, "keyed", w.output(d, "keyed"), fmt.Sprintf("keyed %d", i))
		wantIn(t, "granted", w.output(d, "granted"), fmt.Sprintf("granted %d", i))
	}
	if len(keyed.called()) != 6 || len(granted.called()) != 6 || len(ids.all()) < 3 {
		t.Errorf("%d and %d calls with %d tokens", len(keyed.called()), len(granted.called()), len(ids.all()))
	}
	for _, h := range slices.Concat(keyed.headers, granted.headers) {
		if strings.Contains(fmt.Sprint(h), "of-the-agent") {
			t.Errorf("a server gets %v", h)
		}
	}
	wantIn(t, "a server asked directly", w.output(d, "direct"), "curl: (")
	w.exported(string(d.ID))
	w.write("audit.json", w.must("audit", "list", "-o", "json"), 0o600)
	w.must("down")
	values := append(ids.all(), key, ids.password)
	if left := w.filesWith(values...); len(left) > 0 {
		t.Errorf("a credential is in %v", left)
	}
	w.write("state/bailiwick/planted", values[0], 0o600)
	if left := w.filesWith(values...); len(left) != 1 {
		t.Errorf("the control: the sweep finds %v", left)
	}
	must(t, os.Remove(w.path("state/bailiwick/planted")))
}
