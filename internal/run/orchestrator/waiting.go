package orchestrator

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Waiting returns what waits for a person in the runs that p may see: tasks with
// a question, and the runs that need attention (api.Run.NeedsAttention), at most
// maxList, that neither their owner nor p has looked at.
func (a *Archive) Waiting(ctx context.Context, p api.Principal) ([]api.Waiting, error) {
	owner, err := a.mayRead(ctx, p)
	if err != nil {
		return nil, err
	}
	list, err := ofOpenRuns(ctx, a, func(r *run) []api.Waiting {
		if r.asking == 0 || owner != "" && r.principal != owner {
			return nil
		}
		return questions(r)
	})
	if err != nil {
		return nil, err
	}
	var failed []listed
	err = a.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		failed, err = settledRows(v, `(state = 'failed' OR state = 'cancelled' AND cancel_by = 'service') AND (? = '' OR principal = ?)
AND NOT EXISTS (SELECT 1 FROM run_seen WHERE run = seq AND run_seen.principal IN (run.principal, ?)) ORDER BY seq LIMIT ?`, store.Args{owner, owner, p, maxList})
		return err
	})
	for i := range failed {
		r := &failed[i].run
		list = append(list, api.Waiting{Kind: api.WaitingFailed, Since: *r.SettledAt, Principal: r.Principal, RunID: r.RunID, Counts: r.Counts})
	}
	return list, err
}

// questions returns the open questions of an unsettled run.
func questions(r *run) (list []api.Waiting) {
	for i := range r.tasks {
		if t := &r.tasks[i]; t.answerable() {
			p := &r.plan.Tasks[i]
			list = append(list, api.Waiting{
				Kind: api.WaitingQuestion, Since: t.started, Until: pointer(r.doc.DeadlineAt), Principal: r.principal,
				RunID: r.id, Task: p.ID, DispatchID: t.dispatch, Attempt: int(t.questionOf), Subagent: p.Subagent, Text: t.message,
			})
		}
	}
	return list
}

// See records that the caller has looked at a run that is settled. It is no
// effect on the run, so the log has no entry of it.
func (a *Archive) See(ctx context.Context, caller dispatch.Caller, id api.RunID) error {
	if _, err := a.decide(ctx, caller, policy.ActionRunRead, id); err != nil {
		return err
	}
	return a.cfg.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO run_seen SELECT seq, ?, ? FROM run WHERE id = ? AND settled IS NOT NULL ON CONFLICT DO NOTHING",
			caller.Principal, nanos(a.cfg.Now()), id)
		return err
	})
}
