package approval

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxList bounds a list of requests that are not open.
const maxList = 1000

// Get returns one request.
func (a *Approvals) Get(ctx context.Context, id api.ApprovalID) (api.Approval, error) {
	list, err := a.list(ctx, "id = ?", store.Args{string(id)})
	if err == nil && len(list) == 0 {
		err = notFound(id)
	}
	if err != nil {
		return api.Approval{}, err
	}
	return list[0], nil
}

// List returns the open requests, oldest first; with all, also the newest that are
// settled.
func (a *Approvals) List(ctx context.Context, all bool) ([]api.Approval, error) {
	where := "state = 'open' ORDER BY requested, id"
	if all {
		where = fmt.Sprintf("state = 'open' OR id IN (SELECT id FROM approval ORDER BY requested DESC LIMIT %d) ORDER BY requested, id", maxList)
	}
	return a.list(ctx, where, nil)
}

// Waiting returns the requests of a dispatch that wait for people.
func (a *Approvals) Waiting(ctx context.Context, id api.DispatchID) (waiting []api.Approval, err error) {
	list, err := a.list(ctx, "dispatch = ? AND state = 'open' ORDER BY requested, id", store.Args{string(id)})
	for i := range list {
		if list[i].State == api.ApprovalOpen {
			waiting = append(waiting, list[i])
		}
	}
	return waiting, err
}

// OfRun returns the open requests about the tasks of a run and the calls of their
// dispatches, oldest first; about tasks at most api.MaxOpenApprovals.
func (a *Approvals) OfRun(ctx context.Context, run api.RunID) (open []api.Approval, err error) {
	list, err := a.list(ctx, "state = 'open' AND (run = '' OR id IN (SELECT id FROM approval WHERE run = ? AND state = 'open' ORDER BY requested, id LIMIT ?)) ORDER BY requested, id",
		store.Args{string(run), api.MaxOpenApprovals})
	for i := range list {
		if list[i].Action.Run == run && list[i].State == api.ApprovalOpen {
			open = append(open, list[i])
		}
	}
	return open, err
}

// Electorate returns whose approval an open request waits for, as reader may know it:
// whom grants list is not for programs.
func (a *Approvals) Electorate(reader api.Principal, asked *api.Approval) api.Electorate {
	e := api.Electorate{Needs: max(1, asked.Action.Needs), Approved: policy.Approvers(asked.Votes)}
	if asked.Action.Step != nil || reader.Person() {
		e.By = a.rules.Load().Electorate(&asked.Action)
	}
	return e
}

// Open returns how many requests are neither used nor settled, or 0 if that cannot be
// read.
func (a *Approvals) Open(ctx context.Context) (n int) {
	if err := a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT count(*) FROM approval WHERE state = 'open'", nil, &n)
	}); err != nil {
		return 0
	}
	return n
}

// Action returns the canonical action of a request: what votes sign.
func (a *Approvals) Action(ctx context.Context, id api.ApprovalID) (doc []byte, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT action FROM approval WHERE id = ?", store.Args{string(id)}, &doc)
	})
	if errors.Is(err, store.ErrNoRow) {
		err = notFound(id)
	}
	return doc, err
}

func (a *Approvals) list(ctx context.Context, where string, args store.Args) ([]api.Approval, error) {
	rules, err := a.cfg.InForce.Engine(ctx)
	if err != nil {
		return nil, err
	}
	a.rules.Store(rules)
	list := []api.Approval{}
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return each(v, where, args, func(r row) error {
			votes := a.cfg.Votes.Votes(r.action.ID, r.digest)
			switch {
			case r.state != api.ApprovalOpen:
			case a.timeLeft(&r.action) <= 0: // its entry follows
				r.state = api.ApprovalExpired
			case r.action.Call != nil && rules.Approved(&r.action, votes):
				r.state = api.ApprovalApproved
			}
			list = append(list, r.approval(votes))
			return nil
		})
	})
	return list, err
}
