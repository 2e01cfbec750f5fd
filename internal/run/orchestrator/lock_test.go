package orchestrator

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

// oneTask is a run of one task with these locks.
func oneTask(id string, locks ...api.Lock) *run {
	return &run{id: api.RunID(id), plan: &plan.Plan{Plan: api.Plan{Tasks: []api.PlanTask{{ID: "t", Locks: locks}}}}}
}

func alone(key string) api.Lock  { return api.Lock{Key: key} }
func shared(key string) api.Lock { return api.Lock{Key: key, Shared: true} }

// ids names the runs of leases, in order.
func ids(list []*lease) (out []string) {
	for _, w := range list {
		out = append(out, string(w.run.id))
	}
	return out
}

// proves R-O3
func TestNoTaskOvertakesAnExclusiveRequest(t *testing.T) {
	l := newLocks()
	want := func(got []*lease, names ...string) {
		t.Helper()
		if !slices.Equal(ids(got), names) {
			t.Fatalf("granted %q, want %q", ids(got), names)
		}
	}
	ask := func(id string, keys ...api.Lock) (*lease, []*lease) {
		w := l.newLease(oneTask(id, keys...), 0)
		return w, l.request(w, nil)
	}
	reader, got := ask("reader", shared("k"))
	want(got, "reader")
	_, got = ask("second-reader", shared("k"))
	want(got, "second-reader") // shared holders run together
	writer, got := ask("writer", alone("k"), alone("other"))
	want(got)
	_, got = ask("late-reader", shared("k")) // it could share, and would keep the writer waiting for ever
	want(got)
	_, got = ask("elsewhere", alone("free"))
	want(got, "elsewhere") // disjoint keys fan out
	behind, got := ask("behind", alone("other"))
	want(got) // nobody holds it, and the writer came first
	if why := behind.blockedBy(); why != `lock "other", queued behind task t of run writer` {
		t.Errorf("blocked by %q", why)
	}
	want(l.release(reader, nil))
	second := l.keys["k"]
	if second.sharers != 1 {
		t.Fatalf("%d share", second.sharers)
	}
	// A writer that is withdrawn lets those behind it proceed.
	want(l.release(writer, nil), "late-reader", "behind")
}

// refLocks is the same rule, looked up from scratch each time.
type refLocks struct {
	waiting []*run // in the order in which they came
	holding []*run
}

func conflict(a, b *run) bool {
	for _, x := range a.plan.Tasks[0].Locks {
		for _, y := range b.plan.Tasks[0].Locks {
			if x.Key == y.Key && (!x.Shared || !y.Shared) {
				return true
			}
		}
	}
	return false
}

// settle grants every request that conflicts with no earlier one.
func (m *refLocks) settle() (granted []*run) {
	for again := true; again; {
		again = false
		for i, r := range m.waiting {
			blocked := slices.ContainsFunc(m.holding, func(h *run) bool { return conflict(r, h) }) ||
				slices.ContainsFunc(m.waiting[:i], func(w *run) bool { return conflict(r, w) })
			if !blocked {
				m.waiting = slices.Delete(slices.Clone(m.waiting), i, i+1)
				m.holding = append(m.holding, r)
				granted, again = append(granted, r), true
				break
			}
		}
	}
	return granted
}

// What is granted, and when, is what the rule says, whatever comes and goes.
//
// proves R-O3
func TestLocksMatchTheReferenceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, m := newLocks(), &refLocks{}
		leases := map[*run]*lease{}
		compare := func(got []*lease, want []*run) {
			names := func(list []*run) (out []string) {
				for _, r := range list {
					out = append(out, string(r.id))
				}
				return out
			}
			a, b := ids(got), names(want)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Fatalf("granted %q, the rule says %q", a, b)
			}
		}
		for n := range rapid.IntRange(1, 60).Draw(t, "steps") {
			all := slices.Concat(m.waiting, m.holding)
			if len(all) == 0 || rapid.Bool().Draw(t, "come") {
				var keys []api.Lock
				for k := range 4 {
					switch rapid.IntRange(0, 3).Draw(t, "key") {
					case 0:
						keys = append(keys, alone(fmt.Sprint(k)))
					case 1:
						keys = append(keys, shared(fmt.Sprint(k)))
					}
				}
				r := oneTask(fmt.Sprint("r", n), keys...)
				m.waiting = append(m.waiting, r)
				leases[r] = l.newLease(r, 0)
				compare(l.request(leases[r], nil), m.settle())
				continue
			}
			r := rapid.SampledFrom(all).Draw(t, "go")
			gone := func(x *run) bool { return x == r }
			m.waiting, m.holding = slices.DeleteFunc(slices.Clone(m.waiting), gone), slices.DeleteFunc(slices.Clone(m.holding), gone)
			compare(l.release(leases[r], nil), m.settle())
		}
		for _, r := range slices.Concat(m.holding, m.waiting) {
			l.release(leases[r], nil)
		}
		if len(l.keys) != 0 {
			t.Fatalf("%d keys are kept of nobody", len(l.keys))
		}
	})
}

// Principals take turns, and priorities count within one.
func TestPrincipalsTakeTurnsInAQueue(t *testing.T) {
	q := newQueue("q", 100)
	push := func(p api.Principal, id string, priority int) *lease {
		r := oneTask(id)
		r.principal, r.plan.Tasks[0].Priority = p, priority
		w := &lease{run: r}
		q.push(w)
		return w
	}
	for i := range 4 {
		push("local:ann", fmt.Sprint("a", i), 0)
	}
	urgent := push("local:ann", "urgent", 5)
	push("local:ben", "b0", 0)
	withdrawn := push("local:ben", "b1", 9)
	q.remove(withdrawn)
	var got []string
	for w := q.pop(); w != nil; w = q.pop() {
		got = append(got, string(w.run.id))
	}
	if want := []string{"urgent", "b0", "a0", "a1", "a2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("started %q, want %q", got, want)
	}
	if q.ready != 0 || len(q.turns) != 0 || len(q.lines) != 0 || urgent.turn.line != nil {
		t.Errorf("left: %+v", q)
	}
	push("local:ann", "x", 0)
	q.running = q.slots
	if q.pop() != nil {
		t.Error("started without a slot")
	}
	q.running, q.pausedBy = 0, "local:root"
	if q.pop() != nil {
		t.Error("started while paused")
	}
}
