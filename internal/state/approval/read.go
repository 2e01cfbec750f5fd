package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxList bounds a list of requests that are not open.
const maxList = 1000

// Reader reads the requests, as they stand now, and says who may read or decide them. It
// changes nothing. It is safe for concurrent use.
type Reader struct {
	store     *store.Store
	votes     Votes
	inForce   policy.InForce
	rules     atomic.Pointer[policy.Engine] // as of the last read
	deadlines deadlines
}

// Get returns one request.
func (q *Reader) Get(ctx context.Context, id api.ApprovalID) (api.Approval, error) {
	list, err := q.list(ctx, "id = ?", store.Args{string(id)})
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
func (q *Reader) List(ctx context.Context, all bool) ([]api.Approval, error) {
	where := "state = 'open' ORDER BY requested, id"
	if all {
		where = fmt.Sprintf("state = 'open' OR id IN (SELECT id FROM approval ORDER BY requested DESC LIMIT %d) ORDER BY requested, id", maxList)
	}
	return q.list(ctx, where, nil)
}

// Waiting returns the requests of a dispatch that wait for people.
func (q *Reader) Waiting(ctx context.Context, id api.DispatchID) (waiting []api.Approval, err error) {
	list, err := q.list(ctx, "dispatch = ? AND state = 'open' ORDER BY requested, id", store.Args{string(id)})
	for i := range list {
		if list[i].State == api.ApprovalOpen {
			waiting = append(waiting, list[i])
		}
	}
	return waiting, err
}

// OfRun returns the open requests about the tasks of a run and the calls of their
// dispatches, oldest first; about tasks at most api.MaxOpenApprovals.
func (q *Reader) OfRun(ctx context.Context, run api.RunID) (open []api.Approval, err error) {
	list, err := q.list(ctx, "state = 'open' AND (run = '' OR id IN (SELECT id FROM approval WHERE run = ? AND state = 'open' ORDER BY requested, id LIMIT ?)) ORDER BY requested, id",
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
func (q *Reader) Electorate(reader api.Principal, asked *api.Approval) api.Electorate {
	e := api.Electorate{Needs: max(1, asked.Action.Needs), Approved: policy.Approvers(asked.Votes)}
	if asked.Action.Step != nil || reader.Person() {
		e.By = q.rules.Load().Electorate(&asked.Action)
	}
	return e
}

// Open returns how many requests are neither used nor settled, or 0 if that cannot be
// read.
func (q *Reader) Open(ctx context.Context) (n int) {
	if err := q.store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT count(*) FROM approval WHERE state = 'open'", nil, &n)
	}); err != nil {
		return 0
	}
	return n
}

// Action returns the canonical action of a request: what votes sign.
func (q *Reader) Action(ctx context.Context, id api.ApprovalID) (doc []byte, err error) {
	err = q.store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT action FROM approval WHERE id = ?", store.Args{string(id)}, &doc)
	})
	if errors.Is(err, store.ErrNoRow) {
		err = notFound(id)
	}
	return doc, err
}

func (q *Reader) list(ctx context.Context, where string, args store.Args) ([]api.Approval, error) {
	rules, err := q.inForce.Engine(ctx)
	if err != nil {
		return nil, err
	}
	q.rules.Store(rules)
	list := []api.Approval{}
	err = q.store.Read(ctx, func(v *store.View) error {
		return each(v, where, args, func(r row) error {
			votes := q.votes.Votes(r.action.ID, r.digest)
			switch {
			case r.state != api.ApprovalOpen:
			case q.deadlines.left(&r.action) <= 0: // its entry follows
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

// Shows reports whether an open request of a run lists p, and shows it a dispatch.
func (q *Reader) Shows(ctx context.Context, p api.Principal, run api.RunID, id api.DispatchID) (found bool, err error) {
	err = q.store.Read(ctx, func(v *store.View) error {
		return each(v, "run = ? AND state = 'open'", store.Args{string(run)}, func(r row) error {
			if s := r.action.Step; s != nil && slices.Contains(s.By, p) && p.Person() {
				found = found || slices.ContainsFunc(s.Shown, func(t api.ShownTask) bool { return t.Dispatch == id })
			}
			return nil
		})
	})
	return found, err
}

// MayRead returns which requests a caller may see: its own work, those whose role a grant
// lets it approve or whose task lists it, and all for those who may read all runs, such as
// the operator.
func (q *Reader) MayRead(ctx context.Context, p api.Principal) (func(asked *api.Approval) bool, error) {
	rules, err := q.inForce.Engine(ctx)
	if err != nil {
		return nil, err
	}
	all := rules.Decide(policy.Request{Principal: p, Action: policy.ActionRunRead, Resource: "all"}).Allowed()
	return func(asked *api.Approval) bool {
		switch x := &asked.Action; {
		case all || p == x.Principal:
			return true
		case x.Step != nil:
			return slices.Contains(x.Step.By, p)
		default:
			return rules.Approves(p, x.Call.Role)
		}
	}, nil
}

// MayVote returns why a caller may not vote about a request; empty: it may.
func (q *Reader) MayVote(p api.Principal, asked *api.Approval) string {
	if d := q.rules.Load().DecideVote(policy.VoteRequest{Voter: p, Action: asked.Action}); !d.Allowed() {
		return d.Reasons()[0]
	}
	if asked.State != api.ApprovalOpen {
		return "it is " + string(asked.State)
	}
	for _, v := range asked.Votes {
		if v.Principal.SamePerson(p) {
			return "you voted already, as " + string(v.Principal)
		}
	}
	if err := q.votes.CanVote(p); err != nil {
		return strings.Replace(err.Error(), "\n  hint: ", "; ", 1)
	}
	return ""
}
