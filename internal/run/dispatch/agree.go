package dispatch

import (
	"fmt"
	"slices"
	"strings"

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
	if s.Runs() {
		what = r.disagrees(&s)
	} else if what, err = r.disagreesReused(v, &s); err != nil {
		return err
	}
	if what != "" {
		return differs(id, "its %s differs from the log", what)
	}
	return nil
}

// admitted is the part of the manifest of a dispatch that its record has too.
func admitted(d *api.Dispatch) *record.Manifest {
	return &record.Manifest{
		ID: d.ID, Attempt: d.Attempt, Run: d.Run, Task: d.Task, Subagent: d.Subagent, Role: d.Role, Tier: d.Tier, Target: d.Target, Source: d.Source, Revision: d.Revision, Input: d.Input,
	}
}

// disagrees names a part of r, in the state of s, that entries say otherwise.
func (r *row) disagrees(s *record.DispatchStanding) string {
	d := &r.record
	accepted, ended := record.Accepted(admitted(d), "", nil), record.Ended(d)
	if what := record.Difference(&accepted, &s.Admitted, "run", "task", "role", "tier", "detail.subagent", "detail.target", "detail.source", "detail.commit", "detail.revision"); what != "" {
		return fieldWord(what)
	}
	fields := []string{"refs", "detail.reason", "detail.by"}
	if d.Outcome != nil {
		fields = append(fields, "detail.partial", "detail.files", "detail.verify", "detail.changed", "detail.exitCode")
	}
	if what := record.Difference(&ended, &s.End, fields...); what != "" {
		return fieldWord(what)
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
	switch {
	case d.Manifest != s.Manifest: // the end repeats the row, not the entry that admitted it
		return "manifest"
	case r.key != s.WorkerKey:
		return "worker key"
	case d.Statement != s.Statement:
		return "statement"
	case refused != s.Refused:
		return "number of refused requests"
	case calls.Allowed != s.Called || calls.Denied != s.NotCalled:
		return "number of tool calls"
	case !sameTaint(d, s.Taint):
		return "taint"
	}
	return ""
}

// sameTaint reports whether the taint of a dispatch is the first of its own, or comes from
// another one.
func sameTaint(d *api.Dispatch, logged *api.Taint) bool {
	own := d.Taint != nil && d.Taint.Dispatch == d.ID
	if logged == nil {
		return !own
	}
	return d.Taint != nil && (!own || *d.Taint == *logged)
}

// fieldWord is a field of an entry in an error.
func fieldWord(field string) string { return field[strings.Index(field, ".")+1:] }

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
