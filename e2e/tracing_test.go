package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// collectorProgram is the OpenTelemetry Collector that make setup builds.
var collectorProgram = toolProgram("otelcol-0.150.0")

// toolProgram returns a third-party program that make setup builds. If it is
// missing, it is built at first use.
func toolProgram(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path, err := filepath.Abs("../.cache/tools/" + name)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if out, err := exec.Command("make", "-C", "..", path).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return path, nil
	})
}

// span is a span that the collector received.
type span struct {
	TraceID, SpanID, ParentSpanID string
	Name                          string
	Start                         string `json:"startTimeUnixNano"`
	End                           string `json:"endTimeUnixNano"`
	Status                        struct{ Code int }
	Attributes                    []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
}

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

// collector is a running OpenTelemetry Collector, and the spans it forwarded.
type collector struct {
	t        *testing.T
	endpoint string

	mu    sync.Mutex
	spans []span
	text  bytes.Buffer
	more  chan struct{} // receives a value when spans arrive
}

// newCollector starts a collector on a loopback port. It forwards what it
// receives, as JSON, to a server of the test.
func newCollector(t *testing.T, endpoint string) *collector {
	t.Helper()
	c := &collector{t: t, endpoint: endpoint, more: make(chan struct{}, 1)}
	sink := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(sink.Close)
	program, err := collectorProgram()
	must(t, err)
	listen := "{endpoint: \"" + strings.TrimPrefix(endpoint, "http://") + "\"}"
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		listen = "{endpoint: \"" + path + "\", transport: unix}"
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(config, []byte(`
receivers: {otlp: {protocols: {http: `+listen+`}}}
exporters: {otlphttp: {endpoint: "`+sink.URL+`", encoding: json, compression: none, sending_queue: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlphttp]}}
`), 0o600))
	cmd := exec.Command(program, "--config", config)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	var log bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(log.String(), "Everything is ready") {
		n, err := stderr.Read(buf)
		log.Write(buf[:n])
		if err != nil {
			t.Fatalf("the collector does not start: %s", log.String())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return c
}

// take receives what the collector forwards.
func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var doc struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []span }
		}
	}
	if err = errors.Join(err, json.Unmarshal(b, &doc)); err != nil {
		c.t.Errorf("the collector forwarded %q: %v", b, err)
	}
	c.mu.Lock()
	c.text.Write(b)
	for _, rs := range doc.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

// await returns the spans of a trace, by name, once they include a dispatch
// that ended with outcome, and the span of its request.
func (c *collector) await(trace, outcome string) map[string][]span {
	c.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		byName := map[string][]span{}
		whole := false
		c.mu.Lock()
		for _, s := range c.spans {
			if s.TraceID == trace {
				byName[s.Name] = append(byName[s.Name], s)
				whole = whole || s.Name == "dispatch" && s.attribute("bailiwick.outcome") == outcome
			}
		}
		c.mu.Unlock()
		if whole {
			return byName
		}
		select {
		case <-c.more:
		case <-limit:
			c.t.Fatalf("the collector has no complete dispatch in trace %s: %+v", trace, byName)
		}
	}
}

func (c *collector) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	callersEnv   = "TRACEPARENT=00-" + callersTrace + "-" + callersSpan + "-01"
)

// spanNamed returns the only span with a name.
func spanNamed(t *testing.T, spans map[string][]span, name string) span {
	t.Helper()
	if len(spans[name]) != 1 {
		t.Fatalf("%d spans have the name %s: %+v", len(spans[name]), name, spans)
	}
	return spans[name][0]
}

// freePort returns an unused address.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestTraceReachesTheAgent(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]int{"root": 0, "user": ordinaryUID} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, uid)
			c := newCollector(t, freePort(t))
			w.write(serviceConfig, "version: 1\ntracing: {otlp: \""+c.endpoint+"\"}\n", 0o644)
			w.repository("repo", map[string]string{"a.txt": "one\n"})
			w.catalog(
				subagent{name: "edit", script: `echo two > a.txt; printf %s "$TRACEPARENT" > outputs/trace`, more: "    verify: {command: [\"true\"]}\n"},
				subagent{name: "fails", script: "echo never-in-a-span; exit 3"},
			)
			w.up()
			plain := w.env
			w.env = append(w.env, callersEnv)
			d := w.dispatch("edit", "--source", "repo", "--set", "secret=never-in-a-span")
			wantEnd(t, d, api.EventFinished, "")
			spans := c.await(callersTrace, "finished")
			request, whole, attempt := spanNamed(t, spans, "POST /v1/runtime/dispatches"), spanNamed(t, spans, "dispatch"), spanNamed(t, spans, "attempt")
			if request.ParentSpanID != callersSpan || whole.ParentSpanID != request.SpanID || attempt.ParentSpanID != whole.SpanID {
				t.Errorf("caller %s, request %+v, dispatch %+v, attempt %+v", callersSpan, request, whole, attempt)
			}
			if d.Trace.ID() != callersTrace || d.Trace.Span() != request.SpanID {
				t.Errorf("the record has the trace %s", d.Trace)
			}
			for _, step := range []string{"integrity", "workspace", "jail", "baseline", "agent", "capture", "check"} {
				s := spanNamed(t, spans, step)
				if s.ParentSpanID != attempt.SpanID || s.Start < attempt.Start || s.End > attempt.End || s.Start > s.End {
					t.Errorf("step %+v of attempt %+v", s, attempt)
				}
			}
			if whole.attribute("bailiwick.dispatch") != string(d.ID) || whole.attribute("bailiwick.subagent") != "edit" || attempt.attribute("bailiwick.attempt") != "1" {
				t.Errorf("the attributes of the dispatch are %+v", whole.Attributes)
			}
			// Spans of the agent are children of its attempt.
			if got, want := w.must("dispatch", "outputs", string(d.ID), "trace"), "00-"+callersTrace+"-"+attempt.SpanID+"-01"; got != want {
				t.Errorf("the agent received %q, want %q", got, want)
			}
			if out := w.must("dispatch", "show", string(d.ID)); !strings.Contains(out, callersTrace) {
				t.Errorf("the trace is not shown: %s", out)
			}

			// An invalid header starts a new trace.
			w.env = append(plain, "TRACEPARENT=00-"+strings.ToUpper(callersTrace)+"-"+callersSpan+"-01")
			d = w.dispatch("fails")
			wantEnd(t, d, api.EventFailed, api.ReasonAgent)
			if d.Trace.ID() == callersTrace || d.Trace.Check() != nil || d.Trace == "" {
				t.Errorf("the trace is %q", d.Trace)
			}
			spans = c.await(d.Trace.ID(), "failed")
			whole = spanNamed(t, spans, "dispatch")
			if request = spanNamed(t, spans, "POST /v1/runtime/dispatches"); request.ParentSpanID != "" || whole.ParentSpanID != request.SpanID {
				t.Errorf("request %+v, dispatch %+v", request, whole)
			}
			if whole.attribute("bailiwick.reason") != "agent" || whole.Status.Code != 2 {
				t.Errorf("the dispatch is %+v", whole)
			}
			if strings.Contains(c.received(), "never-in-a-span") || strings.Contains(c.received(), w.me()) {
				t.Error("spans contain input, output or the principal")
			}
		})
	}
}

