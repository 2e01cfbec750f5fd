package toolcall

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkCall compares calls through the pool with those of the SDK's client to the
// same server without a jail. Processor time is that of this process.
func BenchmarkCall(b *testing.B) {
	args := json.RawMessage(`{"v":"select * from orders where id = 4711"}`)
	w := newWorld(b, nil)
	w.hostile("honest")
	pool := func(ctx context.Context) error {
		_, err := w.pool.Call(ctx, Call{Owner: w.owner("d-01"), Tool: "do", Arguments: args})
		return err
	}
	over := newWorld(b, nil)
	over.overHTTP(b, func(h http.Handler) http.Handler { return h })
	overHTTP := func(ctx context.Context) error {
		_, err := over.pool.Call(ctx, Call{Owner: over.owner("d-01"), Tool: "do", Arguments: args})
		return err
	}
	dir, _ := programs()
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(b.Context(), &mcp.CommandTransport{Command: exec.Command(filepath.Join(dir, "hostile"), "honest")}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	sdk := func(ctx context.Context) error {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "do", Arguments: args})
		return err
	}
	for _, c := range []struct {
		name string
		call func(context.Context) error
	}{{"pool", pool}, {"http", overHTTP}, {"sdk", sdk}} {
		b.Run(c.name+"/1", func(b *testing.B) {
			if err := c.call(b.Context()); err != nil {
				b.Fatal(err, w.log)
			}
			before := processor()
			for b.Loop() {
				if err := c.call(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processor()-before)/float64(b.N), "cpu-ns/op")
		})
		b.Run(c.name+"/16", func(b *testing.B) {
			b.SetParallelism(8)
			var failed atomic.Value
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := c.call(context.Background()); err != nil {
						failed.Store(err)
					}
				}
			})
			if err := failed.Load(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// overHTTP declares a server of the SDK over HTTP, whose tool answers with its arguments.
func (w *world) overHTTP(b testing.TB, wrap func(http.Handler) http.Handler) {
	w.hostile("honest")
	tool := w.server.Definitions[0]
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for _, d := range w.server.Definitions {
		s.AddTool(&mcp.Tool{Name: d.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	}
	front := httptest.NewServer(wrap(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})))
	b.Cleanup(front.Close)
	b.Cleanup(front.CloseClientConnections)
	tool.Annotations = nil
	w.server.Definitions, w.server.Allow = []api.ToolDefinition{tool}, w.server.Allow[:1]
	w.server.Stdio, w.server.HTTP = nil, &api.HTTPServer{URL: front.URL + "/mcp"}
}

// processor is the processor time of this process in nanoseconds.
func processor() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
