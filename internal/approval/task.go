package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// AskTask returns the request about a task, as it stands, or makes it: durable together
// with its log entry. It fills in the id of action, and with timeout when it expires.
// waits fails in that transaction if the task does not wait any more. One that it returns
// as expired is so in the log: the task fails after that.
func (a *Approvals) AskTask(ctx context.Context, action api.TaskAction, timeout time.Duration, waits func(*store.Tx) error) (api.Approval, error) {
	found, err := a.OfTask(ctx, action.Run, action.Task)
	if err == nil && found.State == api.ApprovalExpired {
		if _, err := a.expireDue(ctx); err != nil {
			return api.Approval{}, err
		}
		return a.OfTask(ctx, action.Run, action.Task)
	}
	if err == nil || api.CodeOf(err) != api.CodeNotFound {
		return found, err
	}
	now := a.cfg.Now().UTC()
	action.V, action.ID, action.Expires = 1, newID(), now.Add(timeout).Truncate(time.Second)
	doc, err := canon.Marshal(action)
	switch {
	case err != nil:
		return api.Approval{}, err
	case len(doc) > api.MaxTaskAction:
		return api.Approval{}, api.Errorf(api.CodeTooLarge, "what it shows takes %d bytes, the limit is %d: show fewer tasks, or tasks with fewer outputs", len(doc), api.MaxTaskAction)
	}
	r := row{action: action.Action(), digest: api.DigestOf(doc), state: api.ApprovalOpen, requested: now}
	_, err = a.cfg.Ledger.Record(ctx, entry(record.KindApprovalRequest, r), func(tx *store.Tx) error {
		var n int
		if err := tx.Get("SELECT count(*) FROM approval WHERE run = ? AND task = ?", store.Args{string(action.Run), string(action.Task)}, &n); err != nil {
			return err
		}
		if n > 0 {
			return errAsked
		}
		return errors.Join(waits(tx), r.insert(tx, r.digest, doc))
	})
	if errors.Is(err, errAsked) {
		return a.OfTask(ctx, action.Run, action.Task)
	}
	if err != nil {
		return api.Approval{}, err
	}
	return a.asked(r), nil
}

// OfTask returns the request about a task of a run.
func (a *Approvals) OfTask(ctx context.Context, run api.RunID, task api.TaskID) (api.Approval, error) {
	list, err := a.list(ctx, "run = ? AND task = ?", store.Args{string(run), string(task)})
	if err == nil && len(list) == 0 {
		err = api.Errorf(api.CodeNotFound, "task %s of run %s requests no approval", task, run)
	}
	if err != nil {
		return api.Approval{}, err
	}
	return list[0], nil
}

// Shows reports whether an open request of a run lists p, and shows it a dispatch.
func (a *Approvals) Shows(ctx context.Context, p api.Principal, run api.RunID, id api.DispatchID) (found bool, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return each(v, "run = ? AND state = 'open'", store.Args{string(run)}, func(r row) error {
			if s := r.action.Step; s != nil && slices.Contains(s.By, p) && p.Person() {
				found = found || slices.ContainsFunc(s.Shown, func(t api.ShownTask) bool { return t.Dispatch == id })
			}
			return nil
		})
	})
	return found, err
}

// EndTask ends the request about a task, in the transaction of the task's end. A task
// that is done uses it: that fails unless people approved it.
func (a *Approvals) EndTask(tx *store.Tx, run api.RunID, task api.TaskID, done bool) error {
	if !done {
		_, err := tx.Exec("UPDATE approval SET state = 'ended' WHERE run = ? AND task = ? AND state IN ('open', 'approved')", string(run), string(task))
		return err
	}
	n, err := tx.Exec("UPDATE approval SET state = 'used' WHERE run = ? AND task = ? AND state = 'approved'", string(run), string(task))
	if err == nil && n != 1 {
		err = api.Errorf(api.CodeIntegrity, "task %s of run %s has no approval to use", task, run)
	}
	return err
}

// ForgetDispatch removes what people were asked about the calls of a dispatch, with its
// evidence.
func (a *Approvals) ForgetDispatch(tx *store.Tx, id api.DispatchID) error {
	_, err := tx.Exec("DELETE FROM approval WHERE dispatch = ? AND state != 'open'", string(id))
	return err
}

// ForgetRun removes what people were asked about the tasks of a run, with its rows.
func (a *Approvals) ForgetRun(tx *store.Tx, id api.RunID) error {
	_, err := tx.Exec("DELETE FROM approval WHERE run = ? AND state != 'open'", string(id))
	return err
}
