package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// quotaKeys is how many keys a quota remembers before it forgets those whose
// allowance is full again.
const quotaKeys = 1000

// quota bounds how many log entries refused requests get, by key. It counts the
// ones without an entry, for a summary. It limits entries only, never requests.
type quota[K comparable] struct {
	now   func() time.Time
	rate  rate.Limit // entries per second
	burst int

	mu   sync.Mutex
	keys map[K]*allowance // guarded by mu
}

type allowance struct {
	*rate.Limiter
	dropped int // since the last summary
}

func newQuota[K comparable](now func() time.Time, perSecond rate.Limit, burst int) *quota[K] {
	return &quota[K]{now: now, rate: perSecond, burst: burst, keys: map[K]*allowance{}}
}

// take reports whether the next refusal gets an entry of its own, and counts it
// otherwise.
func (q *quota[K]) take(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if len(q.keys) >= quotaKeys {
		for k, a := range q.keys {
			if a.dropped == 0 && a.TokensAt(now) >= float64(q.burst) {
				delete(q.keys, k)
			}
		}
	}
	a := q.key(key)
	if !a.AllowN(now, 1) {
		a.dropped++
		return false
	}
	return true
}

// key returns the allowance of a key. The caller holds mu.
func (q *quota[K]) key(key K) *allowance {
	a, ok := q.keys[key]
	if !ok {
		a = &allowance{Limiter: rate.NewLimiter(q.rate, q.burst)}
		q.keys[key] = a
	}
	return a
}

// dropped returns how many refusals of each key got no entry since the last
// call.
func (q *quota[K]) dropped() map[K]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := map[K]int{}
	for key, a := range q.keys {
		if a.dropped > 0 {
			counts[key], a.dropped = a.dropped, 0
		}
	}
	return counts
}

// restore adds n back to what dropped returns, after its summary could not be
// written.
func (q *quota[K]) restore(key K, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.key(key).dropped += n
}
