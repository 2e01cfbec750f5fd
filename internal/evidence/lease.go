package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// leases are the locks that the running tasks of one run hold, and the number of
// the last that was given. Of other runs, which may want the same locks, a
// bundle says nothing.
type leases struct {
	last int64
	held map[string]*holding
}

type holding struct {
	alone   api.TaskID // empty: nobody has it alone
	sharers int
}

// take gives a task that is started its locks, or says why it cannot have had
// them.
func (l *leases) take(t *api.PlanTask, d record.TaskStart) error {
	if d.Fence <= l.last {
		return fmt.Errorf("started with the fencing number %d after %d", d.Fence, l.last)
	}
	l.last = d.Fence
	alone, shared := []string(nil), []string(nil)
	size := 0
	for _, k := range t.Locks {
		size += len(k.Key)
		if k.Shared {
			shared = append(shared, k.Key)
		} else {
			alone = append(alone, k.Key)
		}
	}
	slices.Sort(alone)
	slices.Sort(shared)
	// Longer lists may have been cut to fit into an entry.
	if len(t.Locks) < listed && size < 4<<10 && (!slices.Equal(alone, d.Locks) || !slices.Equal(shared, d.Shared)) {
		return fmt.Errorf("started with other locks than those of the plan")
	}
	if l.held == nil {
		l.held = map[string]*holding{}
	}
	for _, k := range t.Locks {
		h := l.held[k.Key]
		switch {
		case h == nil:
		case h.alone != "":
			return fmt.Errorf("started while task %s held the lock %.80q", h.alone, k.Key)
		case h.sharers > 0 && !k.Shared:
			return fmt.Errorf("started while %d tasks shared the lock %.80q", h.sharers, k.Key)
		}
	}
	for _, k := range t.Locks {
		h := l.held[k.Key]
		if h == nil {
			h = &holding{}
			l.held[k.Key] = h
		}
		if k.Shared {
			h.sharers++
		} else {
			h.alone = t.ID
		}
	}
	return nil
}

// release gives back what a task had.
func (l *leases) release(t *api.PlanTask) {
	for _, k := range t.Locks {
		h := l.held[k.Key]
		switch {
		case h == nil: // it could not have had it, and that is said
		case k.Shared:
			h.sharers--
		case h.alone == t.ID:
			h.alone = ""
		}
	}
}
