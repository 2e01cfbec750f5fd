package orchestrator

import (
	"cmp"
	"context"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// Retry submits the plan of a settled run again under another id, with the changes
// of the request. It takes over the tasks that are done and that no change reaches
// (see plan.RetryOf); the others run, from the same commits unless the request
// names another one.
func (o *Orchestrator) Retry(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunRetry) (api.Run, error) {
	if _, err := o.decide(ctx, caller, policy.ActionRunRead, id); err != nil {
		return api.Run{}, err
	}
	old, err := o.stored(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	r, run, err := o.admission.retried(ctx, caller, old, req)
	if err != nil {
		return api.Run{}, o.admission.invalid(ctx, caller, err)
	}
	if r == nil {
		return run, nil
	}
	return o.admission.admit(ctx, caller, r)
}

// retried returns the run that a request makes, or the one that an earlier request
// has made. Its error is one about the request.
func (a *admission) retried(ctx context.Context, caller dispatch.Caller, old *run, req api.RunRetry) (*run, api.Run, error) {
	if err := checkKey(req.Key); err != nil {
		return nil, api.Run{}, err
	}
	if old.principal != caller.Principal {
		return nil, api.Run{}, api.Errorf(api.CodeDenied, "run %s belongs to %s: only its owner may retry it", old.id, old.principal)
	}
	if old.settled.IsZero() {
		return nil, api.Run{}, api.Errorf(api.CodeConflict, "run %s is %s: only a run that has ended can be retried", old.id, old.now()).
			WithHint("wait for it: bailiwick run wait %s; or end it: bailiwick run cancel %[1]s", old.id)
	}
	next := cmp.Or(req.RunID, api.NewRunID(a.cfg.Now()))
	sources, err := a.pinned(ctx, caller, old, req.Sources)
	if err != nil {
		return nil, api.Run{}, err
	}
	p, err := old.plan.Edited(next, sources, req.Inputs)
	if err != nil {
		return nil, api.Run{}, err
	}
	asked, err := askedBy(req)
	if err != nil {
		return nil, api.Run{}, err
	}
	if run, ok, err := a.repeated(ctx, caller, p, runDoc{Key: req.Key, Asked: asked}); ok || err != nil {
		return nil, run, err
	}
	earlier, err := old.readGrowths()
	if err != nil {
		return nil, api.Run{}, err
	}
	change, err := p.RetryOf(old.plan, earlier, func(i int) plan.End { return old.end(int32(i)) }, req.From) //nolint:gosec // G115: bounded by api.MaxRunTasks
	if err != nil {
		return nil, api.Run{}, err
	}
	r := newRun(next, p, runDoc{
		Rules: plan.Rules, Ceiling: caller.Ceiling, Asked: asked, RetryOf: old.id, Commits: old.doc.Commits, Key: req.Key, From: req.From, Changed: change.Changed, NoReuse: old.doc.NoReuse,
		Grown: len(change.Growths),
	})
	if err := r.begin(change.Growths); err != nil {
		return nil, api.Run{}, err
	}
	for i, taken := range change.Taken {
		if taken {
			was, _ := old.plan.Index(p.Tasks[i].ID) // RetryOf found it
			t := old.tasks[was]
			t.takenOver, t.deps = true, r.tasks[i].deps
			r.set(int32(i), api.TaskDone) //nolint:gosec // G115: bounded by api.MaxPlanTasks
			r.tasks[i] = t
		}
	}
	r.countChildren()
	for _, g := range change.Growths { // the others of a for_each run again
		if i, ok := p.Index(g.Task); ok && r.tasks[i].state == api.TaskPending {
			r.set(int32(i), api.TaskGrowing) //nolint:gosec // G115: bounded by api.MaxRunTasks
		}
	}
	if r.left == 0 {
		return nil, api.Run{}, api.Errorf(api.CodeConflict, "every task of run %s is done", old.id).
			WithHint("run a task and those that depend on it again: --from TASK; or change something: --source NAME@COMMIT, --set TASK.KEY=VALUE")
	}
	return r, api.Run{}, nil
}

// askedBy returns the digest of a request, apart from what identifies it.
func askedBy(req api.RunRetry) (api.Digest, error) {
	req.RunID, req.Key = "", ""
	doc, err := canon.Marshal(req)
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "retry: %v", err)
	}
	return api.DigestOf(doc), nil
}

// pinned replaces the commits of sources by what they refer to now, where the
// caller may dispatch a task of the run that starts from them.
func (a *admission) pinned(ctx context.Context, caller dispatch.Caller, old *run, sources []api.SourceRequest) ([]api.SourceRequest, error) {
	var reqs []api.DispatchRequest
	for n := range sources {
		if slices.ContainsFunc(sources[:n], func(s api.SourceRequest) bool { return s.Name == sources[n].Name }) {
			return nil, api.Errorf(api.CodeInvalid, "source %q is named twice", sources[n].Name)
		}
		for i := range old.plan.Tasks {
			if t := &old.plan.Tasks[i]; t.Source != nil && t.Source.Name == sources[n].Name {
				req := requestOf(t)
				req.Source = &sources[n]
				reqs = append(reqs, req)
				break
			}
		}
	}
	if len(reqs) < len(sources) {
		return sources, nil // Edited names the source that no task has
	}
	v, err := a.cfg.Dispatch.Validate(ctx, caller, reqs)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(sources)
	for n := range out {
		out[n].Commit = v.Commits[n]
		for _, p := range v.Problems {
			if p.Index == n && p.Member == "source" {
				return nil, api.Errorf(api.CodeInvalid, "%s", p.Message)
			}
		}
		if out[n].Commit == "" {
			out[n].Commit = sources[n].Commit // not validated for another reason, which admit reports
		}
	}
	return out, nil
}
