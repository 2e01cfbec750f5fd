package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const serviceConfig = "config/bailiwick/service.yaml"

// configured creates a world with this service configuration.
func configured(t *testing.T, uid int, more string) *world {
	w := newWorld(t, uid)
	w.write(serviceConfig, "version: 1\n"+more, 0o644)
	return w
}

func (w *world) metricsAt() string {
	return "metrics: {listen: \"unix:" + w.path("run/m.sock") + "\"}\n"
}

// page fetches a page from the metrics socket.
func (w *world) page(path string) (int, string) {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.path("run/m.sock"))
	}}}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://metrics"+path, http.NoBody)
	must(w.t, err)
	resp, err := c.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return resp.StatusCode, string(b)
}

// metrics returns all series with their values.
func (w *world) metrics() map[string]float64 {
	w.t.Helper()
	status, text := w.page("/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("metrics: %d %s", status, text)
	}
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
		must(w.t, err)
		all[line[:i]] = v
	}
	return all
}

func TestMetricsCountEvents(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(
			subagent{name: "edit", script: "echo two > a.txt"},
			subagent{name: "fails", script: "exit 3"},
			subagent{name: "slow", script: "echo here; sleep 300"},
			subagent{name: "red", script: "echo two > a.txt", more: "    verify: {command: [\"false\"]}\n"},
			subagent{name: "talks", script: "head -c 3000000 /dev/zero", more: "    limits: {log: 1MiB}\n"},
		)
		w.up()
		if out := w.must("status"); !strings.Contains(out, "metrics     unix:"+w.path("run/m.sock")) {
			t.Errorf("the status does not say where metrics are: %s", out)
		}
		before := w.metrics()
		for range 2 {
			wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
		}
		wantEnd(t, w.dispatch("fails"), api.EventFailed, api.ReasonAgent)
		wantEnd(t, w.dispatch("red", "--source", "repo"), api.EventFailed, api.ReasonVerify)
		talks := w.dispatch("talks")
		wantEnd(t, talks, api.EventFinished, "")
		wantEnd(t, w.dispatch("slow", "--timeout", "1s"), api.EventFailed, api.ReasonTimeout)
		id := w.detached("slow")
		w.awaitLog(id, "here")
		if n := w.metrics()["bailiwick_dispatches_running"]; n != 1 {
			t.Errorf("%v dispatches run", n)
		}
		w.must("dispatch", "cancel", id)
		w.refused(3, nil, "dispatch", "run", "nobody")
		w.refused(1, nil, "dispatch", "run", "edit", "--source", "repo@nothing")
		after := w.metrics()
		for series, want := range map[string]float64{
			`bailiwick_dispatch_outcomes_total{outcome="finished",reason="none"}`:           3,
			`bailiwick_dispatch_outcomes_total{outcome="failed",reason="agent"}`:            1,
			`bailiwick_dispatch_outcomes_total{outcome="failed",reason="verify"}`:           1,
			`bailiwick_dispatch_outcomes_total{outcome="failed",reason="timeout"}`:          1,
			`bailiwick_dispatch_outcomes_total{outcome="failed",reason="lost"}`:             0,
			`bailiwick_dispatch_outcomes_total{outcome="cancelled",reason="none"}`:          1,
			`bailiwick_dispatch_duration_seconds_count{outcome="finished"}`:                 3,
			`bailiwick_dispatch_accept_seconds_count`:                                       7,
			`bailiwick_dispatch_start_seconds_count`:                                        7,
			`bailiwick_dispatch_step_seconds_count{step="agent"}`:                           7,
			`bailiwick_dispatch_step_seconds_count{step="check"}`:                           1,
			`bailiwick_dispatch_log_dropped_bytes_total`:                                    float64(talks.Outcome.LogBytes - talks.Outcome.LogKept),
			`bailiwick_audit_entries_total{kind="dispatch.accepted"}`:                       7,
			`bailiwick_audit_entries_total{kind="dispatch.denied"}`:                         1,
			`bailiwick_audit_entries_total{kind="request.invalid"}`:                         1,
			`bailiwick_api_requests_total{class="4xx",route="POST /v1/runtime/dispatches"}`: 2,
			`bailiwick_dispatches_running`:                                                  0,
			`bailiwick_store_poisoned`:                                                      0,
			`bailiwick_catalog_revision`:                                                    0,
		} {
			if _, ok := before[series]; !ok {
				t.Errorf("%s is missing at the start", series)
			}
			if got := after[series] - before[series]; got != want {
				t.Errorf("%s rose by %v, want %v", series, got, want)
			}
		}
		if after["bailiwick_catalog_revision"] != 1 || after["bailiwick_ready"] != 1 || after["bailiwick_state_disk_free_bytes"] <= 0 || after["bailiwick_store_commit_seconds_count"] <= before["bailiwick_store_commit_seconds_count"] {
			t.Error("a gauge is wrong")
		}
		for series := range after {
			if strings.Contains(series, "edit") || strings.Contains(series, string(talks.ID)) || strings.Contains(series, w.me()) || strings.Contains(series, w.dir) {
				t.Errorf("%s has labels with request data", series)
			}
		}
	})
}

