package mcphttp

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
)

// throttle bounds the requests of each principal, whatever token, session or
// connection they come by (R-T5). Only authenticated principals are in it, so it
// is bounded by the operator's list of principals.
type throttle struct {
	rate  int // requests a second
	limit int // concurrent requests
	now   func() time.Time

	mu    sync.Mutex
	usage map[api.Principal]*usage // guarded by mu
}

type usage struct {
	limiter *rate.Limiter
	active  int
}

func newThrottle(perSecond, limit int, now func() time.Time) *throttle {
	return &throttle{rate: perSecond, limit: limit, now: now, usage: map[api.Principal]*usage{}}
}

// acquire reports whether p may make one more request. If so, the caller must
// call release when the request is done.
func (t *throttle) acquire(p api.Principal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.usage[p]
	if u == nil {
		u = &usage{limiter: rate.NewLimiter(rate.Limit(t.rate), 2*t.rate)}
		t.usage[p] = u
	}
	if !u.limiter.AllowN(t.now(), 1) || u.active >= t.limit {
		return false
	}
	u.active++
	return true
}

func (t *throttle) release(p api.Principal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usage[p].active--
}
