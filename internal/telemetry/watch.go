package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is how the service is now.
type State struct {
	Running  int    // dispatches that have a worker
	Poisoned bool   // the store refuses everything until a restart
	Revision uint64 // of the catalog; 0: none applied
	Free     uint64 // bytes left on the disk of the state directory
	Size     uint64 // of that disk
	// Of the log's tree.
	LogSize    uint64  // entries in it
	LogCovered uint64  // entries that its newest checkpoint covers
	LogLag     float64 // seconds since the oldest entry that none covers; 0: there is none
	Checks     []Check
	Queues     []Queue // of the orchestrator; none: there is none
	Anchors    []Anchor
}

// Queue is how a queue of runs is. Its name is from the service's configuration.
type Queue struct {
	Name           string
	Slots          int
	Ready, Running int // tasks
	Runs           int // that are not settled
}

// Anchor is a place that gets the log's checkpoints. Its name is from the
// service's configuration.
type Anchor struct {
	Name, Kind string
	Size       uint64  // entries of the largest checkpoint that it has
	Behind     uint64  // entries of the log beyond that
	At         float64 // when it got it, in seconds since 1970; 0: never
	OK         bool    // the last try was well
}

// Check is something without which the service is not ready. What is wrong
// with it is in the log of the service and in its status, not here: health is
// shown to whoever can connect.
type Check struct {
	Name string // one word of ours
	OK   bool
}

// Ready says whether every check is well. A service that has told nobody of
// its state is not.
func (s State) Ready() bool {
	for _, c := range s.Checks {
		if !c.OK {
			return false
		}
	}
	return len(s.Checks) > 0
}

// watched asks for the state when it is looked at, one at a time.
type watched struct {
	mu  sync.Mutex                  // held while it is asked for
	ask func(context.Context) State // nil: not open yet; guarded by mu
}

// lookTime bounds one look at the state.
const lookTime = 5 * time.Second

// Watch sets what is asked for the state. Until then the service is alive and
// not ready.
func (t *Telemetry) Watch(ask func(context.Context) State) {
	t.watched.mu.Lock()
	defer t.watched.mu.Unlock()
	t.watched.ask = ask
}

func (w *watched) state(ctx context.Context) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ask == nil {
		return State{}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return w.ask(ctx)
}

// gauge is one number of the state.
type gauge struct {
	desc  *prometheus.Desc
	value func(State) float64
}

func gauges() []gauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("bailiwick_"+name, help, nil, nil)
	}
	return []gauge{
		{desc("dispatches_running", "Dispatches that have a worker."), func(s State) float64 { return float64(s.Running) }},
		{desc("catalog_revision", "Number of the catalog's revision that is gone by; 0 when there is none to go by."), func(s State) float64 { return float64(s.Revision) }},
		{desc("state_disk_free_bytes", "What the service's account can still write on the disk of the state directory."), func(s State) float64 { return float64(s.Free) }},
		{desc("state_disk_size_bytes", "Size of the disk of the state directory."), func(s State) float64 { return float64(s.Size) }},
		{desc("log_tree_size", "Entries in the tree over the log."), func(s State) float64 { return float64(s.LogSize) }},
		{desc("log_checkpoint_size", "Entries that the newest signed checkpoint covers."), func(s State) float64 { return float64(s.LogCovered) }},
		{desc("log_checkpoint_lag_seconds", "Age of the oldest entry that no signed checkpoint covers; 0 when there is none."), func(s State) float64 { return s.LogLag }},
		{desc("store_poisoned", "1 when the state database refuses everything until the service starts again."), func(s State) float64 { return truth(s.Poisoned) }},
		{desc("ready", "1 when every check is well."), func(s State) float64 { return truth(s.Ready()) }},
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func checkDesc() *prometheus.Desc {
	return prometheus.NewDesc("bailiwick_check_ok", "What the service needs to be ready; 1 when it is well.", []string{"check"}, nil)
}

// queueGauge is one number of a queue.
type queueGauge struct {
	desc  *prometheus.Desc
	value func(Queue) int
}

func queueGauges() []queueGauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("bailiwick_queue_"+name, help, []string{"queue"}, nil)
	}
	return []queueGauge{
		{desc("slots", "How many tasks of a queue may run at once."), func(q Queue) int { return q.Slots }},
		{desc("tasks_running", "Tasks of a queue that run."), func(q Queue) int { return q.Running }},
		{desc("tasks_ready", "Tasks of a queue that wait for a free slot."), func(q Queue) int { return q.Ready }},
		{desc("runs_open", "Runs of a queue that are not settled."), func(q Queue) int { return q.Runs }},
	}
}

// anchorGauge is one number of an anchor.
type anchorGauge struct {
	desc  *prometheus.Desc
	value func(Anchor) float64
}

func anchorGauges() []anchorGauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("bailiwick_anchor_"+name, help, []string{"anchor", "kind"}, nil)
	}
	return []anchorGauge{
		{desc("entries", "Entries of the largest checkpoint that an anchor has given a receipt for."), func(a Anchor) float64 { return float64(a.Size) }},
		{desc("behind_entries", "Entries of the log beyond that."), func(a Anchor) float64 { return float64(a.Behind) }},
		{desc("last_seconds", "When that was, in seconds since 1970; 0: never."), func(a Anchor) float64 { return a.At }},
		{desc("ok", "1 when the last try was well."), func(a Anchor) float64 { return truth(a.OK) }},
	}
}

// Describe implements prometheus.Collector.
func (w *watched) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges() {
		ch <- g.desc
	}
	ch <- checkDesc()
	for _, g := range queueGauges() {
		ch <- g.desc
	}
	for _, g := range anchorGauges() {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (w *watched) Collect(ch chan<- prometheus.Metric) {
	s := w.state(context.Background())
	for _, g := range gauges() {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(s))
	}
	for _, c := range s.Checks {
		ch <- prometheus.MustNewConstMetric(checkDesc(), prometheus.GaugeValue, truth(c.OK), c.Name)
	}
	for _, a := range s.Anchors {
		for _, g := range anchorGauges() {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(a), a.Name, a.Kind)
		}
	}
	for _, q := range s.Queues {
		for _, g := range queueGauges() {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(q)), q.Name)
		}
	}
}
