package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	testID  = "large-1"
	testKey = "sk-the-real-key-of-the-model"
)

// modelWorld is a broker between a client and a model's server.
type modelWorld struct {
	*Broker

	t        testing.TB
	base     string // of the model, for the agent
	upstream *httptest.Server

	mu      sync.Mutex // guards the fields below
	record  bytes.Buffer
	refused []record.EgressRefusal
	spent   []string
	seen    []*http.Request // by the model's server
	bodies  []string
}

// newModelWorld starts a broker for a model whose server is handler. change may change
// its configuration.
func newModelWorld(t testing.TB, a api.ModelAPI, handler http.HandlerFunc, change func(*Config)) *modelWorld {
	t.Helper()
	w := &modelWorld{t: t}
	w.upstream = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.seen, w.bodies = append(w.seen, r), append(w.bodies, string(body))
		w.mu.Unlock()
		handler(rw, r)
	}))
	t.Cleanup(w.upstream.Close)
	cfg := Config{
		Model: &Model{
			Model: api.Model{
				Name: "big", API: a, Endpoint: w.upstream.URL + "/base",
				Credential: &api.Credential{Header: "X-Api-Key", Prefix: "Key ", Secret: "s"},
				Prices:     map[string]api.Price{testID: {Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000}},
			},
			ID: testID, Placeholder: "bwk-placeholder", Value: testKey, Loopback: netip.MustParseAddrPort(w.upstream.Listener.Addr().String()),
		},
		Record: modelRecord{w},
		Refused: func(r record.EgressRefusal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, r)
		},
		Spent: func(s string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.spent = append(w.spent, s)
		},
	}
	if change != nil {
		change(&cfg)
	}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Broker = b
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	w.base = "http://" + l.Addr().String() + "/model/big"
	return w
}

type modelRecord struct{ w *modelWorld }

func (l modelRecord) Write(p []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.record.Write(p)
}

// do sends a request as the agent and returns the answer; a body that breaks off ends
// with its error.
func (w *modelWorld) do(method, path, body string, header ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.upstream.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, "!"+err.Error()...)
	}
	return resp.StatusCode, string(b)
}

// lines closes the broker and returns its record.
func (w *modelWorld) lines() (all []api.NetworkLine) {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	for l := range strings.Lines(w.record.String()) {
		var line api.NetworkLine
		if err := json.Unmarshal([]byte(l), &line); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

func (w *modelWorld) reached() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

// sse writes events, each flushed.
func sse(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		fmt.Fprintf(w, "data: %s\n\n", e)
		_ = http.NewResponseController(w).Flush()
	}
}

const (
	anthropicStart = `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":100,"output_tokens":1}}}`
	anthropicDelta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi \"usage\" {}"}}`
	anthropicEnd   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20}}`
	anthropicStop  = `{"type":"message_stop"}`
	anthropicBody  = `{"model":"large-1","stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

func honest(w http.ResponseWriter, _ *http.Request) {
	sse(w, anthropicStart, anthropicDelta, anthropicEnd, anthropicStop)
}

// The agent's own credentials do not reach the model, and the model's does not reach
// the agent.
//
// proves R-C3, R-D8
func TestTheModelGetsTheCredentialOfTheBroker(t *testing.T) {
	w := newModelWorld(t, api.AnthropicMessages, honest, nil)
	status, body := w.do("POST", "/v1/messages?beta=true&key=mine", anthropicBody, "Authorization", "Bearer mine", "X-Api-Key", "mine", "X-Goog-Api-Key", "mine",
		"Cookie", "mine", "X-Http-Method-Override", "DELETE", "X-Goog-User-Project", "other", "Proxy-Authorization", "mine", "Anthropic-Version", "2023-06-01", "Accept-Encoding", "gzip")
	if status != 200 || !strings.Contains(body, "message_stop") || strings.Contains(body, testKey) {
		t.Fatal(status, body)
	}
	r := w.seen[0]
	if r.RequestURI != "/base/v1/messages?beta=true" || w.bodies[0] != anthropicBody || r.Host != w.upstream.Listener.Addr().String() {
		t.Error(r.RequestURI, r.Host, w.bodies[0])
	}
	want := http.Header{
		"X-Api-Key": {"Key " + testKey}, "Anthropic-Version": {"2023-06-01"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"},
		"Content-Length": {fmt.Sprint(len(anthropicBody))}, "User-Agent": {"Go-http-client/1.1"},
	}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", r.Header, want)
	}
	used := api.Tokens{Input: 10, Output: 20, CacheRead: 100, CacheWrite: 4}
	lines := w.lines()
	if len(lines) != 1 || lines[0].Usage == nil || *lines[0].Usage != used || lines[0].Error != "" || lines[0].Refused != "" ||
		lines[0].Form != "model" || lines[0].Host != "big" || lines[0].Path != "/v1/messages" || lines[0].Status != 200 || lines[0].Received != int64(len(body)) {
		t.Errorf("%+v", lines)
	}
	// 10*3 + 20*15 + 100*0.3 + 4*3 millionths
	if u := w.Usage(); u != (api.ModelUsage{Tokens: used, Requests: 1, Turns: 1, Cost: 372, Currency: "usd"}) {
		t.Errorf("%+v", u)
	}
	if f := w.ModelFault(); f != "" {
		t.Error(f)
	}
}
