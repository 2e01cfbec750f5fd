package orchestrator

import (
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The default limits of all unsettled runs together, which are kept in memory. A
// principal may use half of each, so that none can lock out the others.
const (
	DefaultOpenTasks = 200_000
	DefaultOpenBytes = 256 << 20 // of their canonical plans
)

// capacity counts unsettled runs against the limits.
type capacity struct {
	tasks, bytes int // the limits

	mu   sync.Mutex
	all  size                   // guarded by mu
	each map[api.Principal]size // guarded by mu
}

type size struct{ tasks, bytes int }

func (s size) plus(r *run, sign int) size {
	return size{s.tasks + sign*len(r.tasks), s.bytes + sign*r.plan.Size()}
}

func (s size) within(tasks, bytes int) bool { return s.tasks <= tasks && s.bytes <= bytes }

// reserve adds a run, or refuses it when a limit would be exceeded.
func (m *capacity) reserve(r *run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, all := m.each[r.principal].plus(r, 1), m.all.plus(r, 1)
	whose := "all unsettled runs"
	switch {
	case !own.within(m.tasks/2, m.bytes/2):
		whose = "the unsettled runs of " + string(r.principal)
	case all.within(m.tasks, m.bytes):
		m.add(r, 1)
		return nil
	}
	return api.Errorf(api.CodeThrottled, "this plan would take %s beyond the limit of open tasks or plan bytes", whose).
		WithHint("wait until some runs are settled, or cancel some: bailiwick run list")
}

// add counts a run, whatever the limits; with sign -1 it no longer counts.
func (m *capacity) add(r *run, sign int) {
	m.all = m.all.plus(r, sign)
	own := m.each[r.principal].plus(r, sign)
	if own == (size{}) {
		delete(m.each, r.principal)
		return
	}
	if m.each == nil {
		m.each = map[api.Principal]size{}
	}
	m.each[r.principal] = own
}

// release stops counting a run.
func (m *capacity) release(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(r, -1)
}