// After a restart counters start at zero and recovered dispatches are counted.
func TestMetricsCountRecoveredWork(t *testing.T) {
	t.Parallel()
	w := gatedCold(t, 0)
	w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
	w.up()
	id, _ := w.begun()
	gone := w.detached("edit", "--source", "repo")
	w.awaitLog(gone, "begun")
	kill(t, w.status().PID)
	for _, pid := range w.workers() {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(b, []byte(gone)) {
			kill(t, pid)
		}
	}
	w.must("up")
	w.openGate()
	wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	wantEnd(t, w.awaitEnd(gone), api.EventFailed, api.ReasonLost)
	m := w.metrics()
	if m[`bailiwick_dispatch_found_total{worker="running"}`] != 1 || m[`bailiwick_dispatch_found_total{worker="ended"}`] != 1 ||
		m[`bailiwick_dispatch_outcomes_total{outcome="failed",reason="lost"}`] != 1 || m[`bailiwick_dispatch_outcomes_total{outcome="finished",reason="none"}`] != 1 {
		t.Errorf("found running %v, ended %v", m[`bailiwick_dispatch_found_total{worker="running"}`], m[`bailiwick_dispatch_found_total{worker="ended"}`])
	}
}

func TestUnreadyServiceIsAlive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	health := func(want int, words string) {
		t.Helper()
		if status, text := w.page("/readyz"); status != want || !strings.Contains(text, words) {
			t.Errorf("readiness: %d %q, want %d %q", status, text, want, words)
		}
		if status, text := w.page("/livez"); status != http.StatusOK || text != "ok\n" {
			t.Errorf("not alive: %d %q", status, text)
		}
		if m := w.metrics(); m["bailiwick_ready"] != map[bool]float64{true: 1}[want == http.StatusOK] {
			t.Errorf("bailiwick_ready is %v", m["bailiwick_ready"])
		}
	}
	health(http.StatusOK, "ok catalog\n")
	trust := w.read("data/bailiwick/trust.json")
	replace := func(text string) {
		must(t, os.WriteFile(w.path("data/bailiwick/trust.json"), []byte(text), 0o644))
		if w.unit != nil {
			w.unit.sync()
		}
	}
	replace("{}")
	health(http.StatusServiceUnavailable, "ok log\nok anchors\nNOT READY catalog\n")
	w.refused(1, []string{"REFUSED: the catalog is refused"}, "status")
	replace(trust)
	health(http.StatusOK, "ok catalog\n")

	filler, err := os.Create(w.path("state/filler"))
	must(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = filler.Write(block)
	}
	must(t, filler.Close())
	health(http.StatusServiceUnavailable, "NOT READY disk\n")
	must(t, os.Remove(w.path("state/filler")))
	eventually(t, "the log's tree is written again", func() bool {
		status, _ := w.page("/readyz")
		return status == http.StatusOK
	})
	health(http.StatusOK, "ok store\n")
}

// Callers cannot add series.
func TestCallersCannotAddMetricSeries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.dispatch("edit")
	// One request of each kind first, since some series of the Go runtime start
	// with the first event.
	names := func(m map[string]float64) (n int) {
		for series := range m {
			if strings.HasPrefix(series, "bailiwick_") {
				n++
			}
		}
		return n
	}
	before := names(w.metrics())
	if before < 100 {
		t.Fatalf("only %d series", before)
	}
	for i := range 200 {
		body := fmt.Sprintf(`{"subagent":"ghost-%d","dispatchId":"dispatch-%d"}`, i, i)
		w.call(http.MethodPost, submit, "application/json", strings.NewReader(body))
		hostile := url.PathEscape(fmt.Sprintf("x%d\"} 1\nbailiwick_evil{a=\"", i))
		w.call(http.MethodGet, "/v1/runtime/dispatches/"+hostile, "", nil)
		w.call(http.MethodGet, "/"+hostile, "", nil)
		w.call("METHOD"+strconv.Itoa(i), "/v1/operator/status", "", nil)
	}
	for i := range 3 {
		w.dispatch("edit", "--id", fmt.Sprintf("mine-%d", i))
	}
	after := w.metrics()
	if names(after) != before {
		t.Errorf("%d series before, %d after", before, names(after))
	}
	if after[`bailiwick_api_requests_total{class="4xx",route="other"}`] < 400 || after[`bailiwick_audit_entries_total{kind="dispatch.denied"}`] < 200 {
		t.Error("positive control: the requests are not counted")
	}
}

