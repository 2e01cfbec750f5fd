package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Append adds tasks to an open run of the caller, all or none: the growth, its entry and
// what follows from it are durable in one commit. They are checked as a plan is, and
// every dispatch that they can lead to is decided as if it were submitted now, with the
// names of the revision of the run. steers is true for an operator call; any other needs
// a grant (see policy.AppendRequest). A request that is repeated with its key adds nothing;
// another one with that key is a conflict.
func (o *Orchestrator) Append(ctx context.Context, caller dispatch.Caller, steers bool, id api.RunID, req api.RunAppend) (api.Run, error) {
	if err := o.driver.halted(); err != nil {
		return api.Run{}, err
	}
	if _, err := o.decide(ctx, caller, policy.ActionRunRead, id); err != nil {
		return api.Run{}, err
	}
	v, err := o.append(ctx, caller, steers, id, req)
	if err != nil {
		switch api.CodeOf(err) { //nolint:exhaustive // the others are logged, or are not about the request
		case api.CodeInvalid, api.CodeConflict, api.CodeTooLarge, api.CodeNotFound:
			if !req.DryRun {
				err = dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, string(policy.ActionRunAppend), err)
			}
		}
		return api.Run{}, err
	}
	if req.DryRun {
		return v, nil
	}
	return o.show(ctx, id, 0, defaultPage)
}

// append returns the run that a dry run would give.
func (o *Orchestrator) append(ctx context.Context, caller dispatch.Caller, steers bool, id api.RunID, req api.RunAppend) (api.Run, error) {
	if err := checkKey(req.Key); err != nil {
		return api.Run{}, err
	}
	if _, err := o.driver.lookUp(ctx, id, ""); err != nil && !errors.Is(err, errSettled) { // a submission under way reaches the engine first
		return api.Run{}, err
	}
	r, err := o.stored(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	decision, err := o.mayAppend(ctx, caller, steers, r)
	if err != nil {
		return api.Run{}, err
	}
	by := request{key: req.Key}
	if doc, err := canon.Canonicalize(req.Tasks); err == nil { // ParseAppend says what is wrong with other text
		by.asked = api.DigestOf(doc)
	}
	if done, err := r.repeats(by, req.Tasks); done || err != nil {
		return view(r, 0, defaultPage), err
	}
	if err := r.open(); err != nil {
		return api.Run{}, err
	}
	g, err := o.vetAppend(ctx, caller, r, req)
	if err != nil {
		return api.Run{}, err
	}
	if req.DryRun {
		if _, err := r.grow(g, by); err != nil {
			return api.Run{}, err
		}
		v := view(r, 0, defaultPage)
		v.DryRun = true
		return v, nil
	}
	return api.Run{}, o.commitAppend(ctx, caller, decision, r, g, by, req.Tasks)
}

// mayAppend decides whether the caller may append to a run that it may see.
func (o *Orchestrator) mayAppend(ctx context.Context, caller dispatch.Caller, steers bool, r *run) (policy.Decision, error) {
	rules, err := o.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	d := rules.Decide(policy.AppendRequest(caller.Principal, r.principal, r.id, caller.TokenValid != nil, steers))
	if d.Allowed() && caller.Ceiling >= r.doc.Ceiling {
		return d, nil
	}
	refused := api.Errorf(api.CodeDenied, "%s may not append to run %s", caller.Principal, r.id)
	switch {
	case caller.Principal != r.principal:
		refused = api.Errorf(api.CodeDenied, "run %s belongs to %s: only its owner may append to it", r.id, r.principal).WithHint("do not retry; submit a plan of your own")
	case d.Allowed(): // the tasks would have a higher ceiling than this session
		return d, dispatch.LogInvalid(ctx, o.cfg.Ledger, caller.Principal, d.Action(), api.Errorf(api.CodeDenied, "this session declared the ceiling %s, but run %s was submitted with %s: its tasks would exceed what the session may do", caller.Ceiling, r.id, r.doc.Ceiling).
			WithHint("do not retry; submit a plan of its own"))
	default:
		refused = api.Errorf(api.CodeDenied, "no grant lets %s append tasks to its runs", caller.Principal).
			WithHint("do not retry; a human can add append: true to a grant of %s, or run: bailiwick run append", caller.Principal)
	}
	return d, o.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", d.Action()+" "+string(r.id)), func(e *api.Error) *api.Error {
		refused.AuditEntry = e.AuditEntry
		return refused
	})
}

// repeats reports whether a request with a key was carried out. Its error is that another
// request used the key. tasks are those of the request.
func (r *run) repeats(by request, tasks json.RawMessage) (bool, error) {
	i := slices.IndexFunc(r.growths, func(g growth) bool { return by.key != "" && g.key == by.key })
	if i < 0 {
		return false, nil
	}
	was := r.growths[i]
	if was.asked == by.asked || was.asked == "" { // older rows have no digest
		return true, nil
	}
	return false, api.Errorf(api.CodeConflict, "key %.80q was used to append other tasks to run %s: %s", by.key, r.id, difference(was, tasks)).
		WithHint("use another key for these tasks; or repeat the first request unchanged, which adds nothing")
}

