package orchestrator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// CheckOpen compares the rows of all unsettled runs, and of those that the newest
// entries name, with the log, and the number of unsettled runs, the paused queues
// and the fencing token with the entries that lead there. Its time does not grow
// with what has settled. A difference is of CodeIntegrity.
func CheckOpen(v store.Reader, newest uint64) error {
	ids, err := audit.RecentIDs(v, audit.Runs, newest)
	if err != nil {
		return err
	}
	open := 0
	if err := v.Each("SELECT id FROM run WHERE settled IS NULL", nil, func(scan store.Scan) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		open++
		return err
	}); err != nil {
		return err
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if err := checkOne(v, api.RunID(id)); err != nil {
			return err
		}
	}
	submitted, err := audit.Count(v, record.KindRunSubmitted)
	if err != nil {
		return err
	}
	settled, err := audit.Count(v, record.KindRunSettled)
	if err != nil {
		return err
	}
	if open != submitted-settled {
		return differs("", "the log says that %d are unsettled, the state says %d", submitted-settled, open)
	}
	if err := checkQueues(v); err != nil {
		return err
	}
	return checkFence(v)
}

// CheckSome compares the next runs after one, at most limit, with the log, and
// returns the last of them; empty when there are no more.
func CheckSome(v store.Reader, after string, limit int) (last string, err error) {
	ids, err := audit.IDs(v, audit.Runs, after, limit)
	if err != nil {
		return "", err
	}
	if err := v.Each("SELECT id FROM run WHERE id > ? ORDER BY id LIMIT ?", store.Args{after, limit}, func(scan store.Scan) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	}); err != nil {
		return "", err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, last = range ids[:min(len(ids), limit)] {
		if err := checkOne(v, api.RunID(last)); err != nil {
			return last, err
		}
	}
	return last, nil
}

// checkOne compares the rows of a run and its tasks with the entries about it.
func checkOne(v store.Reader, id api.RunID) error {
	var s record.RunStanding
	submitted := uint64(0)
	if err := audit.Each(v, audit.Query{Run: id}, func(c *audit.Committed) error {
		if c.Entry.Kind == record.KindRunSubmitted {
			submitted = c.Seq
		}
		if err := s.Apply(&c.Entry); err != nil {
			return differs(id, "log entry #%d: %w", c.Seq, err)
		}
		return nil
	}); err != nil {
		return err
	}
	r, ok, err := runByID(v, id)
	switch {
	case err != nil:
		return differs(id, "%w", err)
	case !ok && s.Principal == "":
		return nil // it was denied, or only named
	case !ok:
		return checkRemoved(v, id, submitted, s.Settled)
	case s.Principal == "":
		return differs(id, "the state has it, the log never admitted it")
	}
	if what := r.disagrees(&s); what != "" {
		return differs(id, "its %s differs from the log", what)
	}
	taken := int64(0)
	for i := range r.tasks {
		t, name := &r.tasks[i], r.plan.Tasks[i].ID
		if t.takenOver {
			taken++
			continue
		}
		want, ok := s.Tasks[string(name)]
		if !ok {
			want.State = api.TaskPending
			if r.beganGrowing(name) {
				want.State = api.TaskGrowing
			}
		}
		if t.state != want.State || t.dispatch != want.Dispatch || int(t.attempt) != want.Attempt || int64(t.fence) != want.Fence { //nolint:gosec // G115: counts up from 1
			return differs(id, "the log says that task %s is %s, attempt %d, dispatch %q, fencing token %d; the state says %s, %d, %q, %d",
				name, want.State, want.Attempt, want.Dispatch, want.Fence, t.state, t.attempt, t.dispatch, t.fence)
		}
	}
	if taken != s.Request.Taken {
		return differs(id, "the log says that %d tasks were taken over, the state says %d", s.Request.Taken, taken)
	}
	return nil
}

// beganGrowing reports whether a task had grown when its run, a retry, began.
func (r *run) beganGrowing(task api.TaskID) bool {
	i, ok := r.plan.Index(task)
	if !ok || r.tasks[i].state != api.TaskGrowing {
		return false
	}
	began, err := r.readGrowths()
	return err == nil && slices.ContainsFunc(began[:min(r.doc.Grown, len(began))], func(g plan.Growth) bool { return g.Task == task })
}

