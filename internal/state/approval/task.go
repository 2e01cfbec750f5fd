package approval

import (
	"context"
	"errors"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// AskTask returns the request about a task, as it stands, or makes it: durable together
// with its log entry. It fills in the id of action, and with timeout when it expires.
// waits fails in that transaction if the task does not wait any more. A request about the same
// dispatch that is for other content, or other people, is ended.
func (a *Approvals) AskTask(ctx context.Context, action api.TaskAction, timeout time.Duration, waits func(*store.Tx) error) (api.Approval, error) {
	same, err := taskSameness(&action)
	if err != nil {
		return api.Approval{}, err
	}
	found, err := a.OfTask(ctx, action.Run, action.Task, action.Starts())
	outdated := err == nil && !same.is(found.Action.Step)
	if err == nil && !outdated || err != nil && api.CodeOf(err) != api.CodeNotFound {
		return found, err
	}
	now := a.cfg.Now().UTC()
	action.ID, action.Expires = newID(), now.Add(timeout).Truncate(time.Second)
	doc, err := canon.Marshal(action)
	switch {
	case err != nil:
		return api.Approval{}, err
	case len(doc) > api.MaxTaskAction:
		return api.Approval{}, api.Errorf(api.CodeTooLarge, "what it shows takes %d bytes, the limit is %d: show fewer tasks, or tasks with fewer outputs", len(doc), api.MaxTaskAction)
	}
	r := row{action: action.Action(), digest: api.DigestOf(doc), state: api.ApprovalOpen, requested: now}
	_, err = a.cfg.Ledger.Record(ctx, entry(record.KindApprovalRequest, r), func(tx *store.Tx) error {
		if outdated {
			if err := end(tx, found.Action.ID); err != nil {
				return err
			}
		}
		var n int
		if err := tx.Get("SELECT count(*) FROM approval WHERE run = ? AND task = ? AND dispatch = ? AND (dispatch = '' OR state IN ('open', 'approved'))",
			store.Args{string(action.Run), string(action.Task), string(action.Starts())}, &n); err != nil {
			return err
		}
		if n > 0 {
			return errAsked
		}
		return errors.Join(waits(tx), r.insert(tx, r.digest, doc))
	})
	if errors.Is(err, errAsked) {
		return a.OfTask(ctx, action.Run, action.Task, action.Starts())
	}
	if err != nil {
		return api.Approval{}, err
	}
	if outdated {
		a.announce(found.Action)
	}
	return a.asked(r), nil
}

// end ends a request that is not used.
func end(tx *store.Tx, id api.ApprovalID) error {
	_, err := tx.Exec("UPDATE approval SET state = 'ended' WHERE id = ? AND state IN ('open', 'approved')", string(id))
	return err
}

// taskSame identifies what is asked about a task: two requests with the same differ only
// in their ids, times and what the plan says anyway.
type taskSame api.Digest

func taskSameness(a *api.TaskAction) (taskSame, error) {
	b, err := canon.Marshal(api.TaskAction{Run: a.Run, Task: a.Task, Principal: a.Principal, By: a.By, Needs: a.Needs, Write: a.Write})
	return taskSame(api.DigestOf(b)), err
}

func (s taskSame) is(a *api.TaskAction) bool {
	if a == nil {
		return false
	}
	of, err := taskSameness(a)
	return err == nil && of == s
}

// OfTask returns the newest request about a task of a run: about the task that is an
// approval, or about a dispatch that is to write. One that it returns as expired is so in
// the log: the task fails after that.
func (a *Approvals) OfTask(ctx context.Context, run api.RunID, task api.TaskID, dispatch api.DispatchID) (api.Approval, error) {
	found, err := a.ofTask(ctx, run, task, dispatch)
	if err != nil || found.State != api.ApprovalExpired {
		return found, err
	}
	if _, err := a.expireDue(ctx); err != nil {
		return api.Approval{}, err
	}
	return a.ofTask(ctx, run, task, dispatch)
}

func (a *Approvals) ofTask(ctx context.Context, run api.RunID, task api.TaskID, dispatch api.DispatchID) (api.Approval, error) {
	list, err := a.list(ctx, "run = ? AND task = ? AND dispatch = ? ORDER BY requested DESC, state IN ('open', 'approved') DESC LIMIT 1", store.Args{string(run), string(task), string(dispatch)})
	if err == nil && len(list) == 0 {
		err = api.Errorf(api.CodeNotFound, "task %s of run %s requests no approval", task, run)
	}
	if err != nil {
		return api.Approval{}, err
	}
	return list[0], nil
}

// UseTask marks as used, in the transaction that admits its dispatch, the request about a
// task that people approved for exactly what action says that it writes, and by whom. It
// reports false without one.
func (a *Approvals) UseTask(tx *store.Tx, action api.TaskAction) (bool, error) {
	same, err := taskSameness(&action)
	if err != nil || action.Write == nil {
		return false, err
	}
	found := false
	if err := each(tx, "run = ? AND task = ? AND dispatch = ? AND state = 'approved'", store.Args{string(action.Run), string(action.Task), string(action.Starts())}, func(r row) error {
		if !found && same.is(r.action.Step) {
			found, action.ID = true, r.action.ID
		}
		return nil
	}); err != nil || !found {
		return false, err
	}
	n, err := tx.Exec("UPDATE approval SET state = 'used' WHERE id = ? AND state = 'approved'", string(action.ID))
	return err == nil && n == 1, err
}

// EndTask ends the request about a task, in the transaction of the task's end. A task
// that is done uses it: that fails unless people approved it.
func (a *Approvals) EndTask(tx *store.Tx, run api.RunID, task api.TaskID, done bool) error {
	if !done {
		_, err := tx.Exec("UPDATE approval SET state = 'ended' WHERE run != '' AND run = ? AND task = ? AND state IN ('open', 'approved')", string(run), string(task))
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