// difference says how the tasks of a request differ from an earlier request.
func difference(was growth, tasks json.RawMessage) string {
	var now []struct{ ID api.TaskID }
	old, err := plan.ReadGrowth([]byte(was.doc))
	if err = errors.Join(err, json.Unmarshal(tasks, &now)); err != nil {
		return "the content differs"
	}
	var before, after []string
	for i := range old.Tasks {
		before = append(before, string(old.Tasks[i].ID))
	}
	for i := range now {
		after = append(after, string(now[i].ID))
	}
	slices.Sort(before)
	slices.Sort(after)
	if slices.Equal(before, after) {
		return fmt.Sprintf("the tasks %.300s have other content", strings.Join(before, ", "))
	}
	return fmt.Sprintf("it added %.300s, and this request has %.300s", strings.Join(before, ", "), strings.Join(after, ", "))
}

// open refuses a run that takes no more tasks.
func (r *run) open() error {
	switch {
	case !r.settled.IsZero():
		return api.Errorf(api.CodeConflict, "run %s is %s: only a run that has not ended takes more tasks", r.id, r.state).
			WithHint("submit them as a plan: bailiwick run submit FILE")
	case r.cancelBy != "":
		return api.Errorf(api.CodeConflict, "run %s is being cancelled and takes no more tasks", r.id).WithHint("submit them as a plan: bailiwick run submit FILE")
	}
	return nil
}

// vetAppend checks the tasks of a request against a stored run, and pins the commits of
// their sources.
func (o *Orchestrator) vetAppend(ctx context.Context, caller dispatch.Caller, r *run, req api.RunAppend) (plan.Growth, error) {
	g, problems := r.plan.ParseAppend(req.Tasks)
	if len(problems) > 0 {
		return g, plan.Error(problems)
	}
	caller.Retries, caller.Pinned, caller.Ceiling = r.id, r.doc.Revision, r.doc.Ceiling
	v := vettingOf(g.Tasks, func(int) bool { return true })
	if err := v.validate(ctx, o.cfg.Dispatch, caller); err != nil {
		return g, err
	}
	products, err := o.productsFor(ctx, caller, r, g.Tasks)
	if err != nil {
		return g, err
	}
	maps.Copy(products, v.products())
	problems = plan.NameTasks(append(v.problems(), v.missingProducts(products)...), g.Tasks)
	if v.Denied.Valid() {
		return g, o.admission.deny(ctx, req.DryRun, record.Entry{Kind: record.KindRunAppended, Run: string(r.id), Detail: record.RunGrowth{Cause: string(plan.CauseAppend), Tasks: int64(len(g.Tasks))}}, v.Denied, problems)
	}
	if len(problems) > 0 {
		return g, plan.Error(problems)
	}
	for n, at := range v.places {
		if s := g.Tasks[at.task].Source; s != nil && r.doc.Commits[sourceKey(s)] == "" && v.Commits[n] != "" {
			g.Tasks[at.task].Source = &api.SourceRequest{Name: s.Name, Commit: v.Commits[n]}
		}
	}
	return g, nil
}

// productsFor returns what the tasks of the run return that the appended ones depend on.
// Whether they may be dispatched now does not matter.
func (o *Orchestrator) productsFor(ctx context.Context, caller dispatch.Caller, r *run, tasks []api.PlanTask) (map[api.TaskID]gives, error) {
	wanted := map[int]bool{}
	for i := range tasks {
		for _, id := range plan.Dependencies(&tasks[i]) {
			if k, ok := r.plan.Index(id); ok {
				wanted[k] = true
			}
		}
	}
	v := vettingOf(r.plan.Tasks, func(i int) bool { return wanted[i] })
	err := v.validate(ctx, o.cfg.Dispatch, caller)
	return v.products(), err
}

// commitAppend has the engine add a growth, unless the run has changed meanwhile so that
// it does not fit any more.
func (o *Orchestrator) commitAppend(ctx context.Context, caller dispatch.Caller, decision policy.Decision, stored *run, g plan.Growth, by request, tasks json.RawMessage) error {
	if err := o.cfg.Ledger.Admits(record.KindRunAppended); err != nil {
		return err
	}
	if err := caller.CheckToken(); err != nil {
		return err
	}
	doc, err := g.Canonical()
	if err != nil {
		return err
	}
	more := size{len(g.Tasks), len(doc)}
	if err := o.driver.capacity.reserve(stored.principal, more, "these tasks"); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RunSteerCommit, string(stored.id))
	added := false
	err = o.driver.execute(func(e *engine, b *batch) error {
		r := e.byID[stored.id]
		if r == nil {
			return errSettled
		}
		if err := r.open(); err != nil {
			return err
		}
		if done, err := r.repeats(by, tasks); done || err != nil {
			return err
		}
		first, err := r.grow(g, by)
		if err != nil {
			return err
		}
		added = true
		number := len(r.growths) - 1
		b.growths = append(b.growths, taskRef{r, int32(number)}) //nolint:gosec // G115: bounded by api.MaxRunTasks
		b.items = append(b.items, audit.Item{Decision: decision, Entry: record.Entry{
			Kind: record.KindRunAppended, Run: string(r.id), Refs: map[string]api.Digest{record.RefGrowth: r.growths[number].digest},
			Detail: record.RunGrowth{Cause: string(g.Cause), Tasks: int64(len(r.tasks) - first), Total: int64(len(r.tasks))},
		}})
		e.startAdded(b, r, first)
		return nil
	})
	if !added { // else the run counts with its tasks
		o.driver.capacity.release(stored.principal, more)
	}
	if errors.Is(err, errSettled) {
		return api.Errorf(api.CodeConflict, "run %s has ended meanwhile", stored.id).WithHint("submit them as a plan: bailiwick run submit FILE")
	}
	if err == nil {
		failpoint.Hit(failpoint.RunSteerCommitted, string(stored.id))
	}
	return err
}
