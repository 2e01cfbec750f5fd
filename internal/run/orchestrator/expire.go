package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

var _ retention.Runs = (*Archive)(nil)

// Expired implements retention.Runs.
func (a *Archive) Expired(ctx context.Context, before time.Time) (list []retention.Run, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		const size = "length(doc) + length(plan) + (SELECT coalesce(sum(80 + length(dispatch) + length(message)), 0) FROM run_task WHERE run_task.run = run.seq)"
		if err := v.Each("SELECT id, "+size+" FROM run WHERE settled < ? ORDER BY seq", store.Args{before.UnixNano()}, func(scan store.Scan) error {
			var r retention.Run
			err := scan(&r.ID, &r.Bytes)
			list = append(list, r)
			return err
		}); err != nil {
			return err
		}
		for i := range list {
			if list[i].Kept, err = kept(v, list[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// kept reports whether a dispatch of a run is pinned, or a stored run retries it.
func kept(v store.Reader, id api.RunID) (yes bool, err error) {
	if err := v.Get("SELECT EXISTS (SELECT 1 FROM run WHERE doc ->> '$.retryOf' = ?)", store.Args{id}, &yes); err != nil || yes {
		return yes, err
	}
	var all []api.DispatchID
	if err := v.Each("SELECT dispatch FROM run_task WHERE run = (SELECT seq FROM run WHERE id = ?) AND dispatch != ''", store.Args{id}, func(scan store.Scan) error {
		var d api.DispatchID
		err := scan(&d)
		all = append(all, d)
		return err
	}); err != nil {
		return false, err
	}
	for _, d := range all {
		if yes, err = dispatch.Pinned(v, d); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

// Remove implements retention.Runs. The log keeps the entries of the run.
func (a *Archive) Remove(tx *store.Tx, id api.RunID) error {
	if yes, err := kept(tx, id); err != nil || yes {
		return errors.Join(err, fmt.Errorf("run %s: %w", id, retention.ErrNotRemovable))
	}
	if _, err := tx.Exec("DELETE FROM run_task WHERE run = (SELECT seq FROM run WHERE id = ? AND settled IS NOT NULL)", id); err != nil {
		return err
	}
	if err := budget.ForgetRun(tx, id); err != nil {
		return err
	}
	if a.cfg.Approvals != nil {
		if err := a.cfg.Approvals.ForgetRun(tx, id); err != nil {
			return err
		}
	}
	n, err := tx.Exec("DELETE FROM run WHERE id = ? AND settled IS NOT NULL", id)
	if err == nil && n != 1 {
		err = fmt.Errorf("run %s: %w", id, retention.ErrNotRemovable)
	}
	a.settledRuns.forget(id)
	return err
}

// expired returns who submitted a run that is in the log and no longer in the
// state, and what its reader is told; nil for any other id.
func (a *Archive) expired(ctx context.Context, id api.RunID) (owner api.Principal, told *api.Error, err error) {
	list, err := a.cfg.Ledger.List(ctx, audit.Query{Run: id, Kind: record.KindRunSubmitted, Limit: 1})
	if err != nil || len(list) == 0 {
		return "", nil, err
	}
	submitted := list[0].Entry
	removed, err := a.cfg.Ledger.RemovedRun(ctx, id, list[0].Seq)
	if err != nil {
		return "", nil, err
	}
	see := "see what the log keeps of it: bailiwick audit list --run " + string(id)
	if removed == nil {
		return submitted.Principal, api.Errorf(api.CodeIntegrity, "run %q is in the log and not in the state, and no retention rule removed it", id).WithHint("%s", see), nil
	}
	return submitted.Principal, api.Errorf(api.CodeNotFound, "run %q of %s has expired: its rows and its plan were removed at %s by rule %s",
		id, submitted.At.UTC().Format(time.RFC3339), removed.At.UTC().Format(time.RFC3339), removed.Detail.(record.Removal).Rule).WithHint("%s", see), nil //nolint:forcetypeassert // RemovedRun looked
}

// refuseExpired refuses the id of a run that has expired: the log must not tell two
// runs by one name.
func (a *Archive) refuseExpired(ctx context.Context, id api.RunID) error {
	_, told, err := a.expired(ctx, id)
	if err == nil && told != nil {
		err = api.Errorf(api.CodeConflict, "run id %s belongs to an earlier run, which has expired", id).WithHint("submit this plan under an id of its own: --id NEW or --new")
	}
	return err
}
