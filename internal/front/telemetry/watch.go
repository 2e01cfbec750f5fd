package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is the current state of the service.
type State struct {
	Running  int    // dispatches with a worker
	Poisoned bool   // the store refuses everything until a restart
	Revision uint64 // of the catalog; 0: none applied
	Free     uint64 // bytes free on the disk of the state directory
	Size     uint64 // of that disk, in bytes
	// Of the log's tree.
	LogSize    uint64  // entries in it
	LogCovered uint64  // entries covered by its newest checkpoint
	LogLag     float64 // seconds since the oldest uncovered entry; 0: all are covered
	Checks     []Check
	Queues     []Queue // empty without an orchestrator
	Anchors    []Anchor
	Receivers  []Receiver
	Budgets    []Budget
	// Of tools.
	CallsOut      int // calls whose server has not answered yet
	ApprovalsOpen int // requests that wait for people
	ToolSessions  int // with servers of tools
}

// Receiver is the state of a receiver of notifications. Its name is from the
// service's configuration.
type Receiver struct {
	Name, Kind string
	Pending    int   // messages that are due
	Delivered  int64 // since the receiver was configured
	Dropped    int64 // that expired undelivered
	OK         bool  // whether the last try succeeded
}

// Queue is the state of a queue of runs. Its name is from the service's
// configuration.
type Queue struct {
	Name           string
	Slots          int
	Ready, Running int // tasks
	Runs           int // not settled
}

// MaxBudgets bounds the budgets of a State: catalogs come and go while a service runs.
const MaxBudgets = 200

// Budget is one bound of the budget per day of a grant, whose name is from the catalog.
type Budget struct {
	Grant, Of              string // dispatches, tokens, cost or wall, which is in seconds
	Currency               string // of a cost
	Limit, Spent, Reserved float64
}

// Anchor is the state of an anchor of the log. Its name is from the service's
// configuration.
type Anchor struct {
	Name, Kind string
	Size       uint64  // entries of the largest anchored checkpoint
	Behind     uint64  // entries of the log beyond that
	At         float64 // when it was anchored, as a Unix time; 0: never
	OK         bool    // whether the last attempt succeeded
}

// Check is a condition of readiness. Its failure is explained in the service's
// log and status, not here, where everybody who can connect sees it.
type Check struct {
	Name string // one word
	OK   bool
}

// Ready reports whether all checks pass. A state without checks is not ready.
func (s State) Ready() bool {
	for _, c := range s.Checks {
		if !c.OK {
			return false
		}
	}
	return len(s.Checks) > 0
}

// watched reads the state on demand, one read at a time.
type watched struct {
	mu   sync.Mutex                  // held during a read
	read func(context.Context) State // nil before Watch; guarded by mu
}

// readTimeout bounds one read of the state.
const readTimeout = 5 * time.Second

// Watch sets the function that reads the state. Until then the service is live
// and not ready.
func (t *Telemetry) Watch(read func(context.Context) State) {
	t.watched.mu.Lock()
	defer t.watched.mu.Unlock()
	t.watched.read = read
}

func (w *watched) state(ctx context.Context) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.read == nil {
		return State{}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return w.read(ctx)
}

// gauge is one number of a T.
type gauge[T any] struct {
	desc  *prometheus.Desc
	value func(T) float64
}

func newGauge[T any](name, help string, value func(T) float64, labels ...string) gauge[T] {
	return gauge[T]{prometheus.NewDesc("bailiwick_"+name, help, labels, nil), value}
}

func gauges() []gauge[State] {
	return []gauge[State]{
		newGauge("dispatches_running", "Dispatches that have a worker.", func(s State) float64 { return float64(s.Running) }),
		newGauge("catalog_revision", "Number of the catalog revision in force; 0 without a valid one.", func(s State) float64 { return float64(s.Revision) }),
		newGauge("state_disk_free_bytes", "Space that the service's account can still use on the disk of the state directory.", func(s State) float64 { return float64(s.Free) }),
		newGauge("state_disk_size_bytes", "Size of the disk of the state directory.", func(s State) float64 { return float64(s.Size) }),
		newGauge("log_tree_size", "Entries in the tree over the log.", func(s State) float64 { return float64(s.LogSize) }),
		newGauge("log_checkpoint_size", "Entries that the newest signed checkpoint covers.", func(s State) float64 { return float64(s.LogCovered) }),
		newGauge("log_checkpoint_lag_seconds", "Age of the oldest entry that no signed checkpoint covers; 0 if all are covered.", func(s State) float64 { return s.LogLag }),
		newGauge("tool_calls_out", "Tool calls whose server has not answered yet.", func(s State) float64 { return float64(s.CallsOut) }),
		newGauge("tool_sessions", "Open sessions with servers of tools.", func(s State) float64 { return float64(s.ToolSessions) }),
		newGauge("approvals_open", "Requests for an approval that wait for people.", func(s State) float64 { return float64(s.ApprovalsOpen) }),
		newGauge("store_poisoned", "1 when the state database refuses everything until the service is restarted.", func(s State) float64 { return truth(s.Poisoned) }),
		newGauge("ready", "1 when every check passes.", func(s State) float64 { return truth(s.Ready()) }),
	}
}

