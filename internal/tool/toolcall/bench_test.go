package toolcall

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkCall compares calls through the pool with those of the SDK's client to the
// same server without a jail. Processor time is that of this process.
func BenchmarkCall(b *testing.B) {
	args := json.RawMessage(`{"v":"select * from orders where id = 4711"}`)
	w := newWorld(b, nil)
	w.hostile("honest")
	pool := func(ctx context.Context) error {
		_, err := w.pool.Call(ctx, Call{Owner: w.owner("d-1"), Tool: "do", Arguments: args})
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
	}{{"pool", pool}, {"sdk", sdk}} {
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

// processor is the processor time of this process in nanoseconds.
func processor() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
