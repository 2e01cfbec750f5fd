package dispatch

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// CheckOpen compares the rows of all dispatches that have not ended, and of those
// that the newest entries name, with the log, and the number of all rows in each
// state with the entries that lead there. Its time does not grow with what has
// ended. A difference is of CodeIntegrity.
func CheckOpen(v store.Reader, newest uint64) error {
	ids, err := audit.RecentIDs(v, audit.Dispatches, newest)
	if err != nil {
		return err
	}
	open, err := rows(v, "WHERE "+inStates(append(activeStates(), api.EventNeedsInput)...))
	if err != nil {
		return err
	}
	for i := range open {
		ids = append(ids, string(open[i].record.ID))
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if err := checkOne(v, api.DispatchID(id)); err != nil {
			return err
		}
	}
	return checkCounts(v)
}

// CheckSome compares the next dispatches after one, at most limit, with the log,
// and returns the last of them; empty when there are no more.
func CheckSome(v store.Reader, after string, limit int) (last string, err error) {
	named, err := audit.IDs(v, audit.Dispatches, after, limit)
	if err != nil {
		return "", err
	}
	stored := []string{}
	if err := v.Each("SELECT id FROM dispatch WHERE id > ? ORDER BY id LIMIT ?", store.Args{after, limit}, func(scan store.Scan) error {
		var id string
		err := scan(&id)
		stored = append(stored, id)
		return err
	}); err != nil {
		return "", err
	}
	ids := slices.Concat(named, stored)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	ids = ids[:min(len(ids), limit)]
	for _, last = range ids {
		if err := checkOne(v, api.DispatchID(last)); err != nil {
			return last, err
		}
	}
	return last, nil
}

// checkOne compares the row of a dispatch with the entries about it.
func checkOne(v store.Reader, id api.DispatchID) error {
	var s record.DispatchStanding
	if err := audit.Each(v, audit.Query{Dispatch: id}, func(c *audit.Committed) error {
		if err := s.Apply(&c.Entry); err != nil {
			return differs(id, "log entry #%d: %w", c.Seq, err)
		}
		return nil
	}); err != nil {
		return err
	}
	var state api.Event
	var principal api.Principal
	var attempt int
	r, ok, err := load(v, id)
	if err == nil && ok {
		err = v.Get("SELECT state, principal, attempt FROM dispatch WHERE id = ?", store.Args{id}, &state, &principal, &attempt)
	}
	switch {
	case err != nil:
		return err
	case !ok && s.State == "":
		return nil // it was denied, or only named
	case !ok:
		return differs(id, "the log says %s, the state has no such dispatch", s.State)
	case s.State == "":
		return differs(id, "the state has it, the log never accepted it")
	}
	for _, d := range []api.Dispatch{{State: state, Principal: principal, Attempt: attempt}, r.record} {
		if d.State != s.State || d.Principal != s.Principal || d.Attempt != s.Attempt {
			return differs(id, "the log says %s, attempt %d of %s; the state says %s, attempt %d of %s", s.State, s.Attempt, s.Principal, d.State, d.Attempt, d.Principal)
		}
	}
	what := ""
	if s.Reused.Of == "" {
		what = r.disagrees(&s)
	} else if what, err = r.disagreesReused(v, &s); err != nil {
		return err
	}
	if what != "" {
		return differs(id, "its %s is not that of the log", what)
	}
	return nil
}

