package orchestrator

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// locks are the keys that tasks hold or wait for, in memory. After a restart the
// holders are derived from the tasks that are stored as running (R-O3).
//
// A task's keys are granted all at once or not at all. Each key queues its tasks
// in order of arrival, and none overtakes another that it cannot share the key
// with. So a task waits only for earlier ones: there is no deadlock and no
// starvation.
type locks struct{ keys map[string]*lockKey }

// lockKey is a key, its holders and its queue.
type lockKey struct {
	name        string
	owner       *lease // holds it exclusively
	sharers     int
	first, last *ticket
	next        *ticket // the first that is not clear
}

// lease is all keys of one task: requested until it is granted, then held.
type lease struct {
	run     *run
	task    int32
	tickets []ticket
	unclear int // tickets that are not clear
	held    bool
	turn    turn // its place in the queue for slots, once it is held
}

// ticket is a place in the queue of one key. It is clear when no earlier ticket
// conflicts with it, and stays clear until it is granted or withdrawn.
type ticket struct {
	lease      *lease
	key        *lockKey
	shared     bool
	clear      bool
	prev, next *ticket
}

func newLocks() *locks { return &locks{keys: map[string]*lockKey{}} }

func (l *locks) key(name string) *lockKey {
	k := l.keys[name]
	if k == nil {
		k = &lockKey{name: name}
		l.keys[name] = k
	}
	return k
}

// newLease returns the lease that a task needs, to be requested once.
func (l *locks) newLease(r *run, task int32) *lease {
	wanted := r.locksOf(task)
	w := &lease{run: r, task: task, tickets: make([]ticket, len(wanted))}
	for i, k := range wanted {
		w.tickets[i] = ticket{lease: w, key: l.key(k.Key), shared: k.Shared}
	}
	return w
}

// request queues a lease and appends the leases that this grants to granted.
func (l *locks) request(w *lease, granted []*lease) []*lease {
	w.unclear = len(w.tickets)
	if w.unclear == 0 {
		w.held = true
		return append(granted, w)
	}
	for i := range w.tickets {
		t := &w.tickets[i]
		k := t.key
		t.clear, t.prev, t.next = false, k.last, nil
		if k.last == nil {
			k.first = t
		} else {
			k.last.next = t
		}
		k.last = t
		if k.next == nil {
			k.next = t
		}
	}
	for i := range w.tickets {
		granted = l.advance(w.tickets[i].key, granted)
	}
	return granted
}

// advance marks tickets that have become clear, and grants leases whose tickets
// are all clear.
func (l *locks) advance(k *lockKey, granted []*lease) []*lease {
	for k.next != nil && k.owner == nil {
		t := k.next
		head := k.first
		if !head.shared && head.clear || !t.shared && (t != head || k.sharers > 0) {
			break
		}
		t.clear = true
		k.next = t.next
		if w := t.lease; w.unclear > 1 {
			w.unclear--
		} else {
			l.grant(w)
			granted = append(granted, w)
		}
	}
	return granted
}

// grant takes a lease's tickets out of the queues and makes it their holder. No
// other ticket becomes clear by that.
func (l *locks) grant(w *lease) {
	w.unclear, w.held = 0, true
	for i := range w.tickets {
		t := &w.tickets[i]
		t.key.leave(t)
		if t.shared {
			t.key.sharers++
		} else {
			t.key.owner = w
		}
	}
}

// adopt grants a lease at once, before any is requested: its task held it before a
// restart. It fails when a conflicting task held it too, which violates an
// invariant.
func (l *locks) adopt(w *lease) error {
	for i := range w.tickets {
		k := w.tickets[i].key
		if k.owner != nil || !w.tickets[i].shared && k.sharers > 0 {
			return fmt.Errorf("run %s task %s: another task holds its lock %q", w.run.id, w.run.plan.Tasks[w.task].ID, k.name)
		}
	}
	l.grant(w)
	return nil
}

// release releases or withdraws a lease, and appends the leases that this grants
// to granted.
func (l *locks) release(w *lease, granted []*lease) []*lease {
	held := w.held
	w.held = false
	for i := range w.tickets {
		t := &w.tickets[i]
		switch {
		case !held:
			t.key.leave(t)
		case t.shared:
			t.key.sharers--
		default:
			t.key.owner = nil
		}
	}
	for i := range w.tickets {
		k := w.tickets[i].key
		granted = l.advance(k, granted)
		if k.first == nil && k.owner == nil && k.sharers == 0 {
			delete(l.keys, k.name)
		}
	}
	return granted
}

// leave removes a ticket from its queue.
func (k *lockKey) leave(t *ticket) {
	if k.next == t {
		k.next = t.next
	}
	if t.prev == nil {
		k.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		k.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// blockedBy describes what a lease waits for; empty when it does not wait. It does
// not name tasks of another principal, which the reader may not see.
func (w *lease) blockedBy() string {
	for i := range w.tickets {
		t := &w.tickets[i]
		if t.clear {
			continue
		}
		switch k := t.key; {
		case k.owner != nil:
			return fmt.Sprintf("lock %q, held by %s", k.name, k.owner.namedTo(w))
		case k.sharers > 0:
			return fmt.Sprintf("lock %q, shared by %d tasks", k.name, k.sharers)
		default:
			return fmt.Sprintf("lock %q, queued behind %s", k.name, k.first.lease.namedTo(w))
		}
	}
	return ""
}

func (w *lease) namedTo(other *lease) string {
	if w.run.principal != other.run.principal {
		return "a task of another principal"
	}
	return fmt.Sprintf("task %s of run %s", w.run.plan.Tasks[w.task].ID, w.run.id)
}

// lockNames returns the keys that a task locks exclusively, and those it shares.
func lockNames(list []api.Lock) (exclusive, shared []string) {
	for _, k := range list {
		if k.Shared {
			shared = append(shared, k.Key)
		} else {
			exclusive = append(exclusive, k.Key)
		}
	}
	slices.Sort(exclusive)
	slices.Sort(shared)
	return exclusive, shared
}
