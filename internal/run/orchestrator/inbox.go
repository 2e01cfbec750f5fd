package orchestrator

import (
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// event is an input of the engine. apply changes the state in memory, and adds to
// the batch what has to be durable before it has an effect.
type event interface{ apply(e *engine, b *batch) }

// fifo is a queue between goroutines. put never blocks: the number of items is
// bounded by the running dispatches and the requests under way.
type fifo[T any] struct {
	ready chan struct{} // signalled while the queue is not empty

	mu    sync.Mutex
	items []T // guarded by mu
}

func newFIFO[T any]() *fifo[T] { return &fifo[T]{ready: make(chan struct{}, 1)} }

func (q *fifo[T]) put(items ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, items...)
	q.signal()
}

// take returns the first items, at most most.
func (q *fifo[T]) take(most int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.items))
	taken := slices.Clone(q.items[:n])
	clear(q.items[:n])
	q.items = q.items[n:]
	q.signal()
	return taken
}

// signal wakes a receiver of ready; mu is held.
func (q *fifo[T]) signal() {
	if len(q.items) == 0 {
		q.items = nil
		return
	}
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// submitting is the runs whose submission may be durable and has not reached the
// engine yet.
type submitting struct {
	mu   sync.Mutex
	runs map[api.RunID]*submission // guarded by mu
}

type submission struct {
	calls int           // concurrent submissions of the same run
	done  chan struct{} // closed by the last of them
}

func (c *submitting) begin(id api.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[api.RunID]*submission{}
	}
	if c.runs[id] == nil {
		c.runs[id] = &submission{done: make(chan struct{})}
	}
	c.runs[id].calls++
}

func (c *submitting) done(id api.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.runs[id]
	if s.calls--; s.calls == 0 {
		close(s.done)
		delete(c.runs, id)
	}
}

// of returns a channel that is closed when the submission of a run has ended; nil
// when the run is not being submitted.
func (c *submitting) of(id api.RunID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.runs[id]; s != nil {
		return s.done
	}
	return nil
}

// runAdded is a run that was submitted.
type runAdded struct{ run *run }

// dispatchEnded is the end of an attempt of a dispatch.
type dispatchEnded struct{ dispatch api.Dispatch }

// submitted is the result of submitting or resuming a task's dispatch.
type submitted struct {
	run      *run
	task     int32
	fence    uint64 // of the effect
	dispatch api.Dispatch
	err      error
}

// polled is the record of a dispatch.
type polled struct {
	run      *run
	task     int32
	fence    uint64
	dispatch api.Dispatch
	found    bool
	expected bool // see effect
}

type (
	effectFailed struct{ effect effect } // with a transient error
	effectDue    struct{ effect effect } // its pause has elapsed
)

// engineQuery runs after the next commit.
type engineQuery struct{ fn func(*engine) }

func (q engineQuery) apply(_ *engine, b *batch) { b.after = append(b.after, q.fn) }
