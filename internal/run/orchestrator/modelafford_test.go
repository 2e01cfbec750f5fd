package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// waiter is an attempt that waits for room in a budget.
type waiter struct {
	owner
	fence uint64
	line  string    // the budget that it waits for
	since time.Time // when it began to wait for that
	by    owner     // of a waiter that was passed: who passed it
}

// lines are the budgets of an attempt, as those that wait for them are in line.
func lines(claims []claim) (names []string) {
	for _, c := range claims {
		if strings.HasPrefix(c.period, "run/") {
			names = append(names, c.name+" "+c.period)
		} else {
			names = append(names, c.name)
		}
	}
	return names
}

// behind reports whether an attempt that has room waits for earlier ones.
func (p *purse) behind(b *bill, behind []string) bool {
	return slices.ContainsFunc(lines(b.claims), func(name string) bool { return slices.Contains(behind, name) || slices.Contains(behind, "") })
}

// wait notes an attempt that has to wait.
func (p *purse) wait(o owner, fence uint64, line string, at time.Time) {
	w := p.waiting[o.id]
	if w == nil || w.attempt != o.attempt {
		w = &waiter{owner: o}
		p.waiting[o.id] = w
	}
	w.fence = fence
	if line != "" && line != w.line { // else it comes after a restart
		w.line, w.since = line, at
	}
}

// pass notes an attempt that begins, and whom it passes: who waited before this instant
// for a budget that it takes from, and started earlier. One of subagent slow has been under
// way for longer, and knows of nobody.
func (p *purse) pass(o owner, b *bill, fence uint64, at time.Time) {
	delete(p.waiting, o.id)
	names := lines(b.claims)
	for _, w := range p.waiting {
		if w.owner.by == o.by && w.fence < fence && w.since.Before(at) && slices.Contains(names, w.line) && o.subagent != slow {
			passed := *w
			passed.by = o
			p.passed = append(p.passed, &passed)
		}
	}
}

// wants returns the task of a waiter that would begin if there was room; nil: it was
// cancelled, or its run is paused, or was in this step.
func (m *machine) wants(w *waiter) *replayTask {
	r := m.log.runs[w.run]
	if r == nil || r.settled != nil || r.paused || r.wasPaused || r.cancelled || r.ending(m.config.Now()) {
		return nil
	}
	if q := m.log.queues[r.queue]; q.paused || q.was {
		return nil
	}
	for _, t := range r.tasks {
		if t.dispatch == w.id && t.state == api.TaskRunning && t.fence == w.fence && !t.stopped() {
			return t
		}
	}
	return nil
}

// resumed reports whether a waiter was paused before this step, and is not any more.
func (m *machine) resumed(w *waiter) bool {
	r := m.log.runs[w.run]
	if r == nil || r.settled != nil {
		return false
	}
	q := m.log.queues[r.queue]
	return r.wasPaused && !r.paused || q.was && !q.paused
}

// affordings finds more attempts than there are slots, those that were overtaken in a
// budget, and the first of a line that has room and a slot and does not begin.
func (m *machine) affordings() (wrong []string) {
	object := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	now := m.config.Now()
	m.desk.mu.Lock()
	defer m.desk.mu.Unlock()
	p := m.desk.purse
	active, quiet := map[api.Name]int{}, true
	for _, j := range m.desk.jobs {
		if r := m.log.runs[j.order.Run]; j.active() && r != nil {
			active[r.queue]++
		}
		quiet = quiet && (j.untold.IsZero() || now.Sub(j.untold) > unheard)
	}
	for name, q := range m.log.queues {
		if active[name] > q.slots {
			object("%d attempts run in queue %s, which has %d slots", active[name], name, q.slots)
		}
	}
	for _, w := range p.passed {
		if t := m.wants(w); t != nil {
			object("task %s waits for %s since %s, and %s/%s, which started later, took from that", t.name(), w.line, clock(w.since), w.by.run, w.by.subagent)
		}
	}
	p.passed = nil
	if !quiet || now.UTC().YearDay() != now.Add(-unheard).UTC().YearDay() {
		return wrong
	}
	var first *waiter // of all: no other is in its way
	for _, w := range p.waiting {
		if m.wants(w) != nil && (first == nil || w.fence < first.fence) {
			first = w
		}
	}
	if first == nil {
		return wrong
	}
	for _, w := range p.waiting {
		if w.owner.by == first.owner.by && w.fence < first.fence && m.resumed(w) {
			return wrong // it is in the way again, maybe until its queue has a slot
		}
	}
	m.seen["waits for a budget"]++
	t, taken := m.wants(first), 0
	for o := range m.log.each {
		if o.state != api.TaskRunning || p.waiting[o.dispatch] != nil {
			continue
		}
		if o.run.queue == t.run.queue {
			taken++
		}
		if j := m.desk.jobs[o.dispatch]; o.run.by == t.run.by && o.fence < t.fence && (j == nil || !j.active()) {
			return wrong // its submission takes long, and it is in the way after a restart
		}
	}
	if _, why, _ := m.desk.admits(first.owner, now); why == "" && taken < m.log.queues[t.run.queue].slots {
		object("task %s waits for %s, and there is room", t.name(), first.line)
	}
	return wrong
}
