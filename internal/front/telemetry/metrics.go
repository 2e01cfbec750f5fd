package telemetry

import (
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	// none is the reason label of a success.
	none = "none"
	// other is the label of an unknown value: a newer worker's step, an unknown call.
	other = "other"
)

// stepNames are the steps of a worker. "setup NAME" is counted as setup.
func stepNames() []string {
	return []string{"integrity", "workspace", "jail", "setup", "baseline", "agent", "capture", "check", other}
}

// classes are the label values for the outcome of a request.
func classes() []string { return []string{"2xx", "4xx", "5xx", "aborted"} }

// workerStates are the states of a worker that a restarted service may find.
func workerStates() []string { return []string{"running", "ended", "absent"} }

// dropCauses are the causes of dropping a span.
func dropCauses() []string { return []string{"queue_full", "export_failed", "shutdown"} }

// metrics count events. The current state is in watched.
type metrics struct {
	outcomes     *prometheus.CounterVec
	accept       prometheus.Histogram
	start        prometheus.Histogram
	whole        *prometheus.HistogramVec
	step         *prometheus.HistogramVec
	recovered    *prometheus.CounterVec
	logDropped   prometheus.Counter
	requests     *prometheus.CounterVec
	entries      *prometheus.CounterVec
	commit       prometheus.Histogram
	group        prometheus.Histogram
	exported     prometheus.Counter
	droppedSpans *prometheus.CounterVec
	build        prometheus.Gauge
	runs         *prometheus.CounterVec
	slots        *prometheus.CounterVec
	tasks        *prometheus.CounterVec
	runCommit    prometheus.Histogram
	swept        prometheus.Counter
	models       *models
	tools        *tools

	routes []string
}

func newMetrics(cfg Config) metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bailiwick", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "bailiwick", Name: name, Help: help, Buckets: buckets}, labels)
	}
	single := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "bailiwick", Name: name, Help: help, Buckets: buckets})
	}
	fast := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow := []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 10800}
	m := metrics{
		outcomes:     counter("dispatch_outcomes_total", "Outcomes of attempts, by outcome and failure reason. A dispatch with a question counts as needs_input and again when it ends.", "outcome", "reason"),
		accept:       single("dispatch_accept_seconds", "Time from a request or an answer to its durable admission.", fast),
		start:        single("dispatch_start_seconds", "Time from the admission of an attempt to the start of its worker.", fast),
		whole:        histogram("dispatch_duration_seconds", "Time from the admission of an attempt to its recorded end.", slow, "outcome"),
		step:         histogram("dispatch_step_seconds", "Duration of a worker's steps.", append(slices.Clone(fast), 30, 60, 300, 1800), "step"),
		recovered:    counter("dispatch_found_total", "Dispatches recovered at the start of the service, by the state of their worker.", "worker"),
		logDropped:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "bailiwick", Name: "dispatch_log_dropped_bytes_total", Help: "Bytes of jail output beyond the log that is kept."}),
		requests:     counter("api_requests_total", "Requests to the API, by call and class of status.", "route", "class"),
		entries:      counter("audit_entries_total", "Entries written to the audit log, by kind. Refused requests count too.", "kind"),
		commit:       single("store_commit_seconds", "Duration of transactions of the state database, including the sync.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}),
		group:        single("store_commit_functions", "Callers that shared one transaction.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}),
		exported:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: "bailiwick", Name: "trace_spans_exported_total", Help: "Spans that the collector accepted."}),
		droppedSpans: counter("trace_spans_dropped_total", "Spans that were not sent to the collector, by cause.", "cause"),
		build: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "bailiwick", Name: "build_info", Help: "Always 1; the labels are the versions of the service and of Go.",
			ConstLabels: prometheus.Labels{"version": cfg.Version, "go_version": runtime.Version()},
		}),
		runs:      counter("run_outcomes_total", "Settled runs, by state.", "state"),
		slots:     counter("schedule_slots_total", "Slots of schedules whose run was submitted, or that were skipped, by reason. Slots skipped together count once.", "state", "reason"),
		tasks:     counter("task_outcomes_total", "Settled tasks, by state and failure reason.", "state", "reason"),
		runCommit: single("run_commit_transitions", "State transitions of runs and tasks that shared one commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}),
		swept:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: "bailiwick", Name: "run_swept_total", Help: "Ended dispatches that the orchestrator found by polling and was not notified of. Each is a bug."}),
		models: &models{
			requests: counter("model_requests_total", "Requests of agents to their models, by subagent. Refused and failed ones count too.", "subagent"),
			tokens:   counter("model_tokens_total", "Tokens that answers of models used, as the broker counted them, by subagent and kind.", "subagent", "kind"),
			cost:     counter("model_cost_total", "Cost of models by the prices of the catalog, by subagent and currency.", "subagent", "currency"),
			refused:  counter("egress_refused_total", "Requests of agents that their broker refused, by subagent.", "subagent"),
			known:    map[[2]string]bool{},
		},
		tools: newTools(counter("tool_calls_total", "Tool calls of agents, by tool, role and outcome. What the role does not have is unknown.", "tool", "role", "outcome"),
			counter("tool_server_failures_total", "Times that a server of tools could not be started, or ended while it was wanted.", "server"),
			histogram("tool_call_seconds", "Time that the server of a tool took to answer an allowed call.", append(slices.Clone(fast), 30, 60, 120, 600), "tool")),
		routes: []string{other},
	}
	for _, c := range cfg.Routes {
		m.routes = append(m.routes, string(c))
	}
	m.build.Set(1)
	m.fill()
	return m
}

