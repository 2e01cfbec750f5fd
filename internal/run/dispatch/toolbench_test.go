package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

const benchManifest = `version: 1
tools:
  - command: query
    description: Reads.
    run: [/bin/query]
    input: {type: object, required: [sql], properties: {sql: {type: string}}}
    roles: [quality]
    tier: observe
subagents:
  - {name: checker, agent: command, command: ["true"], role: quality, tier: observe, target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [quality]
grants:
  - {principal: "local:ann", subagents: [checker], targets: [local], ceiling: observe}
`

const benchAnswer = `{"content":[{"text":"42 rows","type":"text"}]}`

// server is an MCP server over HTTP that answers each call at once, and what calls it.
type benchServer struct {
	url    string
	client http.Client
}

func newBenchServer(b *testing.B) *benchServer {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, benchAnswer)
	}))
	b.Cleanup(s.Close)
	return &benchServer{url: s.URL, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

func (s *benchServer) send(ctx context.Context, message []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read
	return io.ReadAll(resp.Body)
}

// Call implements toolcall.Caller.
func (s *benchServer) Call(ctx context.Context, c toolcall.Call) (toolcall.Answer, error) {
	b, err := s.send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, c.Tool, c.Arguments))
	if err != nil {
		return toolcall.Answer{}, err
	}
	var m struct {
		Result json.RawMessage `json:"result"`
	}
	err = json.Unmarshal(b, &m)
	return toolcall.Answer{Result: m.Result}, err
}

// Closed implements toolcall.Caller.
func (*benchServer) Closed(toolcall.Owner) []string { return nil }

// ClosedSince implements toolcall.Caller.
func (*benchServer) ClosedSince(toolcall.Revision, api.Name, string) time.Time { return time.Time{} }

// End implements toolcall.Caller.
func (s *benchServer) End(api.DispatchID) {}

// noRequests makes no requests for approvals: the benchmark calls a tool that needs none.
type noRequests struct{ gateway.Approvals }

// throughWorker serves h on a channel as that of a worker, and returns a server that
// passes each message to it, as the worker's broker does.
func throughWorker(b *testing.B, h http.Handler) *httptest.Server {
	b.Helper()
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if conn, err := l.Accept(); err == nil {
			serveConn(ctx, conn, h, func() bool { return false })
		}
	})
	channel := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
	}}
	channel.Protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://service/mcp", bytes.NewReader(message))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := channel.RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // read
		w.Header()["Content-Type"] = resp.Header["Content-Type"]
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	b.Cleanup(func() {
		s.Close()
		cancel()
		channel.CloseIdleConnections()
		_ = l.Close()
		done.Wait()
	})
	return s
}

// view is the view of a started attempt of a dispatch with a row.
func (g gate) view(b *testing.B, caller toolcall.Caller) *gateway.View {
	b.Helper()
	gw, err := gateway.New(gateway.Config{Store: g.cfg.Store, Ledger: g.cfg.Ledger, Blobs: g.cfg.Blobs, Registry: g.cfg.Registry, InForce: g.cfg.InForce, Upstream: caller, Approvals: noRequests{}, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	r := testRow(api.NewDispatchID(time.Now()))
	r.record.State, r.record.Subagent, r.record.Role = api.EventStarted, "checker", "quality"
	if err := g.cfg.Store.Update(b.Context(), func(tx *store.Tx) error { return insert(tx, r) }); err != nil {
		b.Fatal(err)
	}
	snap, err := g.cfg.InForce.Current(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	limits := api.DefaultLimits()
	limits.Calls = 1 << 30
	m := &record.Manifest{ID: r.record.ID, Attempt: 1, Principal: "local:ann", Subagent: "checker", Role: "quality", Target: "local", RevisionDigest: snap.Revision.Digest(), Limits: limits}
	v, err := gw.Open(b.Context(), gateway.Attempt{Manifest: m, Revision: snap.Revision, Running: g.newTools(b.Context(), r, nil)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(v.Close)
	return v
}

// BenchmarkToolCall measures tools/call: of the server itself, through a proxy with the
// hops of a call that decides and logs nothing, and through the gateway with both
// entries durable. Everything is in this process, so its processor time is that of the
// whole way, the caller included.
func BenchmarkToolCall(b *testing.B) {
	server := newBenchServer(b)
	bare := throughWorker(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(r.Body)
		if err == nil {
			message, err = server.send(r.Context(), message)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(message)
	}))
	g := newCatalogGate(b, benchManifest)
	gated := throughWorker(b, g.view(b, server))
	for _, callers := range []int{1, 16} {
		for _, way := range []struct{ name, url string }{{"direct", server.url}, {"pass-through", bare.URL}, {"gateway", gated.URL}} {
			b.Run(fmt.Sprintf("%s/callers-%d", way.name, callers), func(b *testing.B) { benchCalls(b, way.url, callers) })
		}
	}
}

func benchCalls(b *testing.B, url string, callers int) {
	to := &benchServer{url: url, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}}
	message := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"query","arguments":{"sql":"select count(*) from orders where day = '2026-11-23'"}}}`)
	one := func() time.Duration {
		from := time.Now()
		answer, err := to.send(b.Context(), message)
		if err != nil || !strings.Contains(string(answer), "42 rows") {
			b.Errorf("%s, %v", answer, err)
		}
		return time.Since(from)
	}
	for range 100 { // excludes one-time work
		one()
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, callers)
	b.ResetTimer()
	began, cpu := time.Now(), processorTime(b)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				took[i] = append(took[i], one())
			}
		})
	}
	all.Wait()
	elapsed, spent := time.Since(began), processorTime(b)-cpu
	b.StopTimer()
	list := slices.Concat(took...)
	slices.Sort(list)
	b.ReportMetric(float64(list[len(list)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs")
	b.ReportMetric(float64(b.N)/elapsed.Seconds(), "calls/s")
	b.ReportMetric(0, "ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
