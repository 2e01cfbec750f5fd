package mcpserve

import (
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// bucket lets burst happen at once and rate a second after that.
type bucket struct {
	rate, burst float64
	left        float64
	at          time.Time
}

// take reports whether one more may happen at now.
func (b *bucket) take(now time.Time) bool {
	if b.at.IsZero() {
		b.left = b.burst
	} else {
		b.left = min(b.burst, b.left+max(0, now.Sub(b.at).Seconds())*b.rate)
	}
	if b.at = now; b.left < 1 {
		return false
	}
	b.left--
	return true
}

// rates bounds what each principal does, whatever token, session or connection
// it comes by (R-T5). Only who has shown a good token is in it, so it stays as
// small as the operator's list of principals.
type rates struct {
	rate   float64 // requests a second
	atOnce int
	now    func() time.Time

	mu  sync.Mutex
	who map[api.Principal]*usage // guarded by mu
}

type usage struct {
	bucket bucket
	inside int
}

func newRates(rate float64, atOnce int, now func() time.Time) *rates {
	return &rates{rate: rate, atOnce: atOnce, now: now, who: map[api.Principal]*usage{}}
}

// enter reports whether p may have one more request. Then the caller calls
// leave.
func (r *rates) enter(p api.Principal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.who[p]
	if u == nil {
		u = &usage{bucket: bucket{rate: r.rate, burst: 2 * r.rate}}
		r.who[p] = u
	}
	if !u.bucket.take(r.now()) || u.inside >= r.atOnce {
		return false
	}
	u.inside++
	return true
}

func (r *rates) leave(p api.Principal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.who[p].inside--
}
