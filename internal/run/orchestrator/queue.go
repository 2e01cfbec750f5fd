package orchestrator

import (
	"container/heap"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// queue is where tasks that hold their locks wait for a free slot. Principals
// take turns, however many tasks each has: deficit round robin, in which the weight of a
// principal is how many of its tasks start in one turn. Among the tasks of a principal
// the highest priority comes first, then the earliest.
type queue struct {
	name     api.Name
	slots    int
	running  int
	runs     int // unsettled
	ready    int
	pausedBy api.Principal
	pausedAt time.Time
	weights  map[api.Principal]int // of those whose weight is not 1

	lines map[api.Principal]*line
	turns []*line // those that are not empty, in the order of their turns
	next  uint64  // order of the next task
}

// line is one principal's part of a queue.
type line struct {
	principal api.Principal
	leases    leaseHeap
	credit    int // tasks that may still start in the present turn
}

// turn is a lease's place in a line.
type turn struct {
	line     *line
	index    int
	priority int
	order    uint64
}

type leaseHeap []*lease

func (h leaseHeap) Len() int { return len(h) }
func (h leaseHeap) Less(i, j int) bool {
	a, b := &h[i].turn, &h[j].turn
	return a.priority > b.priority || a.priority == b.priority && a.order < b.order
}

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].turn.index, h[j].turn.index = i, j
}

// Push implements heap.Interface.
func (h *leaseHeap) Push(x any) {
	w := x.(*lease) //nolint:forcetypeassert // only leases are pushed
	w.turn.index = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *leaseHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return w
}

func newQueue(name api.Name, slots int) *queue {
	return &queue{name: name, slots: slots, lines: map[api.Principal]*line{}}
}

func (q *queue) paused() bool { return q.pausedBy != "" }

func (q *queue) push(w *lease) {
	l := q.lines[w.run.principal]
	if l == nil {
		l = &line{principal: w.run.principal}
		q.lines[l.principal] = l
		q.turns = append(q.turns, l)
	}
	q.next++
	q.ready++
	w.turn = turn{line: l, priority: w.run.plan.Tasks[w.task].Priority, order: q.next}
	heap.Push(&l.leases, w)
}

// pop removes the next lease to start. At the end of its turn, a principal comes behind
// all others; one whose line is empty keeps nothing of its turn.
// It returns nil when the queue is empty or paused, or has no free slot.
func (q *queue) pop() *lease {
	if q.paused() || q.running >= q.slots || len(q.turns) == 0 {
		return nil
	}
	l := q.turns[0]
	w := heap.Pop(&l.leases).(*lease) //nolint:forcetypeassert // only leases are pushed
	q.ready--
	w.turn = turn{}
	if l.credit == 0 {
		l.credit = max(1, q.weights[l.principal])
	}
	l.credit--
	switch {
	case len(l.leases) == 0:
		q.turns = q.turns[1:]
		delete(q.lines, l.principal)
	case l.credit == 0:
		q.turns = append(q.turns[1:], l)
	}
	return w
}

// remove removes a lease that will not start now.
func (q *queue) remove(w *lease) {
	l := w.turn.line
	if l == nil {
		return
	}
	heap.Remove(&l.leases, w.turn.index)
	q.ready--
	w.turn = turn{}
	if len(l.leases) == 0 {
		delete(q.lines, l.principal)
		q.turns = slices.DeleteFunc(q.turns, func(o *line) bool { return o == l })
	}
}
