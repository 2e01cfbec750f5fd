package orchestrator

import (
	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// resources is what tasks compete for. A ready task waits for its locks, and then for a
// slot of its queue; one that has started may give its slot back and wait for room in a
// budget.
type resources struct {
	locks   *locks
	queues  map[api.Name]*queue
	budgets budgetLines
	running int      // tasks
	granted []*lease // leases that have just been granted
}

func newResources(cfg *Config) resources {
	c := resources{locks: newLocks(), queues: map[api.Name]*queue{}, budgets: budgetLines{ends: map[api.Principal]int{}}}
	c.queues[api.DefaultQueue] = newQueue(api.DefaultQueue, DefaultSlots)
	for name, slots := range cfg.Queues {
		c.queues[name] = newQueue(name, slots)
		c.queues[name].weights = cfg.Weights[name]
	}
	return c
}

func (c *resources) loadQueues(v store.Reader) error {
	return v.Each("SELECT name, by, at FROM run_queue", nil, func(scan store.Scan) error {
		var name api.Name
		var by api.Principal
		var at int64
		if err := scan(&name, &by, &at); err != nil {
			return err
		}
		if q := c.queues[name]; q != nil {
			q.pausedBy, q.pausedAt = by, instant(at)
		}
		return nil
	})
}

// assignQueue gives a run its queue.
func (c *resources) assignQueue(r *run) {
	q := c.queues[r.doc.Queue]
	if q == nil { // no longer configured: nothing of the run starts until it is
		q = newQueue(r.doc.Queue, 0)
		c.queues[q.name] = q
	}
	r.queue = q
}

// park removes the ready tasks of a paused run from the queues of locks and
// slots, so that they do not block others.
func (c *resources) park(r *run) {
	for i := range r.tasks {
		t := &r.tasks[i]
		if t.state == api.TaskReady {
			c.withdraw(r, int32(i)) //nolint:gosec // G115: bounded by api.MaxPlanTasks
		}
		if a := t.affording; a != nil && a.due { // it waits in its line only
			a.due = false
			r.queue.remove(t.lease)
		}
	}
}

func (c *resources) unpark(r *run) {
	for _, i := range r.plan.Order() {
		if t := &r.tasks[i]; t.state == api.TaskReady && t.lease == nil && t.cancelBy == "" {
			c.enqueue(r, i)
		}
	}
}

// enqueue queues a ready task for its locks, and then for a slot, unless its run
// or its queue is paused.
func (c *resources) enqueue(r *run, i int32) {
	if r.pausedBy != "" || r.queue.paused() || r.tasks[i].state != api.TaskReady {
		return
	}
	w := c.locks.newLease(r, i)
	r.tasks[i].lease = w
	c.granted = c.locks.request(w, c.granted)
	c.grant()
}

// grant queues tasks that were just granted their locks for a slot.
func (c *resources) grant() {
	for _, w := range c.granted {
		w.run.queue.push(w)
	}
	c.granted = c.granted[:0]
}

// withdraw releases the locks and the place in the queue of a task.
func (c *resources) withdraw(r *run, i int32) {
	w := r.tasks[i].lease
	if w == nil {
		return
	}
	r.tasks[i].lease = nil
	r.queue.remove(w)
	c.granted = c.locks.release(w, c.granted)
	c.grant()
}

// releaseTask releases the slot and the locks of a running task.
func (c *resources) releaseTask(r *run, i int32) {
	c.releaseSlot(r, i)
	c.withdraw(r, i)
}

func (c *resources) releaseSlot(r *run, i int32) {
	c.running--
	if r.tasks[i].hasSlot() {
		r.queue.running--
	}
	c.budgets.leave(r, i)
	r.tasks[i].inFlight = false
}
