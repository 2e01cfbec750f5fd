package orchestrator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func ready(q *queue, p api.Principal, n int) {
	for i := range n {
		r := oneTask(fmt.Sprint(p, i))
		r.principal = p
		q.push(&lease{run: r})
	}
}

// However many tasks of one principal are ready, another's first task waits for one slot.
//
// proves R-O11
func TestTenThousandReadyTasksDelayAnotherByOneSlot(t *testing.T) {
	q := newQueue("q", 1)
	ready(q, "agent:many", 10_000)
	for range 3 {
		q.pop()
	}
	ready(q, "agent:other", 1)
	before := 0
	for w := q.pop(); w.run.principal != "agent:other"; w = q.pop() {
		before++
	}
	if before > 1 {
		t.Errorf("%d tasks of another principal started first, want at most 1", before)
	}
	if q.ready != 9_997-before {
		t.Errorf("%d are ready", q.ready)
	}
}

// A weight is how many tasks start in one turn; an empty line keeps nothing of its turn.
//
// proves R-O11
func TestWeightsShareAQueue(t *testing.T) {
	q := newQueue("q", 1)
	q.weights = map[api.Principal]int{"agent:a": 3}
	ready(q, "agent:a", 8)
	ready(q, "agent:b", 3)
	var got strings.Builder
	for w := q.pop(); w != nil; w = q.pop() {
		got.WriteString(strings.TrimPrefix(string(w.run.principal), "agent:"))
	}
	if got.String() != "aaabaaabaab" {
		t.Errorf("started %s", got.String())
	}
}

func BenchmarkQueueOfTenThousand(b *testing.B) {
	q := newQueue("q", 1)
	q.weights = map[api.Principal]int{"agent:many": 3}
	ready(q, "agent:many", 10_000)
	r := oneTask("one")
	r.principal = "agent:other"
	b.ReportAllocs()
	for b.Loop() {
		w := &lease{run: r}
		q.push(w)
		if next := q.pop(); next != w {
			next.run.queue = nil
			q.push(next)
			q.remove(w)
		}
	}
	ready(q, "agent:other", 4000)
	for range 4000 {
		q.pop()
	}
	b.ReportMetric(float64(4000-q.lines["agent:other"].leases.Len())/float64(10_000-q.lines["agent:many"].leases.Len()), "weight-1-to-3")
}
