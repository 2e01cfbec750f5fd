package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bailiwick-dev/bailiwick/api"
)

// maxSubagents bounds the pairs of subagent and currency that have series of their
// own: catalogs come and go while a service runs.
const maxSubagents = 200

// models counts what agents used of their models, and what they were refused.
type models struct {
	requests, tokens, cost, refused *prometheus.CounterVec

	mu    sync.Mutex
	known map[[2]string]bool // subagent and currency; guarded by mu
}

// used counts the usage of an attempt of a subagent.
func (m *models) used(name api.Name, o *api.ResultSummary) {
	u := o.Usage.Model
	if u == nil {
		u = &api.ModelUsage{}
		if o.Refusals == nil {
			return
		}
	}
	subagent, currency := m.labels(string(name), u.Currency)
	m.requests.WithLabelValues(subagent).Add(float64(max(0, u.Requests)))
	for kind, n := range map[string]int64{"input": u.Input, "output": u.Output, "cache_read": u.CacheRead, "cache_write": u.CacheWrite} {
		m.tokens.WithLabelValues(subagent, kind).Add(float64(max(0, n)))
	}
	if u.Cost > 0 {
		m.cost.WithLabelValues(subagent, currency).Add(u.Cost.Float())
	}
	refused := m.refused.WithLabelValues(subagent)
	if o.Refusals != nil {
		refused.Add(float64(max(0, o.Refusals.Count)))
	}
}

// labels are the given ones, or other for more than maxSubagents of them.
func (m *models) labels(subagent, currency string) (string, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{subagent, currency}
	if !m.known[key] {
		if len(m.known) == maxSubagents {
			return other, other
		}
		m.known[key] = true
	}
	return subagent, currency
}
