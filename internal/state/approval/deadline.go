package approval

import (
	"maps"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// deadlines knows how long open requests may still be approved and used. A clock that is
// set back while the service runs gives no time. One that is set forward takes it: what
// the log says has expired is denied.
type deadlines struct {
	now    func() time.Time
	steady func() time.Time

	mu  sync.Mutex
	due map[api.ApprovalID]time.Time // when open requests expire, by steady; guarded by mu
}

// left returns how much time a request has. It counts from the first call about it.
func (d *deadlines) left(action *api.Action) time.Duration {
	left, now := action.Expires.Sub(d.now()), d.steady()
	d.mu.Lock()
	defer d.mu.Unlock()
	due, ok := d.due[action.ID]
	if !ok {
		due = now.Add(left)
		d.due[action.ID] = due
	}
	return min(left, due.Sub(now))
}

// forget forgets the requests that are not open.
func (d *deadlines) forget(open map[api.ApprovalID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.due, func(id api.ApprovalID, _ time.Time) bool { return !open[id] })
}