func checkGauges() []gauge[Check] {
	return []gauge[Check]{newGauge("check_ok", "Whether a condition of readiness holds; 1 when it does.", func(c Check) float64 { return truth(c.OK) }, "check")}
}

func queueGauges() []gauge[Queue] {
	return []gauge[Queue]{
		newGauge("queue_slots", "Tasks of a queue that may run at once.", func(q Queue) float64 { return float64(q.Slots) }, "queue"),
		newGauge("queue_tasks_running", "Running tasks of a queue.", func(q Queue) float64 { return float64(q.Running) }, "queue"),
		newGauge("queue_tasks_ready", "Tasks of a queue that wait for a free slot.", func(q Queue) float64 { return float64(q.Ready) }, "queue"),
		newGauge("queue_runs_open", "Runs of a queue that are not settled.", func(q Queue) float64 { return float64(q.Runs) }, "queue"),
	}
}

func anchorGauges() []gauge[Anchor] {
	return []gauge[Anchor]{
		newGauge("anchor_entries", "Entries of the largest checkpoint that an anchor has given a receipt for.", func(a Anchor) float64 { return float64(a.Size) }, "anchor", "kind"),
		newGauge("anchor_behind_entries", "Entries of the log beyond that.", func(a Anchor) float64 { return float64(a.Behind) }, "anchor", "kind"),
		newGauge("anchor_last_seconds", "Unix time of that receipt; 0: never.", func(a Anchor) float64 { return a.At }, "anchor", "kind"),
		newGauge("anchor_ok", "1 when the last attempt to anchor succeeded.", func(a Anchor) float64 { return truth(a.OK) }, "anchor", "kind"),
	}
}

func receiverGauges() []gauge[Receiver] {
	return []gauge[Receiver]{
		newGauge("notify_pending", "Messages for a receiver that are due.", func(r Receiver) float64 { return float64(r.Pending) }, "receiver", "kind"),
		newGauge("notify_delivered", "Messages delivered to a receiver since it was configured.", func(r Receiver) float64 { return float64(r.Delivered) }, "receiver", "kind"),
		newGauge("notify_dropped", "Messages for a receiver that expired undelivered.", func(r Receiver) float64 { return float64(r.Dropped) }, "receiver", "kind"),
		newGauge("notify_ok", "1 when the last try to reach a receiver succeeded.", func(r Receiver) float64 { return truth(r.OK) }, "receiver", "kind"),
	}
}

func budgetGauges() []gauge[Budget] {
	labels := []string{"grant", "of", "currency"}
	return []gauge[Budget]{
		newGauge("budget_limit", "What a grant may spend today.", func(b Budget) float64 { return b.Limit }, labels...),
		newGauge("budget_spent", "What attempts of today that have ended spent of it.", func(b Budget) float64 { return b.Spent }, labels...),
		newGauge("budget_reserved", "What attempts of today that have not ended may spend of it.", func(b Budget) float64 { return b.Reserved }, labels...),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (w *watched) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, gauges())
	describe(ch, checkGauges())
	describe(ch, queueGauges())
	describe(ch, anchorGauges())
	describe(ch, receiverGauges())
	describe(ch, budgetGauges())
}

func describe[T any](ch chan<- *prometheus.Desc, gauges []gauge[T]) {
	for _, g := range gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (w *watched) Collect(ch chan<- prometheus.Metric) {
	s := w.state(context.Background())
	collect(ch, gauges(), s)
	for _, c := range s.Checks {
		collect(ch, checkGauges(), c, c.Name)
	}
	for _, q := range s.Queues {
		collect(ch, queueGauges(), q, q.Name)
	}
	for _, a := range s.Anchors {
		collect(ch, anchorGauges(), a, a.Name, a.Kind)
	}
	for _, r := range s.Receivers {
		collect(ch, receiverGauges(), r, r.Name, r.Kind)
	}
	for _, b := range s.Budgets {
		collect(ch, budgetGauges(), b, b.Grant, b.Of, b.Currency)
	}
}

func collect[T any](ch chan<- prometheus.Metric, gauges []gauge[T], v T, labels ...string) {
	for _, g := range gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(v), labels...)
	}
}