// disagrees names a part of r, in the state of s, that entries say otherwise.
func (r *row) disagrees(s *record.DispatchStanding) string {
	d := &r.record
	var commit string
	var source api.Name
	if d.Source != nil {
		source, commit = d.Source.Name, d.Source.Commit
	}
	refused := s.Refused
	if d.Outcome != nil && d.Result != "" { // of a worker without a result only the log says it
		refused = 0
		if r := d.Outcome.Refusals; r != nil {
			refused = r.Count
		}
	}
	calls := api.ToolCalls{}
	if d.Calls != nil {
		calls = *d.Calls
	}
	sum, refs := record.EndOf(d.Outcome)
	end := s.End
	if d.Outcome == nil {
		end = record.DispatchEnd{}
	}
	for _, c := range []struct {
		what  string
		equal bool
	}{
		{"run", string(d.Run) == s.Run},
		{"task", string(d.Task) == s.Task},
		{"subagent", string(d.Subagent) == s.Request.Subagent},
		{"target", string(d.Target) == s.Request.Target},
		{"source", string(source) == s.Request.Source && commit == s.Request.Commit},
		{"catalog revision", int64(d.Revision) == s.Request.Revision}, //nolint:gosec // G115: numbers count up from 1
		{"role", d.Role == s.Role},
		{"tier", d.Tier == s.Tier},
		{"manifest", d.Manifest == s.Manifest},
		{"worker key", r.key == s.WorkerKey},
		{"result", d.Result == s.Result},
		{"reason", string(d.Reason) == s.End.Reason},
		{"patch", refs[record.RefPatch] == s.Patch},
		{"question", refs[record.RefQuestion] == s.Question},
		{"outcome", sum.Partial == end.Partial && sum.Files == end.Files && sum.Verify == end.Verify && sum.Changed == end.Changed && sum.ExitCode == end.ExitCode},
		{"canceller", d.State != api.EventCancelled || string(d.CancelBy) == s.End.By},
		{"statement", d.Statement == s.Statement},
		{"number of refused requests", refused == s.Refused},
		{"number of tool calls", calls.Allowed == s.Called && calls.Denied == s.NotCalled},
		{"record of tool calls", calls.Record == nil && s.Calls == "" || calls.Record != nil && calls.Record.Digest == s.Calls},
		{"taint", s.Taint == nil && (d.Taint == nil || d.Taint.Dispatch != d.ID) || s.Taint != nil && d.Taint != nil && (*d.Taint == *s.Taint || d.Taint.Dispatch != d.ID)},
	} {
		if !c.equal {
			return c.what
		}
	}
	return ""
}

// checkCounts compares how many rows are in each final state, and how many are
// open, with the entries that lead there: it finds a changed row of any age.
func checkCounts(v store.Reader) error {
	rows := map[api.Event]int{}
	if err := v.Each("SELECT state, count(*) FROM dispatch GROUP BY state", nil, func(scan store.Scan) error {
		var state api.Event
		var n int
		err := scan(&state, &n)
		rows[state] = n
		return err
	}); err != nil {
		return err
	}
	open, err := audit.Count(v, record.KindDispatchAccepted)
	if err != nil {
		return err
	}
	reused, err := audit.Count(v, record.KindTaskReused)
	if err != nil {
		return err
	}
	for _, state := range []api.Event{api.EventFinished, api.EventFailed, api.EventCancelled} {
		ended, err := audit.Count(v, record.KindOf(state))
		if err != nil {
			return err
		}
		open -= ended
		if state == api.EventFinished {
			ended += reused
		}
		if rows[state] != ended {
			return differs("", "the log says that %d are %s, the state says %d", ended, state, rows[state])
		}
	}
	if n := rows[api.EventAccepted] + rows[api.EventStarted] + rows[api.EventNeedsInput]; n != open {
		return differs("", "the log says that %d have not ended, the state says %d", open, n)
	}
	return nil
}

// differs is the error of rows that do not follow from the log.
func differs(id api.DispatchID, format string, args ...any) error {
	what, see := "dispatches", "bailiwick audit list"
	if id != "" {
		what, see = fmt.Sprintf("dispatch %s", id), fmt.Sprintf("bailiwick audit list --dispatch %s", id)
	}
	return api.Errorf(api.CodeIntegrity, api.StateDiffers+"%s: %w", what, fmt.Errorf(format, args...)).
		WithHint("the state database was changed or put back in part; restore all of the state directory from one backup; see: %s", see)
}
