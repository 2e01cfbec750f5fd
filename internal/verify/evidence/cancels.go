package evidence

import (
	"sort"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// cancelled returns the first entry after n that requests to cancel the dispatch,
// or nil.
func (h *history) cancelled(n uint64) *entry {
	h.cancelOnce.Do(func() {
		for _, e := range h.entries {
			if e.Kind == record.KindCancelRequested || e.Kind == record.KindDispatchAborted {
				h.cancels = append(h.cancels, e)
			}
		}
	})
	return firstAfter(h.cancels, n)
}

// firstAfter returns the first of list, which is in the order of the log, after
// entry n, or nil.
func firstAfter(list []*entry, n uint64) *entry {
	if k := sort.Search(len(list), func(k int) bool { return list[k].seq > n }); k < len(list) {
		return list[k]
	}
	return nil
}

// cancels are the first entries of a run that end its tasks.
type cancels struct {
	once  sync.Once
	whole *entry            // of all tasks
	tasks map[string]*entry // of one
}

// first returns the first of the run's entries that cancels it or a task of it, or
// that says that it reached its limit; or nil.
func (c *cancels) first(run []*entry, task string) *entry {
	c.once.Do(func() {
		c.tasks = map[string]*entry{}
		for _, e := range run {
			switch {
			case e.Kind == record.KindRunExpired || e.Kind == record.KindRunCancelled && e.Task == "":
				if c.whole == nil {
					c.whole = e
				}
			case e.Kind == record.KindRunCancelled && c.tasks[e.Task] == nil:
				c.tasks[e.Task] = e
			}
		}
	})
	if e := c.tasks[task]; e != nil && (c.whole == nil || e.seq < c.whole.seq) {
		return e
	}
	return c.whole
}

// canceller returns who first requested, before entry n, to cancel the run, task i or a
// task that it grew from, which cancels what grew from it; or else the service: at the
// limit, or because that task settled before.
// A for_each is also cancelled by who cancelled the last of its tasks.
func (r *replay) canceller(run []*entry, i int, n uint64) api.Actor {
	var first *entry
	for at := i; at >= 0; at = int(r.plan.Parent(at)) {
		if s := r.tasks[at].settledAt; at != i && s > 0 {
			n = min(n, s)
		}
		if e := r.cancels.first(run, string(r.plan.Tasks[at].ID)); e != nil && (first == nil || e.seq < first.seq) {
			first = e
		}
	}
	if first != nil && first.seq < n {
		if first.Kind == record.KindRunExpired {
			return api.Service
		}
		return api.Actor(first.Principal)
	}
	if o := &r.tasks[i].offspring; r.plan.Tasks[i].ForEach != nil && o.Cancelled > 0 {
		return r.canceller(run, o.last, r.tasks[o.last].settledAt)
	}
	return api.Service
}

// engagements are the entries that engage a stop, by what it covers.
type engagements struct {
	number map[uint64]int // of each, from 1, by its entry
	lines  map[stopKey][]*entry
}

func newEngagements() engagements { return engagements{map[uint64]int{}, map[stopKey][]*entry{}} }

func (s *engagements) add(e *entry) {
	d := detail[record.StopEngaged](e)
	key := keyOf(api.Stop{Scope: api.StopScope(d.Scope), Name: d.Name})
	s.lines[key] = append(s.lines[key], e)
	s.number[e.seq] = len(s.number) + 1
}

// after returns the first stop after entry n that covers w, lifted since or not, or
// nil.
func (s *engagements) after(n uint64, w api.StopSubject) (first *entry) {
	for _, key := range keysOf(w) {
		if e := firstAfter(s.lines[key], n); e != nil && (first == nil || e.seq < first.seq) {
			first = e
		}
	}
	return first
}
