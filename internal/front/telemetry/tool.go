package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailiwick-dev/bailiwick/api"
)

// maxTools bounds the pairs of tool and role that have series of their own: catalogs come
// and go while a service runs.
const maxTools = 500

// noTool is the label of what a role does not have: agents choose those names.
const noTool = "unknown"

// callOutcomes are the outcomes of a tool call.
func callOutcomes() []string { return []string{"returned", "failed", "denied"} }

// ToolCall is a call of a tool that was denied or has ended.
type ToolCall struct {
	Tool     string // by its id; empty: the role has no such tool
	Role     api.Name
	Allowed  bool
	Failed   bool // an allowed one has no answer, or the tool says that it failed
	Start    time.Time
	Took     time.Duration // of an allowed one, at its server
	Trace    api.Trace     // the span of the attempt; empty: it has none
	Dispatch api.DispatchID
	Number   int64
}

// tools counts the calls of tools.
type tools struct {
	calls, failures *prometheus.CounterVec
	took            *prometheus.HistogramVec

	mu      sync.Mutex
	known   map[[2]string]bool // tool and role; guarded by mu
	servers map[api.Name]bool  // guarded by mu
}

func newTools(calls, failures *prometheus.CounterVec, took *prometheus.HistogramVec) *tools {
	t := &tools{calls: calls, failures: failures, took: took, servers: map[api.Name]bool{}, known: map[[2]string]bool{}}
	t.calls.WithLabelValues(noTool, noTool, "denied")
	for _, o := range callOutcomes() {
		t.calls.WithLabelValues(other, other, o)
	}
	t.took.WithLabelValues(other)
	t.failures.WithLabelValues(other)
	return t
}

// labels are those of a call.
func (t *tools) labels(c *ToolCall) (tool, role string) {
	if c.Tool == "" {
		return noTool, noTool
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [2]string{c.Tool, string(c.Role)}
	if !t.known[key] {
		if len(t.known) == maxTools {
			return other, other
		}
		t.known[key] = true
		for _, o := range callOutcomes() { // the first event of each is an increase
			t.calls.WithLabelValues(c.Tool, string(c.Role), o)
		}
	}
	return c.Tool, string(c.Role)
}

// ToolServerFailed counts a server that could not be started, or has ended.
func (t *Telemetry) ToolServerFailed(server api.Name) {
	k := t.metrics.tools
	k.mu.Lock()
	defer k.mu.Unlock()
	label := string(server)
	switch {
	case k.servers[server]:
	case len(k.servers) == maxTools:
		label = other
	default:
		k.servers[server] = true
	}
	k.failures.WithLabelValues(label).Inc()
}

func (c *ToolCall) outcome() string {
	switch {
	case !c.Allowed:
		return "denied"
	case c.Failed:
		return "failed"
	}
	return "returned"
}

// ToolCalled counts a call of a tool and exports its span, a child of the attempt's.
func (t *Telemetry) ToolCalled(c ToolCall) {
	tool, role := t.metrics.tools.labels(&c)
	t.metrics.tools.calls.WithLabelValues(tool, role, c.outcome()).Inc()
	if c.Allowed {
		t.metrics.tools.took.WithLabelValues(tool).Observe(c.Took.Seconds())
	}
	if t.spans != nil && c.Trace.Sampled() {
		attrs := []attribute.KeyValue{
			attribute.String("bailiwick.dispatch", string(c.Dispatch)), attribute.String("bailiwick.call", strconv.FormatInt(c.Number, 10)),
			attribute.String("bailiwick.tool", tool), attribute.String("bailiwick.role", string(c.Role)), attribute.String("bailiwick.outcome", c.outcome()),
		}
		t.spans.span("tool call", c.Trace.Call(c.Number), c.Trace, c.Start, c.Start.Add(c.Took), trace.SpanKindClient, c.Failed, attrs)
	}
}
