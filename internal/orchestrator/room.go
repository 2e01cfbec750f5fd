package orchestrator

import (
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The bounds of all runs together that are not settled: they are in memory, and
// a service that starts again has to hold them, too. A principal has at most
// half of each, so that nobody is shut out by another.
const (
	DefaultOpenTasks = 200_000
	DefaultOpenBytes = 256 << 20 // of their canonical plans
)

// room is what open runs may take up, and do.
type room struct {
	tasks, bytes int // the bounds

	mu   sync.Mutex
	all  size                   // guarded by mu
	each map[api.Principal]size // guarded by mu
}

type size struct{ tasks, bytes int }

func (s size) plus(r *run, sign int) size {
	return size{s.tasks + sign*len(r.tasks), s.bytes + sign*r.plan.Size()}
}

func (s size) within(tasks, bytes int) bool { return s.tasks <= tasks && s.bytes <= bytes }

// take makes room for a run, or says that there is none.
func (m *room) take(r *run) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, all := m.each[r.principal].plus(r, 1), m.all.plus(r, 1)
	whose := "all runs"
	switch {
	case !own.within(m.tasks/2, m.bytes/2):
		whose = "the runs of " + string(r.principal)
	case all.within(m.tasks, m.bytes):
		m.keep(r, 1)
		return nil
	}
	return api.Errorf(api.CodeThrottled, "with this plan %s that are not settled would have more tasks, or longer plans, than the service has room for", whose).
		WithHint("wait until some are settled, or cancel some: bailiwick run list")
}

// keep counts a run that is there, whether there is room or not; with -1 it is
// settled, or did not come to be.
func (m *room) keep(r *run, sign int) {
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

// give gives back what a run had.
func (m *room) give(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(r, -1)
}