func TestUnknownConfigurationRefusesTheStart(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.catalog(subagent{name: "edit", script: "true"})
		for _, c := range []struct {
			text  string
			words []string
		}{
			{"version: 1\nmetrics: {listen: \"0.0.0.0:9464\"}\n", []string{"service.yaml:2:19", "0.0.0.0 is not a loopback address", "unix:/absolute/path"}},
			{"version: 1\ntracing: {otlp: \"http://192.0.2.7:4318\"}\n", []string{"service.yaml:2:17", "not a loopback address", "spans go to this machine only"}},
			{"version: 1\nmetrisc: {}\n", []string{"service.yaml:2:1", `unknown key "metrisc"; did you mean "metrics"?`}},
			{"version: 1\nlog: {format: xml}\n", []string{"service.yaml:2:15", "text, json"}},
			{"log: {format: xml}\n", []string{`"version" is missing`}},
		} {
			w.write(serviceConfig, c.text, 0o644)
			w.refused(1, c.words, "up")
			d := w.try("doctor")
			if d.status != 1 || !strings.Contains(d.stdout, "INVALID configuration") || !strings.Contains(d.stdout, c.words[0]) {
				t.Errorf("doctor: %s", d)
			}
			must(t, os.Rename(w.path(serviceConfig), w.path("other.yaml")))
			w.refused(1, []string{"other.yaml"}, "up", "--config", "other.yaml")
		}
		w.write(serviceConfig, "version: 1\n", 0o666)
		w.refused(1, []string{"writable by other accounts", "chmod go-w"}, "up")
		w.write(serviceConfig, "version: 1\n", 0o600)
		w.up() // positive control
		if s := w.status(); s.ConfigFile != w.path(serviceConfig) || s.Metrics != "" {
			t.Errorf("the status is %+v", s)
		}
	})
}

// Only the service's account can read metrics.
func TestTheMetricsSocketIsForTheServicesAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	// The command uses another protocol, so if it can connect the service
	// responds that the page is not found.
	asks := []string{"status", "--socket", w.path("run/m.sock")}
	w.refused(1, []string{"404"}, asks...)
	// Only the mode of the socket itself denies access.
	must(t, os.Chmod(w.dir, 0o755))
	must(t, os.Chmod(w.path("run"), 0o755))
	w.uid = ordinaryUID
	d := w.try(asks...)
	w.uid = 0
	if d.status == 0 || !strings.Contains(d.stderr, "belongs to another account") {
		t.Errorf("another account reaches the metrics: %s", d)
	}
}

// Log lines are machine-readable: each is one JSON object, whatever text it
// contains, and names its dispatch, attempt and trace.
func TestServiceLogIsAlwaysJSON(t *testing.T) {
	t.Parallel()
	w := configured(t, 0, "log: {format: json, level: debug}\n")
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "edit", script: `printf '\n{"level":"ERROR","dispatch":"forged"}\n\033[31m\377\n'; touch $'outputs/evil\n{}'; kill -9 $PPID; exit 7`},
		subagent{name: "slow", script: "echo here; sleep 300"},
	)
	w.up()
	const secret = "never-to-be-seen-in-a-log"
	w.env = append(w.env, "TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	d := w.dispatch("edit", "--source", "repo", "--set", "key="+secret)
	if d.Trace.ID() != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("the trace is %s", d.Trace)
	}
	for i := range 5 {
		w.call(http.MethodGet, "/"+url.PathEscape(fmt.Sprintf("\n{%d\"\u202e\x1b[31m", i)), "", nil)
		w.call(http.MethodPost, submit, "application/json", strings.NewReader("{\"subagent\":\"\n\\ud800\"}"))
	}
	slow := w.detached("slow")
	w.awaitLog(slow, "here")
	for _, pid := range w.workers() {
		kill(t, pid)
	}
	wantEnd(t, w.awaitEnd(slow), api.EventFailed, api.ReasonLost)
	must(t, os.WriteFile(w.path("data/bailiwick/trust.json"), []byte("{\n\"\x1b"), 0o644))
	w.try("dispatch", "run", "edit")
	log := w.read("state/bailiwick/service.log")
	seen := map[string]bool{}
	for line := range strings.Lines(log) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["msg"] == nil || m["level"] == nil {
			t.Errorf("not a JSON line: %q (%v)", line, err)
			continue
		}
		words, _ := m["msg"].(string)
		seen[words] = true
		if about, ok := m["dispatch"]; ok {
			if _, ok := m["attempt"]; !ok || about == "forged" {
				t.Errorf("a line without its attempt: %s", line)
			}
			if about == string(d.ID) && m["trace"] != d.Trace.ID() {
				t.Errorf("a line without its trace: %s", line)
			}
		}
	}
	for _, words := range []string{"accepted", "started", "ended", "the catalog is refused"} {
		if !seen[words] {
			t.Errorf("no line says %q: %s", words, log)
		}
	}
	if strings.Contains(log, secret) {
		t.Error("the input is in the log")
	}
}
