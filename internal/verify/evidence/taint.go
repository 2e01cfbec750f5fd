package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// taint compares the taint that an attempt begins with to that of the attempt
// before it, or of what it uses: the first tainted one counts.
func (c *closure) taint(m *record.Manifest, before *attempt) error {
	var want *api.Taint
	if before != nil {
		want = before.tainted()
	} else {
		for _, id := range m.Uses() {
			h := c.v.dispatches[id]
			switch missing := h == nil || h.last() == nil; {
			case missing && id == m.ItemFrom:
				return fmt.Errorf("its item is from dispatch %s, which is not in the bundle", id)
			case missing && id == m.DecidedBy:
				return fmt.Errorf("dispatch %s, which decided that it runs, is not in the bundle", id)
			case id == m.DecidedBy && want != nil:
				return fmt.Errorf("it names dispatch %s, which decided that it runs, in addition to the taint of what it takes over", id)
			}
			if want == nil && h != nil && h.last() != nil { // need reports it
				want = h.last().tainted()
			}
		}
	}
	if !sameTaint(want, m.Taint) {
		return fmt.Errorf("it begins with %s, but what it takes over has %s", taintWords(m.Taint), taintWords(want))
	}
	if before == nil {
		return c.influenced(m)
	}
	return nil
}

// influenced compares what decided that a task runs, by the plan of its run, with the
// taint that its dispatch begins with. Where a need or its item gives it one, no other is
// named. Services older than principals of operator keys left it out.
func (c *closure) influenced(m *record.Manifest) error {
	r := c.v.replayed[m.Run]
	if m.Run == "" || r == nil || r.plan == nil {
		return nil // the bundle is about the dispatch alone
	}
	i, ok := r.plan.Index(m.Task)
	if !ok {
		return nil // the manifest row reports it
	}
	taken := m.Taint != nil && m.DecidedBy == ""
	admitted := c.h.attempts[0].admitted
	if taken || m.DecidedBy == "" && !c.owned(m, admitted) {
		return nil
	}
	influences := r.plan.Influences(i)
	if err := c.v.work.spend(unitCompare * (len(r.plan.Tasks) + len(influences))); err != nil {
		return err
	}
	named := m.DecidedBy == ""
	for _, n := range influences {
		t := &r.tasks[n]
		h := c.v.dispatches[t.Dispatch]
		switch {
		case t.State != api.TaskDone || t.Dispatch == "" || h == nil || h.last() == nil || t.settledAt > admitted.seq:
		case t.Dispatch == m.DecidedBy:
			named = true
		case m.DecidedBy == "" && r.counted(n) && h.last().tainted() != nil:
			return fmt.Errorf("it begins without text from outside, but task %s, which decided that it runs, has %s", r.plan.Tasks[n].ID, taintWords(h.last().tainted()))
		}
	}
	if !named {
		return fmt.Errorf("dispatch %s did not decide that it runs", m.DecidedBy)
	}
	return nil
}

// counted reports whether a task was done before what it decided was: a voter can finish
// after its quorum is known.
func (r *replay) counted(n int32) bool {
	up := r.plan.Parent(int(n))
	return up < 0 || r.plan.Tasks[up].Quorum == nil || r.tasks[n].settledAt < r.tasks[up].settledAt
}

func taintWords(t *api.Taint) string {
	if t == nil {
		return "no text from outside"
	}
	return fmt.Sprintf("text from outside by call %d of %s in dispatch %s attempt %d", t.Call, record.Word(t.Tool), t.Dispatch, t.Attempt)
}

// tainted returns the taint of a dispatch as of the end of an attempt.
func (a *attempt) tainted() *api.Taint {
	a.traceTaint()
	return a.taintAfter
}

// called reports whether the agent of an attempt called a tool, allowed or not.
func (a *attempt) called() bool {
	return slices.ContainsFunc(a.calls, func(e *entry) bool { return slices.Contains(callKinds(), e.Kind) })
}

// traceTaint finds the taint before each entry about tools of an attempt.
func (a *attempt) traceTaint() {
	a.taintOnce.Do(func() {
		if a.manifest == nil {
			return // the manifest row reports it
		}
		now := a.manifest.Taint
		for _, e := range a.calls {
			e.taint = now
			if d, ok := e.Detail.(record.ToolCall); ok && d.Taints && now == nil {
				now = &api.Taint{Dispatch: e.Dispatch, Attempt: e.Attempt, Call: d.Number, Tool: e.Tool}
			}
		}
		a.taintAfter = now
	})
}

func sameTaint(a, b *api.Taint) bool { return a == b || a != nil && b != nil && *a == *b }
