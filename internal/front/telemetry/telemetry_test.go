package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func newTelemetry(t *testing.T, collector Address) *Telemetry {
	t.Helper()
	tel, err := New(Config{
		Version: "1.2.3", Collector: collector, Routes: []api.Call{"GET /a", "POST /b"}, Listen: listenUnix, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := tel.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return tel
}

func well(context.Context) State {
	return State{Running: 3, Revision: 7, Free: 10, Size: 20, Checks: []Check{{"store", true}, {"catalog", true}}, Queues: []Queue{{Name: "default", Slots: 8, Ready: 5, Running: 3, Runs: 2}}, Budgets: []Budget{{Grant: "night", Of: "cost", Currency: "usd", Limit: 20, Spent: 1.5, Reserved: 4}}}
}

func series(t *testing.T, tel *Telemetry) int {
	t.Helper()
	n, err := testutil.GatherAndCount(tel.registry)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ended returns an ended dispatch.
func ended(id string, state api.Event, reason api.Reason) api.Dispatch {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started, end := at.Add(20*time.Millisecond), at.Add(3*time.Second)
	return api.Dispatch{
		ID: api.DispatchID(id), Attempt: 1, State: state, Reason: reason, AcceptedAt: at, StartedAt: &started, EndedAt: &end,
		Outcome: &api.ResultSummary{LogBytes: 50, LogKept: 20, Steps: []api.Step{
			{Name: "jail", At: started, Seconds: .5}, {Name: "setup tools", At: started.Add(time.Second), Seconds: .25}, {Name: "agent", At: started.Add(2 * time.Second), Seconds: .75},
		}},
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	tel := newTelemetry(t, Address{})
	tel.Watch(well)
	problems, err := testutil.GatherAndLint(tel.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := tel.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); !strings.HasPrefix(name, "bailiwick_") && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s has no prefix of ours", name)
		}
	}
}

func TestMetricsCountEvents(t *testing.T) {
	tel := newTelemetry(t, Address{})
	tel.Watch(well)
	for range 2 {
		tel.Ended(ended("a", api.EventFailed, api.ReasonVerify))
	}
	d := ended("a", api.EventFinished, "")
	tel.Accepted(d, 3*time.Millisecond)
	tel.Started(d)
	tel.Ended(d)
	tel.Recovered("running")
	tel.Entry(record.KindDispatchDenied)
	tel.Request(Request{Route: "GET /a", Status: 204})
	tel.Request(Request{Route: "GET /a", Status: 403})
	tel.Commit(4)()
	tel.TaskSettled(api.TaskFailed, api.ReasonLost)
	tel.TaskSettled(api.TaskSkipped, api.ReasonLost) // the reason of another
	tel.RunSettled(api.RunFailed)
	tel.Committed(3)
	tel.Swept(2)
	d.Subagent, d.Outcome.LogBytes, d.Outcome.Refusals = "review", 0, &api.Refusals{Count: 2}
	d.Outcome.Usage.Model = &api.ModelUsage{Tokens: api.Tokens{Input: 100, Output: 20}, Requests: 3, Turns: 1, Cost: 1_500_000, Currency: "usd"}
	d.State, d.Outcome.Question = api.EventNeedsInput, &api.Artifact{}
	tel.Ended(d)
	tel.ToolCalled(ToolCall{Tool: "warehouse/query", Role: "quality", Allowed: true, Took: 2 * time.Second})
	tel.ToolCalled(ToolCall{Tool: "warehouse/query", Role: "quality", Allowed: true, Failed: true})
	tel.ToolCalled(ToolCall{Tool: "warehouse/query", Role: "transform"})
	tel.ToolCalled(ToolCall{Role: "quality"})
	d.State = api.EventCancelled // the question was not answered: nothing more was used
	tel.Ended(d)
	if err := testutil.GatherAndCompare(tel.registry, strings.NewReader(`
# HELP bailiwick_budget_limit What a grant may spend today.
# TYPE bailiwick_budget_limit gauge
bailiwick_budget_limit{currency="usd",grant="night",of="cost"} 20
# HELP bailiwick_budget_reserved What attempts of today that have not ended may spend of it.
# TYPE bailiwick_budget_reserved gauge
bailiwick_budget_reserved{currency="usd",grant="night",of="cost"} 4
# HELP bailiwick_budget_spent What attempts of today that have ended spent of it.
# TYPE bailiwick_budget_spent gauge
bailiwick_budget_spent{currency="usd",grant="night",of="cost"} 1.5
# HELP bailiwick_dispatch_log_dropped_bytes_total Bytes of jail output beyond the log that is kept.
# TYPE bailiwick_dispatch_log_dropped_bytes_total counter
bailiwick_dispatch_log_dropped_bytes_total 90
# HELP bailiwick_dispatches_running Dispatches that have a worker.
# TYPE bailiwick_dispatches_running gauge
bailiwick_dispatches_running 3
# HELP bailiwick_queue_tasks_ready Tasks of a queue that wait for a free slot.
# TYPE bailiwick_queue_tasks_ready gauge
bailiwick_queue_tasks_ready{queue="default"} 5
# HELP bailiwick_ready 1 when every check passes.
# TYPE bailiwick_ready gauge
bailiwick_ready 1
`), "bailiwick_budget_limit", "bailiwick_budget_reserved", "bailiwick_budget_spent", "bailiwick_dispatch_log_dropped_bytes_total", "bailiwick_dispatches_running", "bailiwick_queue_tasks_ready", "bailiwick_ready"); err != nil {
		t.Error(err)
	}
	for want, got := range map[string]float64{
		"2 failed, verify":    testutil.ToFloat64(tel.metrics.outcomes.WithLabelValues("failed", "verify")),
		"1 finished":          testutil.ToFloat64(tel.metrics.outcomes.WithLabelValues("finished", "none")),
		"0 failed, lost":      testutil.ToFloat64(tel.metrics.outcomes.WithLabelValues("failed", "lost")),
		"1 found running":     testutil.ToFloat64(tel.metrics.recovered.WithLabelValues("running")),
		"1 task failed, lost": testutil.ToFloat64(tel.metrics.tasks.WithLabelValues("failed", "lost")),
		"1 task skipped":      testutil.ToFloat64(tel.metrics.tasks.WithLabelValues("skipped", "none")),
		"1 run failed":        testutil.ToFloat64(tel.metrics.runs.WithLabelValues("failed")),
		"0 runs done":         testutil.ToFloat64(tel.metrics.runs.WithLabelValues("done")),
		"3 model requests":    testutil.ToFloat64(tel.metrics.models.requests.WithLabelValues("review")),
		"100 input tokens":    testutil.ToFloat64(tel.metrics.models.tokens.WithLabelValues("review", "input")),
		"1.5 usd":             testutil.ToFloat64(tel.metrics.models.cost.WithLabelValues("review", "usd")),
		"2 refused":           testutil.ToFloat64(tel.metrics.models.refused.WithLabelValues("review")),
		"1 returned":          testutil.ToFloat64(tel.metrics.tools.calls.WithLabelValues("warehouse/query", "quality", "returned")),
		"1 failed":            testutil.ToFloat64(tel.metrics.tools.calls.WithLabelValues("warehouse/query", "quality", "failed")),
		"0 denied":            testutil.ToFloat64(tel.metrics.tools.calls.WithLabelValues("warehouse/query", "quality", "denied")),
		"1 denied":            testutil.ToFloat64(tel.metrics.tools.calls.WithLabelValues("warehouse/query", "transform", "denied")),
		"1 unknown":           testutil.ToFloat64(tel.metrics.tools.calls.WithLabelValues("unknown", "unknown", "denied")),
		"2 swept":             testutil.ToFloat64(tel.metrics.swept),
		"1 denial":            testutil.ToFloat64(tel.metrics.entries.WithLabelValues("dispatch.denied")),
		"1 answered with 4xx": testutil.ToFloat64(tel.metrics.requests.WithLabelValues("GET /a", "4xx")),
	} {
		if !strings.HasPrefix(want, fmt.Sprint(got)) {
			t.Errorf("want %s, got %v", want, got)
		}
	}
}

// Hostile labels do not add series. The positive control is a series that does.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	tel := newTelemetry(t, Address{})
	tel.Watch(well)
	hostile := func(i int) string { return fmt.Sprintf("x%d\n# HELP evil\"} 1", i) }
	one := func(i int) {
		d := ended(hostile(i), api.Event(hostile(i)), api.Reason(hostile(i)))
		d.Subagent, d.Principal, d.Target = api.Name(hostile(i)), api.Principal(hostile(i)), api.Name(hostile(i))
		d.Outcome.Steps = append(d.Outcome.Steps, api.Step{Name: hostile(i)})
		tel.Accepted(d, 0)
		tel.Started(d)
		tel.Ended(d)
		used := ended(hostile(i), api.EventFinished, "")
		used.Subagent, used.Outcome.Usage.Model = api.Name(hostile(i)), &api.ModelUsage{Cost: 1, Currency: hostile(i)}
		tel.Ended(used)
		tel.Ended(ended(hostile(i), api.EventFailed, api.Reason(hostile(i))))
		tel.Recovered(hostile(i))
		tel.Entry(record.Kind(hostile(i)))
		tel.Request(Request{Route: hostile(i), Status: i})
		tel.TaskSettled(api.TaskState(hostile(i)), api.Reason(hostile(i)))
		tel.TaskSettled(api.TaskFailed, api.Reason(hostile(i)))
		tel.RunSettled(api.RunState(hostile(i)))
		tel.ToolServerFailed(api.Name(hostile(i)))
		tel.ToolCalled(ToolCall{Tool: hostile(i), Role: api.Name(hostile(i)), Allowed: i%2 == 0})
	}
	for i := range max(maxSubagents, maxTools) + 1 {
		one(1000 + i)
	}
	before := series(t, tel)
	for i := range 200 {
		one(i)
	}
	if after := series(t, tel); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
	tel.metrics.requests.WithLabelValues(hostile(1), "2xx")
	if series(t, tel) != before+1 {
		t.Error("positive control: one more series is not counted")
	}
}

// get requests a page over a socket.
func get(t *testing.T, a Address, path, host string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, a.network, a.where)
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func listenAt(t *testing.T, s string) Address {
	t.Helper()
	a, err := ParseListen(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestHealthDistinguishesLiveFromReady(t *testing.T) {
	tel := newTelemetry(t, Address{})
	a, err := tel.Serve(listenAt(t, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if status, text := get(t, a, "/readyz", "localhost"); status != http.StatusServiceUnavailable || !strings.Contains(text, "starting") {
		t.Errorf("before it is open: %d %s", status, text)
	}
	tel.Watch(well)
	if status, text := get(t, a, "/readyz", "127.0.0.1:1"); status != http.StatusOK || text != "ok store\nok catalog\n" {
		t.Errorf("well: %d %q", status, text)
	}
	tel.Watch(func(ctx context.Context) State {
		s := well(ctx)
		s.Checks[1].OK, s.Poisoned = false, true
		return s
	})
	if status, text := get(t, a, "/readyz", "localhost"); status != http.StatusServiceUnavailable || text != "ok store\nNOT READY catalog\n" {
		t.Errorf("without a catalog: %d %q", status, text)
	}
	if status, _ := get(t, a, "/livez", "localhost"); status != http.StatusOK {
		t.Errorf("not alive: %d", status)
	}
	_, text := get(t, a, "/metrics", "localhost")
	for _, line := range []string{`bailiwick_check_ok{check="catalog"} 0`, "bailiwick_store_poisoned 1", "bailiwick_ready 0", "bailiwick_catalog_revision 7"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if status, _ := get(t, a, "/debug/pprof/", "localhost"); status != http.StatusNotFound {
		t.Errorf("another page: %d", status)
	}
}

// A foreign web page cannot read metrics by DNS rebinding to a loopback address.
func TestAForeignHostHeaderIsRefused(t *testing.T) {
	tel := newTelemetry(t, Address{})
	a, err := tel.Serve(listenAt(t, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"evil.test": http.StatusForbidden, "evil.test:80": http.StatusForbidden, "127.0.0.1.evil.test": http.StatusForbidden, "10.0.0.1": http.StatusForbidden,
		"127.0.0.1": http.StatusOK, "localhost:9": http.StatusOK, "[::1]:9": http.StatusOK,
	} {
		if status, _ := get(t, a, "/livez", host); status != want {
			t.Errorf("%s: %d, want %d", host, status, want)
		}
	}
}

func TestCloseRemovesItsOwnSocketOnly(t *testing.T) {
	for name, replaced := range map[string]bool{"its own": false, "the next service's": true} {
		path := filepath.Join(t.TempDir(), "metrics.sock")
		tel := newTelemetry(t, Address{})
		a, err := tel.Serve(listenAt(t, "unix:"+path))
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := get(t, a, "/livez", "any.name"); status != http.StatusOK {
			t.Errorf("%s: the socket does not answer", name)
		}
		if replaced {
			if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		if err := tel.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); (err == nil) != replaced {
			t.Errorf("%s: after Close: %v", name, err)
		}
	}
}

// listenUnix stands for httpguard.ListenUnix.
func listenUnix(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		l.SetUnlinkOnClose(false)
	}
	return l, err
}

// collector is a receiver with a handler of the test. e2e uses the real one.
func collector(t *testing.T, h http.HandlerFunc) Address {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	a, err := ParseCollector(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestASlowCollectorDelaysNothing(t *testing.T) {
	release := make(chan struct{})
	a := collector(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	tel := newTelemetry(t, a)
	d := ended("a", api.EventFinished, "")
	d.Trace = api.NewTrace(true)
	const n = 2000 // five spans each: far more than wait
	for range n {
		tel.Ended(d) // would not return if it waited
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := tel.Close(ctx); err != nil {
		t.Error(err)
	}
	lost := 0.
	for _, cause := range dropCauses() {
		lost += testutil.ToFloat64(tel.metrics.droppedSpans.WithLabelValues(cause))
	}
	if lost != 5*n {
		t.Errorf("%v spans are counted as dropped, want %d", lost, 5*n)
	}
	if testutil.ToFloat64(tel.metrics.droppedSpans.WithLabelValues("queue_full")) == 0 {
		t.Error("the queue has no end")
	}
}

func TestSpansAreSentOnlyToTheCollector(t *testing.T) {
	elsewhere := 0
	other := collector(t, func(http.ResponseWriter, *http.Request) { elsewhere++ })
	got := 0
	a := collector(t, func(w http.ResponseWriter, r *http.Request) {
		got++
		http.Redirect(w, r, "http://"+other.where+r.URL.Path, http.StatusTemporaryRedirect)
	})
	t.Setenv("HTTP_PROXY", "http://"+other.where)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+other.where)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"+other.where)
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tel := newTelemetry(t, a)
	d := ended("a", api.EventFinished, "")
	d.Trace = api.NewTrace(true)
	tel.Ended(d)
	if err := tel.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got == 0 || elsewhere != 0 {
		t.Errorf("the collector was asked %d times, something else %d times", got, elsewhere)
	}
}

func TestATraceThatIsNotSampledMakesNoSpans(t *testing.T) {
	got := 0
	a := collector(t, func(http.ResponseWriter, *http.Request) { got++ })
	tel := newTelemetry(t, a)
	d := ended("a", api.EventFinished, "")
	d.Trace = api.NewTrace(false)
	tel.Ended(d)
	tel.ToolCalled(ToolCall{Tool: "warehouse/query", Allowed: true, Trace: d.Trace.Attempt("a", 1), Number: 1})
	tel.Request(Request{Route: "POST /b", Status: 200, Trace: d.Trace})
	tel.Request(Request{Route: "POST /b", Status: 200, Trace: d.Trace.Child(), Parent: d.Trace})
	tel.Request(Request{Route: "GET /a", Status: 200})
	if err := tel.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got != 0 {
		t.Error("spans were sent")
	}
}