// fill creates every possible series, so that the first event of one is an
// increase and not its appearance.
func (m *metrics) fill() {
	for _, e := range api.Events() {
		if !e.Ended() {
			continue
		}
		m.whole.WithLabelValues(string(e))
		if e != api.EventFailed {
			m.outcomes.WithLabelValues(string(e), none)
			continue
		}
		for _, r := range api.Reasons() {
			m.outcomes.WithLabelValues(string(e), string(r))
		}
	}
	each := func(v *prometheus.CounterVec, values []string) {
		for _, s := range values {
			v.WithLabelValues(s)
		}
	}
	for _, r := range api.RunStates() {
		if r.Settled() {
			m.runs.WithLabelValues(string(r))
		}
	}
	for _, state := range api.TaskStates() {
		switch {
		case state == api.TaskFailed:
			for _, r := range api.Reasons() {
				m.tasks.WithLabelValues(string(state), string(r))
			}
		case state.Settled():
			m.tasks.WithLabelValues(string(state), none)
		}
	}
	each(m.recovered, workerStates())
	each(m.droppedSpans, dropCauses())
	for _, k := range record.Kinds() {
		m.entries.WithLabelValues(string(k))
	}
	for _, s := range stepNames() {
		m.step.WithLabelValues(s)
	}
	for _, route := range m.routes {
		for _, class := range classes() {
			m.requests.WithLabelValues(route, class)
		}
	}
}

func (m *metrics) register(to *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{
		m.outcomes, m.accept, m.start, m.whole, m.step, m.recovered, m.logDropped, m.requests, m.entries, m.commit, m.group,
		m.exported, m.droppedSpans, m.build, m.runs, m.slots, m.tasks, m.runCommit, m.swept, m.models.requests, m.models.tokens, m.models.cost, m.models.refused, m.tools.calls, m.tools.failures, m.tools.took, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// oneOf returns s if it is in set, and other if not.
func oneOf(s string, set []string) string {
	if slices.Contains(set, s) {
		return s
	}
	return other
}

func stepName(s string) string {
	first, _, _ := strings.Cut(s, " ")
	return oneOf(first, stepNames())
}
