package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// leases are the locks that the tasks of one run hold, and the last fencing token. Other runs that use the same locks are not in the bundle.
type leases struct {
	last int64
	held map[string]*holding
}

type holding struct {
	owner   api.TaskID // of an exclusive lock
	sharers int
}

// take gives a task that started the locks that it takes, or returns why it cannot
// have got them.
func (l *leases) take(task api.TaskID, locks []api.Lock, d record.TaskStart) error {
	if d.Fence <= l.last {
		return fmt.Errorf("started with fencing token %d after %d", d.Fence, l.last)
	}
	l.last = d.Fence
	var exclusive, shared []string
	size := 0
	for _, k := range locks {
		size += len(k.Key)
		if k.Shared {
			shared = append(shared, k.Key)
		} else {
			exclusive = append(exclusive, k.Key)
		}
	}
	slices.Sort(exclusive)
	slices.Sort(shared)
	// Longer lists may be cut in the entry.
	if len(locks) < uncut && size < 4<<10 && (!slices.Equal(exclusive, d.Locks) || !slices.Equal(shared, d.Shared)) {
		return errors.New("started with other locks than the plan's")
	}
	if l.held == nil {
		l.held = map[string]*holding{}
	}
	for _, k := range locks {
		h := l.held[k.Key]
		switch {
		case h == nil:
		case h.owner != "":
			return fmt.Errorf("started while task %s held the lock %.80q", h.owner, k.Key)
		case h.sharers > 0 && !k.Shared:
			return fmt.Errorf("started while %d tasks shared the lock %.80q", h.sharers, k.Key)
		}
	}
	for _, k := range locks {
		h := l.held[k.Key]
		if h == nil {
			h = &holding{}
			l.held[k.Key] = h
		}
		if k.Shared {
			h.sharers++
		} else {
			h.owner = task
		}
	}
	return nil
}

// release gives back a task's locks.
func (l *leases) release(task api.TaskID, locks []api.Lock) {
	for _, k := range locks {
		h := l.held[k.Key]
		switch {
		case h == nil: // it never had it, which take reported
		case k.Shared:
			h.sharers--
		case h.owner == task:
			h.owner = ""
		}
	}
}
