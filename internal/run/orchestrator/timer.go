package orchestrator

import (
	"container/heap"
	"time"
)

// timers is when the engine acts without an event.
type timers struct {
	heap      timerHeap
	nextSweep time.Time
}

// add adds a timer that is due at a time of the steady clock.
func (t *timers) add(at, when time.Time, run int64, task int32) {
	heap.Push(&t.heap, timer{at, when, run, task})
}

// next returns when the next timer or sweep is due.
func (t *timers) next() time.Time {
	if len(t.heap) > 0 && t.heap[0].at.Before(t.nextSweep) {
		return t.heap[0].at
	}
	return t.nextSweep
}

// pop removes a timer that is due; false: none is.
func (t *timers) pop(now time.Time) (timer, bool) {
	if len(t.heap) == 0 || t.heap[0].at.After(now) {
		return timer{}, false
	}
	return heap.Pop(&t.heap).(timer), true //nolint:forcetypeassert // only timers are pushed
}

// timer is the time of a task's next attempt, or with task -1 the deadline of a
// run. It has the number of the run, so that a settled run can be freed.
type timer struct {
	at   time.Time // by the steady clock: a wall clock that is set makes nothing early
	when time.Time // by the wall clock, as the records have it
	run  int64
	task int32
}

// timerHeap is the timers, soonest first.
type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) } //nolint:forcetypeassert // only timers are pushed

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return d
}
