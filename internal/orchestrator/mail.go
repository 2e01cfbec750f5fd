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
	expected bool // after a restart nobody has told of anything
	err      error
}

// told is what somebody has done to a run or a queue, durably.
type told struct{ order order }

// question is answered after the next commit.
type question struct{ fn func(*engine) }

func (q question) apply(_ *engine, b *batch) { b.after = append(b.after, q.fn) }
