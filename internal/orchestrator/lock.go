package orchestrator

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// locks are the keys that tasks hold or wait for, in memory. Who holds what is
// never counted up and down across a restart: it follows from the tasks that
// are stored as running (R-O3).
//
// All of a task's keys are granted together or not at all. Each key has its
// waiting tasks in the order in which they came, and none passes another that
// it could not hold the key with: so a task waits only for those that came
// before it, and there is neither a deadlock nor one that waits for ever.
type locks struct{ keys map[string]*lockKey }

// lockKey is one key: held by one task, or shared by several, and its queue.
type lockKey struct {
	name        string
	owner       *lease // holds it alone
	sharers     int
	first, last *ticket
	next        *ticket // the first that is not clear
}

// lease is all that one task asks for. It is the task's from the grant on.
type lease struct {
	run     *run
	task    int32
	tickets []ticket
	unclear int // tickets that are not clear
	held    bool
	turn    turn // its place in the queue of ready tasks, once it is held
}

// ticket is a place in the queue of one key. It is clear when nothing that came
// before is in its way; that never changes again until it is granted or given
// up.
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

// newLease returns what a task asks for. It is good for asking once.
func (l *locks) newLease(r *run, task int32) *lease {
	wanted := r.plan.Tasks[task].Locks
	w := &lease{run: r, task: task, tickets: make([]ticket, len(wanted))}
	for i, k := range wanted {
		w.tickets[i] = ticket{lease: w, key: l.key(k.Key), shared: k.Shared}
	}
	return w
}

// ask queues a lease and appends to granted whatever is granted by that.
func (l *locks) ask(w *lease, granted []*lease) []*lease {
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

// advance makes clear what has become clear, and grants leases of which
// everything is.
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

// grant takes a lease's tickets out of the queues and makes it their holder.
// Nobody else becomes clear by that.
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

// hold makes a lease the holder at once, before any other asks: its task ran
// before a restart. It fails where another task did, too, which cannot be.
func (l *locks) hold(w *lease) error {
	for i := range w.tickets {
		k := w.tickets[i].key
		if k.owner != nil || !w.tickets[i].shared && k.sharers > 0 {
			return fmt.Errorf("run %s task %s: another running task holds its lock %q", w.run.id, w.run.plan.Tasks[w.task].ID, k.name)
		}
	}
	l.grant(w)
	return nil
}

// release gives up what a lease holds or waits for, and returns what is granted
// by that.
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

// leave takes a ticket out of its queue.
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

// blockedBy says in words what a lease waits for; nothing when it does not. What
// is another principal's is not named: who asks may not see it.
func (w *lease) blockedBy() string {
	for i := range w.tickets {
		t := &w.tickets[i]
		if t.clear {
			continue
		}
		switch k := t.key; {
		case k.owner != nil:
			return fmt.Sprintf("lock %q, which %s holds", k.name, k.owner.namedTo(w))
		case k.sharers > 0:
			return fmt.Sprintf("lock %q, which %d tasks share", k.name, k.sharers)
		default:
			return fmt.Sprintf("lock %q, for which %s waits before it", k.name, k.first.lease.namedTo(w))
		}
	}
	return ""
}

func (w *lease) namedTo(other *lease) string {
	if w.run.principal != other.run.principal {
		return "a task of somebody else"
	}
	return fmt.Sprintf("task %s of run %s", w.run.plan.Tasks[w.task].ID, w.run.id)
}

// lockNames are the keys that a task of a plan locks alone, and those that it
// shares.
func lockNames(list []api.Lock) (alone, shared []string) {
	for _, k := range list {
		if k.Shared {
			shared = append(shared, k.Key)
		} else {
			alone = append(alone, k.Key)
		}
	}
	slices.Sort(alone)
	slices.Sort(shared)
	return alone, shared
}
