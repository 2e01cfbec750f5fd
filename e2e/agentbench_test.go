package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// BenchmarkCodingAgent measures one edit of a file by each agent program, with a scripted
// model: bare, as a person runs it, and as a dispatch.
func BenchmarkCodingAgent(b *testing.B) {
	w := newCodingWorld(b, 0, nil)
	for i, c := range coders(b) {
		b.Run(c.name+"/Bare", func(b *testing.B) { w.in(b).benchBare(bare(agents(b)[i])) })
		b.Run(c.name+"/Dispatch", func(b *testing.B) {
			w := w.in(b)
			w.script(c.name, edit())
			var took []time.Duration
			for b.Loop() {
				from := time.Now()
				if d := w.code(c.name); d.State != api.EventFinished {
					b.Fatalf("%s %s: %s", d.State, d.Reason, d.Message)
				}
				took = append(took, time.Since(from))
			}
			reportMiddle(b, took)
		})
	}
}

// bare is a client without an MCP server, that may use its own tools.
func bare(a agent) agent {
	a.command = slices.DeleteFunc(slices.Clone(a.command), func(s string) bool {
		return strings.Contains(s, "mcp__bailiwick") || strings.Contains(s, "mcp_servers") || s == "--allowedTools"
	})
	switch a.name {
	case "claude-code":
		a.command, a.env = append(a.command, "--dangerously-skip-permissions"), append(a.env, "IS_SANDBOX=1")
	case "codex":
		a.command[len(a.command)-1] = "--dangerously-bypass-approvals-and-sandbox" // the option -c has lost its value
	}
	return a
}

func (w *codingWorld) benchBare(a agent) {
	b := w.t.(*testing.B)
	m := &scriptmodel.Server{Script: edit()}
	url := w.island.serve(b, m)
	config := map[string]string{"claude-code": `{"mcpServers":{}}`, "opencode": "{}", "gemini": "{}"}[a.name]
	var took []time.Duration
	for b.Loop() {
		w.write("home-"+a.name+"/work/a.txt", "one\n", 0o644)
		from := time.Now()
		w.runAgent(w.island, a, config, url)
		took = append(took, time.Since(from))
		if got := lines(w.path("home-"+a.name, "work", "a.txt")); !slices.Equal(got, []string{"two"}) {
			b.Fatalf("%s leaves %q", a.name, got)
		}
	}
	reportMiddle(b, took)
}

// reportMiddle reports the median of what iterations took.
func reportMiddle(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(0, "ns/op")
}
