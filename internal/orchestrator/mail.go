package orchestrator

import (
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// event is something that the engine is told. apply changes what is in memory,
// and notes in the batch what has to be durable before anything comes of it.
type event interface{ apply(e *engine, b *batch) }

// mailbox is where events wait. Putting one there never blocks: how many there
// are is bounded by what can happen, which is one end for each dispatch that
// runs, and the requests under way.
type mailbox struct {
	mu     sync.Mutex
	events []event       // guarded by mu
	some   chan struct{} // has one when there are events
}

func (m *mailbox) init() { m.some = make(chan struct{}, 1) }

func (m *mailbox) put(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.some <- struct{}{}:
	default:
	}
}

// take returns the first that wait, at most so many.
func (m *mailbox) take(most int) []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.events
	if len(list) <= most {
		m.events = nil
		return list
	}
	m.events = list[most:]
	select {
	case m.some <- struct{}{}:
	default:
	}
	return list[:most]
}

// coming is the runs whose submission may be durable and has not reached the
// engine.
type coming struct {
	mu   sync.Mutex
	runs map[api.RunID]*arrival // guarded by mu
}

// arrival is one of them.
type arrival struct {
	submissions int // under way
	over        chan struct{}
}

func (c *coming) announce(id api.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[api.RunID]*arrival{}
	}
	if c.runs[id] == nil {
		c.runs[id] = &arrival{over: make(chan struct{})}
	}
	c.runs[id].submissions++
}

func (c *coming) arrived(id api.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.runs[id]
	if a.submissions--; a.submissions == 0 {
		close(a.over)
		delete(c.runs, id)
	}
}

// of returns what is closed once a run that is coming is there, or is not; nil:
// none of that id is coming.
func (c *coming) of(id api.RunID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.runs[id]; a != nil {
		return a.over
	}
	return nil
}

// added is a run that was submitted.
type added struct{ run *run }

// ended is the end of an attempt of a dispatch.
type ended struct{ dispatch api.Dispatch }

// fired is what became of the request for a task's dispatch, or to go on with
// it.
type fired struct {
	run      *run
	task     int32
	fence    uint64 // of the lease for which it was asked
	dispatch api.Dispatch
	err      error
}

// looked is what the record of a dispatch says that nobody told of.
type looked struct {
	run      *run
	task     int32
	fence    uint64
	dispatch api.Dispatch
	found    bool
	expected bool // nobody may have told of anything yet
}

// failed is an effect of which nothing has come, and again that it is time to
// try it again.
type (
	failed struct{ effect effect }
	again  struct{ effect effect }
)

// question is answered after the next commit.
type question struct{ fn func(*engine) }

func (q question) apply(_ *engine, b *batch) { b.after = append(b.after, q.fn) }
