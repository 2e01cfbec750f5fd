package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

type echo struct {
	V string `json:"v" jsonschema:"what to say"`
}

// sdkServer is a server of another make, at a URL of this machine.
func sdkServer(t *testing.T, stateless bool, wrap func(http.Handler) http.Handler) (*mcp.Server, api.ToolServer) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Echoes."}, func(_ context.Context, _ *mcp.CallToolRequest, in echo) (*mcp.CallToolResult, echo, error) {
		if in.V == "fail" {
			return nil, echo{}, errors.New("failed as asked")
		}
		return nil, in, nil
	})
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	if wrap != nil {
		h = wrap(h)
	}
	front := httptest.NewServer(h)
	t.Cleanup(front.CloseClientConnections)
	t.Cleanup(front.Close)
	return s, api.ToolServer{Name: "sdk", HTTP: &api.HTTPServer{URL: front.URL + "/mcp"}}
}

func open(t *testing.T, s Server, changed func()) *Session {
	t.Helper()
	session, err := OpenHTTP(t.Context(), Config{}, s, changed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func callEcho(session *Session, v string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	arguments, _ := json.Marshal(echo{v})
	return session.Call(ctx, Call{Definition: &api.ToolDefinition{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, Arguments: arguments})
}

// proves R-G5: a server of the SDK over HTTP, with sessions and without
func TestAServerOverHTTPIsCalled(t *testing.T) {
	for revision, stateless := range map[string]bool{"2025-11-25": false, discovery: true} {
		t.Run(revision, func(t *testing.T) {
			s, server := sdkServer(t, stateless, nil)
			var changes atomic.Int32
			session := open(t, Server{ToolServer: server}, func() { changes.Add(1) })
			if session.revision != revision {
				t.Errorf("revision %s, want %s", session.revision, revision)
			}
			a, err := callEcho(session, "hello é")
			if err != nil || string(a.Structured) != `{"v":"hello \u00e9"}` {
				t.Errorf("%s, %v", a.Result, err)
			}
			if a, err = callEcho(session, "fail"); err != nil || !a.IsError {
				t.Errorf("%s, %v", a.Result, err)
			}
			offer, err := session.Offer(t.Context())
			if err != nil || len(offer.Tools) != 1 || offer.Tools[0].Name != "echo" {
				t.Errorf("%+v, %v", offer, err)
			}
			for range 100 { // until the stream is open, a notice is lost
				s.AddTool(&mcp.Tool{Name: "other", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
				time.Sleep(50 * time.Millisecond)
				if changes.Load() > 0 {
					return
				}
			}
			t.Error("the change of the tools is not noticed")
		})
	}
}

// What a server has besides its tools is listed for a person: no agent gets it. The control
// is a server with tools only.
func TestWhatNoAgentGetsIsListed(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		_, plain := sdkServer(t, stateless, nil)
		offer, err := open(t, Server{ToolServer: plain}, nil).Offer(t.Context())
		if err != nil || len(offer.Tools) != 1 || offer.Unused != nil {
			t.Errorf("a server with tools only: %+v, %v", offer, err)
		}
		s := mcp.NewServer(&mcp.Implementation{Name: "rich", Version: "1"}, &mcp.ServerOptions{
			Instructions: "Call drop first.",
			CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
				return nil, errors.New("none")
			},
		})
		s.AddResource(&mcp.Resource{URI: "file:///x", Name: "x"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, errors.New("none")
		})
		s.AddPrompt(&mcp.Prompt{Name: "p"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, errors.New("none")
		})
		for _, name := range []string{"one", "two"} {
			tool := &mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Icons: []mcp.Icon{{Source: "https://example.com/i.png"}}}
			if name == "one" {
				tool.Meta = mcp.Meta{"x": 1}
			}
			s.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
		}
		front := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
		defer front.CloseClientConnections()
		offer, err = open(t, Server{ToolServer: api.ToolServer{Name: "rich", HTTP: &api.HTTPServer{URL: front.URL}}}, nil).Offer(t.Context())
		if want := []string{"resources", "prompts", "completions", "instructions", "icons of 2 tools", "_meta of one tool"}; err != nil || !slices.Equal(offer.Unused, want) || len(offer.Tools) != 2 {
			t.Errorf("stateless %t: %q, %v", stateless, offer.Unused, err)
		}
	}
}

// A server that refuses a token, and then says it, says it in vain: what was replaced is
// redacted too, a bounded number of times.
//
// proves R-G5
func TestReplacedCredentialsAreRedacted(t *testing.T) {
	var c credential
	for i := range 3 * maxBefore {
		c.replaced(c.token)
		c.token = fmt.Sprint("token-", i)
	}
	c.replaced("") // none
	list := c.tokens()
	if len(list) != maxBefore+1 || list[maxBefore] != c.token || list[0] != fmt.Sprint("token-", 3*maxBefore-1-maxBefore) {
		t.Errorf("%q", list)
	}
}

func TestAnAccessTokenIsGotOnceUntilItExpires(t *testing.T) {
	var tokens atomic.Int32
	issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "bailiwick" || secret != "s%2Fcret" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":600}`, tokens.Add(1))
	}))
	defer issuer.Close()
	_, server := sdkServer(t, true, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != fmt.Sprint("Bearer token-", tokens.Load()) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	server.HTTP.OAuth = &api.OAuthGrant{TokenURL: "https://example.com/token", ClientID: "bailiwick", Secret: "key", Scopes: []string{"a", "b"}}
	at := time.Now()
	var mu sync.Mutex
	cfg := Config{
		Roots: issuer.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		Now:   func() time.Time { mu.Lock(); defer mu.Unlock(); return at },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, issuer.Listener.Addr().String())
		},
	}
	session, err := OpenHTTP(t.Context(), cfg, Server{ToolServer: server, Secrets: record.Secrets{"key": "s/cret"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for range 3 {
		if _, err := callEcho(session, "x"); err != nil {
			t.Error(err)
		}
	}
	if tokens.Load() != 1 || session.Tokens()[0] != "token-1" {
		t.Errorf("%d tokens, %q", tokens.Load(), session.Tokens())
	}
	mu.Lock()
	at = at.Add(time.Hour)
	mu.Unlock()
	if _, err := callEcho(session, "x"); err != nil || tokens.Load() != 2 || !slices.Equal(session.Tokens(), []string{"token-1", "token-2"}) {
		t.Errorf("%v, %d tokens, %q", err, tokens.Load(), session.Tokens())
	}
}

// proves R-G5: a server over HTTP that misbehaves is an error, and nothing hangs
func TestAHostileServerOverHTTPIsAnError(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer target.Close()
	event := func(w io.Writer, text string) { _, _ = fmt.Fprintf(w, "data: %s\n\n", text) }
	for name, c := range map[string]struct {
		part   string
		unsent bool
		answer func(w http.ResponseWriter, id json.RawMessage)
	}{
		"redirect": {"HTTP 307, a redirect", false, func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", target.URL)
			w.WriteHeader(307)
		}},
		"forbidden": {"HTTP 403", true, func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(403) }},
		"broken":    {"HTTP 500", false, func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(500) }},
		"page":      {`content type "text/html"`, false, func(w http.ResponseWriter, _ json.RawMessage) { w.Header().Set("Content-Type", "text/html") }},
		"huge": {"more than", false, func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(make([]byte, 4<<20))
		}},
		"huge event": {"more than", false, func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, strings.Repeat("x", 4<<20))
		}},
		"no answer": {"ended before the answer", false, func(w http.ResponseWriter, _ json.RawMessage) { w.Header().Set("Content-Type", "text/event-stream") }},
		"of another": {"that was not made", false, func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			event(w, `{"jsonrpc":"2.0","id":999,"result":{}}`)
		}},
		"twice": {"duplicate", false, func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{},"result":{}}`, id)
		}},
		"flood": {"unsolicited messages", false, func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 100_000 {
				event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			}
		}},
		"control": {"", false, func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, server := sdkServer(t, true, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					var m struct {
						ID     json.RawMessage
						Method string
					}
					if err := json.Unmarshal(body, &m); err == nil && m.Method == "tools/call" {
						c.answer(w, m.ID)
						return
					}
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					h.ServeHTTP(w, r)
				})
			})
			session := open(t, Server{ToolServer: server}, nil)
			_, err := callEcho(session, "x")
			var unsent *UnsentError
			if c.part == "" && err != nil || c.part != "" && (err == nil || !strings.Contains(err.Error(), c.part) || errors.As(err, &unsent) != c.unsent) {
				t.Errorf("%v, want %q, unsent %v", err, c.part, c.unsent)
			}
		})
	}
}

// proves R-T7: http is for this machine, and https for public hosts or a signed address
func TestAServerIsDialledWhereAHumanSaid(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	for name, c := range map[string]struct{ server, want string }{
		"another machine over http": {`{"url":"http://192.0.2.1:80/"}`, "not a loopback address"},
		"an internal host":          {`{"url":"https://10.0.0.1/"}`, "refused by the egress filter"},
		"an address of anything":    {`{"url":"https://example.com/","address":"0.0.0.0:1"}`, "refused by the egress filter"},
		"nobody listens":            {fmt.Sprintf(`{"url":%q}`, dead.URL), "cannot be reached"},
	} {
		var h api.HTTPServer
		if err := json.Unmarshal([]byte(c.server), &h); err != nil {
			t.Fatal(err)
		}
		_, err := OpenHTTP(t.Context(), Config{}, Server{ToolServer: api.ToolServer{HTTP: &h}}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer front.Close()
	u, _ := url.Parse(front.URL)
	_, err := OpenHTTP(t.Context(), Config{Roots: front.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, Server{ToolServer: api.ToolServer{HTTP: &api.HTTPServer{URL: "https://example.com/", Address: u.Host}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "HTTP 418") { // control: it was reached
		t.Errorf("a signed address: %v", err)
	}
}
