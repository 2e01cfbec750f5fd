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

// size is what a run takes of the limits.
func (r *run) size() size { return size{len(r.tasks), r.bytes} }

func (s size) plus(o size, sign int) size {
	return size{s.tasks + sign*o.tasks, s.bytes + sign*o.bytes}
}

func (s size) within(tasks, bytes int) bool { return s.tasks <= tasks && s.bytes <= bytes }

// reserve adds what a principal requests, a plan or tasks, or refuses it when a limit
// would be exceeded.
func (m *capacity) reserve(p api.Principal, more size, what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, all := m.each[p].plus(more, 1), m.all.plus(more, 1)
	whose := "all unsettled runs"
	switch {
	case !own.within(m.tasks/2, m.bytes/2):
		whose = "the unsettled runs of " + string(p)
	case all.within(m.tasks, m.bytes):
		m.add(p, more, 1)
		return nil
	}
	return api.Errorf(api.CodeThrottled, "%s would take %s beyond the limit of open tasks or plan bytes", what, whose).
		WithHint("wait until some runs are settled, or cancel some: bailiwick run list")
}

// add counts what a principal has, whatever the limits; with sign -1 it no longer counts.
func (m *capacity) add(p api.Principal, more size, sign int) {
	m.all = m.all.plus(more, sign)
	own := m.each[p].plus(more, sign)
	if own == (size{}) {
		delete(m.each, p)
		return
	}
	if m.each == nil {
		m.each = map[api.Principal]size{}
	}
	m.each[p] = own
}

// grow counts what a run has grown. What was admitted may grow, up to the bounds of a
// run; new submissions wait meanwhile.
func (m *capacity) grow(p api.Principal, more size) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(p, more, 1)
}

// release stops counting.
func (m *capacity) release(p api.Principal, less size) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(p, less, -1)
}