// disagrees names a part of r that entries say otherwise.
func (r *run) disagrees(s *record.RunStanding) string {
	settled := !r.settled.IsZero()
	for _, c := range []struct {
		what  string
		equal bool
	}{
		{"principal", r.principal == s.Principal},
		{"plan", r.doc.Digest == s.Plan},
		{"list of growths", slices.EqualFunc(r.growths[min(r.doc.Grown, len(r.growths)):], s.Growths, func(g growth, d api.Digest) bool { return g.digest == d })},
		{"queue", string(r.doc.Queue) == s.Request.Queue},
		{"catalog revision", int64(r.doc.Number) == s.Request.Revision}, //nolint:gosec // G115: numbers count up from 1
		{"version of the rules", r.doc.Rules == s.Request.Rules},
		{"earlier run", string(r.doc.RetryOf) == s.Request.RetryOf},
		{"settlement", settled == s.Settled},
		{"final state", !settled || string(r.state) == s.End.State},
		{"pause", settled || r.pausedBy == s.PausedBy},
		{"cancel request", r.cancelBy == s.CancelBy},
	} {
		if !c.equal {
			return c.what
		}
	}
	return ""
}

// checkRemoved requires that retention removed the run that entry from submitted.
func checkRemoved(v store.Reader, id api.RunID, from uint64, settled bool) error {
	removed := false
	err := audit.Each(v, audit.Query{From: from, Kind: record.KindRetentionRemoved}, func(c *audit.Committed) error {
		d, _ := c.Entry.Detail.(record.Removal)
		removed = removed || slices.Contains(d.Runs, string(id))
		return nil
	})
	if err == nil && (!removed || !settled) {
		err = differs(id, "it is in the log and not in the state, and no retention rule removed it")
	}
	return err
}

// checkQueues compares the paused queues with the newest entry about each.
func checkQueues(v store.Reader) error {
	want := map[api.Name]api.Principal{}
	if err := audit.Each(v, audit.Query{Kinds: []record.Kind{record.KindQueuePaused, record.KindQueueResumed}}, func(c *audit.Committed) error {
		d, _ := c.Entry.Detail.(record.RunAction)
		name := api.Name(d.Queue)
		if c.Entry.Kind == record.KindQueueResumed {
			delete(want, name)
		} else if _, paused := want[name]; !paused {
			want[name] = c.Entry.Principal
		}
		return nil
	}); err != nil {
		return err
	}
	got := map[api.Name]api.Principal{}
	if err := v.Each("SELECT name, by FROM run_queue", nil, func(scan store.Scan) error {
		var name api.Name
		var by api.Principal
		err := scan(&name, &by)
		got[name] = by
		return err
	}); err != nil {
		return err
	}
	if !maps.Equal(got, want) {
		return differs("", "the log says that the paused queues are %v, the state says %v", want, got)
	}
	return nil
}

// checkFence requires that the next fencing token is greater than the newest one.
func checkFence(v store.Reader) error {
	last, err := audit.Last(v, record.KindTaskStarted)
	if err != nil || last == nil {
		return err
	}
	var value int64
	if err := v.Get("SELECT coalesce(max(value), 0) FROM run_fence", nil, &value); err != nil {
		return err
	}
	if d, _ := last.Entry.Detail.(record.TaskStart); value < d.Fence {
		return differs("", "the log gave out the fencing token %d, the state says %d", d.Fence, value)
	}
	return nil
}

// differs is the error of rows that do not follow from the log.
func differs(id api.RunID, format string, args ...any) error {
	what, see := "runs", "bailiwick audit list"
	if id != "" {
		what, see = fmt.Sprintf("run %s", id), fmt.Sprintf("bailiwick audit list --run %s", id)
	}
	return api.Errorf(api.CodeIntegrity, api.StateDiffers+"%s: %w", what, fmt.Errorf(format, args...)).
		WithHint("the state database was changed or put back in part; restore all of the state directory from one backup; see: %s", see)
}