// An attempt resumed by an answer belongs to the trace of the dispatch, with
// its own span, whichever caller answered.
func TestTraceContinuesAfterAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	c := newCollector(t, freePort(t))
	w.write(serviceConfig, "version: 1\ntracing: {otlp: \""+c.endpoint+"\"}\n", 0o644)
	w.catalog(subagent{name: "asks", script: `printf %s "$TRACEPARENT" > outputs/trace
if [ ! -e inputs/resume.json ]; then echo '{"question": "Go on?"}' > .bailiwick/question.json; fi`})
	w.up()
	plain := w.env
	w.env = append(w.env, callersEnv)
	id := string(w.dispatch("asks").ID)
	w.env = plain
	w.must("dispatch", "answer", id, "yes", "-q")
	wantEnd(t, w.show(id), api.EventFinished, "")
	spans := c.await(callersTrace, "finished")
	whole := spanNamed(t, spans, "dispatch")
	if len(spans["attempt"]) != 2 || len(spans["agent"]) != 2 {
		t.Fatalf("the attempts are %+v", spans["attempt"])
	}
	first, second := spans["attempt"][0], spans["attempt"][1]
	if first.ParentSpanID != whole.SpanID || second.ParentSpanID != whole.SpanID || first.SpanID == second.SpanID ||
		first.attribute("bailiwick.outcome") != "needs_input" || second.attribute("bailiwick.outcome") != "finished" {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if got, want := w.must("dispatch", "outputs", id, "trace"), "00-"+callersTrace+"-"+second.SpanID+"-01"; got != want {
		t.Errorf("the agent received %q, want %q", got, want)
	}
}

// A dispatch that a restarted service adopts ends in the trace in which it
// started.
func TestTraceContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	w := gatedCold(t, 0)
	c := newCollector(t, "unix:"+w.path("run/otlp.sock"))
	w.write(serviceConfig, "version: 1\ntracing: {otlp: \""+c.endpoint+"\"}\n", 0o644)
	w.up()
	w.env = append(w.env, callersEnv)
	id, _ := w.begun()
	before := w.show(id)
	kill(t, w.status().PID)
	w.must("up")
	w.openGate()
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	if d.Trace != before.Trace {
		t.Errorf("the trace was %s and is %s", before.Trace, d.Trace)
	}
	spans := c.await(callersTrace, "finished")
	whole, attempt := spanNamed(t, spans, "dispatch"), spanNamed(t, spans, "attempt")
	if whole.ParentSpanID != before.Trace.Span() || attempt.ParentSpanID != whole.SpanID || spanNamed(t, spans, "agent").ParentSpanID != attempt.SpanID {
		t.Errorf("below %s: dispatch %+v, attempt %+v", before.Trace, whole, attempt)
	}
}

// A missing or unresponsive collector affects no dispatch.
func TestCollectorFailureAffectsNoDispatch(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	must(t, err)
	defer deaf.Close()
	for name, endpoint := range map[string]string{"absent": freePort(t), "deaf": "http://" + deaf.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.write(serviceConfig, "version: 1\n"+w.metricsAt()+"tracing: {otlp: \""+endpoint+"\"}\n", 0o644)
			w.catalog(subagent{name: "edit", script: "true"})
			w.up()
			for range 3 {
				wantEnd(t, w.dispatch("edit"), api.EventFinished, "")
			}
			if m := w.metrics(); m["bailiwick_trace_spans_exported_total"] != 0 || m["bailiwick_ready"] != 1 {
				t.Errorf("exported %v, ready %v", m["bailiwick_trace_spans_exported_total"], m["bailiwick_ready"])
			}
			w.must("down")
			if log := w.read("state/bailiwick/service.log"); !strings.Contains(log, "spans") {
				t.Errorf("the log does not report it: %s", log)
			}
		})
	}
}
