package gateway

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
)

// closeTools sets the tools of a server that are closed, as the pool reports it.
func (w *world) closeTools(server api.Name, tools ...string) {
	w.mu.Lock()
	w.closed = map[api.Name][]string{server: tools}
	w.mu.Unlock()
	w.Listed(server, "")
}

// names lists the tools of a client's list.
func names(t *testing.T, c *mcp.ClientSession) string {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, tool := range list.Tools {
		all = append(all, tool.Name)
	}
	return strings.Join(all, " ")
}

// A client of the SDK learns that a tool was closed and opened again, in each revision:
// by a subscription, or with the answer to its next call. Its list has the open ones. The
// control is a server whose tools the role does not have.
//
// proves R-G1, R-G7
func TestAgentsLearnThatAToolIsClosed(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			w := newWorld(t)
			v := w.view("quality", "local", api.Observe)
			front := httptest.NewServer(v)
			defer front.Close()
			notices := make(chan struct{}, 100)
			c := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { notices <- struct{}{} },
			})
			session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: front.URL, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if got := session.InitializeResult().ProtocolVersion; got != revision {
				t.Fatalf("the client speaks %s", got)
			}
			call := func() {
				t.Helper()
				if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "warehouse_query", Arguments: map[string]any{}}); err != nil {
					t.Fatal(err)
				}
			}
			all := names(t, session)
			if !strings.Contains(all, "search_find") || !strings.Contains(all, "warehouse_query") {
				t.Fatal(all)
			}
			w.closeTools("other", "find")
			call()
			if len(notices) != 0 {
				t.Error("it is told of another server")
			}
			for _, closed := range []bool{true, false} {
				var want string
				if w.closeTools("search"); closed {
					w.closeTools("search", "find")
					want = strings.TrimSpace(strings.Replace(all, "search_find ", "", 1))
				} else {
					want = all
				}
				if revision < "2026" {
					call()
				}
				<-notices
				if got := names(t, session); got != want {
					t.Errorf("closed %t: the list is %q, want %q", closed, got, want)
				}
				for len(notices) > 0 {
					<-notices
				}
			}
		})
	}
}

// A dispatch learns nothing of the sessions of another, and a subscription goes to the
// next service when one stops.
func TestASubscriptionIsOfOneDispatch(t *testing.T) {
	w := newWorld(t)
	one, two := w.view("quality", "local", api.Observe), w.view("quality", "local", api.Observe)
	list := message(1, "tools/list", map[string]any{})
	post(t, one, list)
	post(t, two, list)
	w.Listed("search", one.a.Manifest.ID)
	if r := call1(t, two, "warehouse_query"); strings.Contains(r.raw, "list_changed") {
		t.Errorf("another dispatch: %s", r.raw)
	}
	if r := call1(t, one, "warehouse_query"); !strings.Contains(r.raw, "list_changed") || r.text() != "ok" {
		t.Errorf("its dispatch: %s", r.raw)
	}
	post(t, one, list)
	if r := call1(t, one, "warehouse_query"); strings.Contains(r.raw, "list_changed") {
		t.Errorf("after it read the list: %s", r.raw)
	}
	meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	listen, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": map[string]any{"_meta": meta, "notifications": map[string]any{"toolsListChanged": true}}})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan sent)
	for again, method := range []string{"POST", "PUT"} {
		go func() { got <- sendNewest(one, method, "subscriptions/listen", string(listen)) }()
		for out := 0; out == 0; { // until it listens
			one.mu.Lock()
			out = len(one.open)
			one.mu.Unlock()
		}
		one.Stop()
		r := <-got
		if !r.undecided || !strings.Contains(r.text, "acknowledged") || strings.Contains(r.text, "list_changed") != (again == 1) {
			t.Errorf("%s: %+v", method, r)
		}
		one = w.viewOf(one.a)
	}
}
