package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	defaultList = 50
	maxList     = 1000 // runs in an answer
)

// listed is a run of a list. Lists are in the order of submission.
type listed struct {
	seq int64
	run api.Run
}

// List returns the newest runs that p may see and f selects, newest first and
// without their tasks.
func (a *Archive) List(ctx context.Context, p api.Principal, f api.RunFilter) ([]api.Run, error) {
	owner, err := a.mayRead(ctx, p)
	if err != nil {
		return nil, err
	}
	if f.Limit = min(f.Limit, maxList); f.Limit <= 0 {
		f.Limit = defaultList
	}
	if owner != "" && f.Principal != "" && f.Principal != owner {
		return []api.Run{}, nil
	}
	f.Principal = cmp.Or(f.Principal, owner)
	before, err := a.placeOf(ctx, f.After, owner)
	if err != nil {
		return nil, err
	}
	// The engine first: a run that settles between the two is in both.
	open, err := ofOpenRuns(ctx, a, func(r *run) []listed {
		if before != 0 && r.seq >= before || !selected(r, &f) {
			return nil
		}
		h := head(r)
		a.drive(&h)
		return []listed{{r.seq, h}}
	})
	if err != nil {
		return nil, err
	}
	settled, err := a.settledList(ctx, &f, before)
	if err != nil {
		return nil, err
	}
	return merge(open, settled, &f), nil
}

// ofOpenRuns returns what of makes of each open run, as the engine knows it, or as
// it is stored where nothing drives it.
func ofOpenRuns[T any](ctx context.Context, a *Archive, of func(*run) []T) (list []T, err error) {
	if a.driver != nil {
		return query(ctx, a.driver, func(e *engine) (list []T) {
			for _, r := range e.runs {
				list = append(list, of(r)...)
			}
			return list
		})
	}
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		runs, err := openRuns(v)
		for _, r := range runs {
			list = append(list, of(r)...)
		}
		return err
	})
	return list, err
}

// merge returns the newest runs of both lists, a settled one once.
func merge(open, settled []listed, f *api.RunFilter) []api.Run {
	all := slices.Concat(settled, open)
	slices.SortStableFunc(all, func(a, b listed) int { return cmp.Compare(b.seq, a.seq) })
	all = slices.CompactFunc(all, func(a, b listed) bool { return a.seq == b.seq })
	list := []api.Run{}
	for i := range all {
		if i < f.Limit || f.Open && i < maxList && !all[i].run.State.Settled() {
			list = append(list, all[i].run)
		}
	}
	return list
}

// mayRead returns the principal whose runs p may see; empty: those of everyone.
func (a *Archive) mayRead(ctx context.Context, p api.Principal) (api.Principal, error) {
	rules, err := a.cfg.Rules.Engine(ctx)
	if err != nil || rules.Decide(policy.Request{Principal: p, Action: policy.ActionRunRead, Resource: "all"}).Allowed() {
		return "", err
	}
	return p, nil
}

// placeOf returns the row of the run after which a page begins; 0: the newest.
func (a *Archive) placeOf(ctx context.Context, id api.RunID, owner api.Principal) (seq int64, err error) {
	if id == "" {
		return 0, nil
	}
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT seq FROM run WHERE id = ? AND (? = '' OR principal = ?)", store.Args{id, owner, owner}, &seq)
	})
	if errors.Is(err, store.ErrNoRow) {
		err = api.Errorf(api.CodeNotFound, "run %q not found", id).WithHint("a page begins after the last run of the previous one; see: bailiwick run list")
	}
	return seq, err
}

// selected reports whether a filter selects an unsettled run.
func selected(r *run, f *api.RunFilter) bool {
	switch {
	case f.Principal != "" && r.principal != f.Principal, f.Queue != "" && r.doc.Queue != f.Queue, r.submitted.Before(f.Since):
		return false
	case len(f.States) > 0 && !slices.Contains(f.States, r.now()):
		return false
	case slices.ContainsFunc(f.Labels, func(l api.Label) bool { value, ok := r.doc.Labels[l.Key]; return !ok || value != l.Value }):
		return false
	case f.Subagent == "":
		return true
	}
	return slices.ContainsFunc(r.plan.Tasks, func(t api.PlanTask) bool { return t.Subagent == f.Subagent })
}

// settledList returns the settled runs that a filter selects, before a row.
func (a *Archive) settledList(ctx context.Context, f *api.RunFilter, before int64) (list []listed, err error) {
	where, args := []string{"settled IS NOT NULL"}, store.Args{}
	and := func(set bool, condition string, values ...any) {
		if set {
			where, args = append(where, condition), append(args, values...)
		}
	}
	and(before != 0, "seq < ?", before)
	and(f.Principal != "", "principal = ?", f.Principal)
	and(!f.Since.IsZero(), "submitted >= ?", nanos(f.Since))
	states := make([]any, len(f.States))
	for i, s := range f.States {
		states[i] = s
	}
	and(len(states) > 0, "state IN (?"+strings.Repeat(", ?", max(0, len(states)-1))+")", states...)
	const has = "EXISTS (SELECT 1 FROM run_term WHERE term = ? AND run = seq)"
	and(f.Queue != "", has, "queue "+string(f.Queue))
	for _, l := range f.Labels {
		and(true, has, "label "+l.String())
	}
	and(f.Subagent != "", has, "subagent "+string(f.Subagent))
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		list, err = settledRows(v, strings.Join(where, " AND ")+" ORDER BY seq DESC LIMIT ?", append(args, f.Limit))
		return err
	})
	return list, err
}

// settledRows reads the heads of settled runs.
func settledRows(v store.Reader, where string, args store.Args) (list []listed, err error) {
	err = v.Each("SELECT seq, id, principal, submitted, settled, state, counts, cancel_by, cancel_why, doc FROM run WHERE "+where, args, func(scan store.Scan) error {
		h := &run{}
		var submitted, settled int64
		var counts, doc string
		if err := scan(&h.seq, &h.id, &h.principal, &submitted, &settled, &h.state, &counts, &h.cancelBy, &h.cancelWhy, &doc); err != nil {
			return err
		}
		h.submitted, h.settled = instant(submitted), instant(settled)
		if err := errors.Join(json.Unmarshal([]byte(counts), &h.counts), json.Unmarshal([]byte(doc), &h.doc)); err != nil {
			return err
		}
		v := head(h)
		for _, n := range h.counts {
			v.Total += n
		}
		list = append(list, listed{h.seq, v})
		return nil
	})
	return list, err
}
