package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// errDuplicate says that a run of that id exists.
var errDuplicate = errors.New("the run id is in use")

// Submit validates a plan as a whole, decides about each of its tasks as if it were
// submitted now, and makes the run durable. It returns before a task has started.
// The same plan under the same id again returns the same run (R-O8), as Existing
// unless the request repeats the one that submitted it.
func (o *Orchestrator) Submit(ctx context.Context, caller dispatch.Caller, req api.RunRequest) (api.Run, error) {
	return o.admission.submit(ctx, caller, req, nil)
}

// admission validates plans as a whole, decides about them and makes them durable.
type admission struct {
	cfg     *Config
	archive *Archive
	driver  *driver
}

func (a *admission) submit(ctx context.Context, caller dispatch.Caller, req api.RunRequest, slot *Slot) (api.Run, error) {
	if err := a.driver.halted(); err != nil {
		return api.Run{}, err
	}
	p, err := a.parse(ctx, caller, req)
	if req.DryRun {
		return a.dryRun(ctx, caller, p, err)
	}
	if err != nil {
		return api.Run{}, a.invalid(ctx, caller, err)
	}
	if run, ok, err := a.repeated(ctx, caller, p, runDoc{Key: req.Key, Slot: slot}); ok || err != nil {
		return run, a.invalid(ctx, caller, err)
	}
	r := newRun(p.ID, p, runDoc{Rules: plan.Rules, Ceiling: caller.Ceiling, Key: req.Key, NoReuse: req.NoReuse, Template: plan.Template(req.Plan), Parameters: said(req.Parameters), Slot: slot})
	return a.admit(ctx, caller, r)
}

// dryRun says what Submit would do with a plan, which parse returned with err. It
// logs and stores nothing.
func (a *admission) dryRun(ctx context.Context, caller dispatch.Caller, p *plan.Plan, err error) (api.Run, error) {
	if err != nil {
		return api.Run{}, err
	}
	if run, ok, err := a.repeated(ctx, caller, p, runDoc{}); ok || err != nil {
		return run, err
	}
	r := newRun(p.ID, p, runDoc{Rules: plan.Rules, Ceiling: caller.Ceiling})
	r.dry = true
	decision, err := a.validate(ctx, caller, r)
	if err == nil && !decision.Allowed() {
		err = api.Errorf(api.CodeDenied, "%s may not submit runs", caller.Principal)
	}
	if err != nil {
		return api.Run{}, err
	}
	r.principal, r.submitted = caller.Principal, a.cfg.Now().UTC()
	r.doc.Queue, r.doc.Digest, r.doc.Labels = p.Queue, p.Digest(), p.Labels
	v := view(r, 0, defaultPage)
	v.DryRun, v.State = true, ""
	return v, nil
}

// said lists the values of parameters for the log.
func said(values map[string]json.RawMessage) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+"="+string(values[name]))
	}
	return list
}

// parse reads the plan of a request, and gives it an id.
func (a *admission) parse(ctx context.Context, caller dispatch.Caller, req api.RunRequest) (*plan.Plan, error) {
	if err := checkKey(req.Key); err != nil {
		return nil, err
	}
	if len(req.Plan) > api.MaxPlan {
		return nil, api.Errorf(api.CodeTooLarge, "plan of %d bytes, the limit is %d", len(req.Plan), api.MaxPlan)
	}
	p, problems := plan.ParseWith(req.Plan, req.Parameters)
	if len(problems) > 0 {
		return nil, a.allProblems(ctx, caller, req, problems)
	}
	if q := p.Queue; !a.cfg.configured(q) {
		return nil, plan.Error([]api.Problem{{Path: "$.queue", Message: fmt.Sprintf("no such queue %q; see: bailiwick queue list", q)}})
	}
	return p.WithID(cmp.Or(req.RunID, p.ID, api.NewRunID(a.cfg.Now())))
}

func checkKey(key string) error {
	if len(key) > api.MaxKey {
		return api.Errorf(api.CodeTooLarge, "key of %d bytes, the limit is %d", len(key), api.MaxKey)
	}
	return nil
}

// allProblems adds to the problems of a plan those of its readable tasks, so that
// all are reported at once.
func (a *admission) allProblems(ctx context.Context, caller dispatch.Caller, req api.RunRequest, problems []api.Problem) error {
	tasks := plan.Tasks(req.Plan, req.Parameters)
	v := vettingOf(tasks, func(int) bool { return true })
	if len(v.reqs) == 0 || len(problems) >= api.MaxProblems {
		return plan.Error(problems)
	}
	if err := v.validate(ctx, a.cfg.Dispatch, caller); err != nil {
		return plan.Error(problems) //nolint:nilerr // there is enough to report
	}
	own := len(problems)
	for _, p := range v.problems() {
		// A member that could not be read is not reported a second time as missing.
		known := slices.ContainsFunc(problems[:own], func(k api.Problem) bool {
			return k.Path == p.Path || strings.HasPrefix(k.Path, p.Path+".") || strings.HasPrefix(k.Path, p.Path+"[")
		})
		if !known && len(problems) < api.MaxProblems {
			problems = append(problems, p)
		}
	}
	problems = plan.NameTasks(problems, tasks)
	if v.Denied.Valid() {
		return a.deny(ctx, req.DryRun, record.Entry{Kind: record.KindRunSubmitted, Run: string(req.RunID), Detail: record.RunRequest{Queue: string(api.DefaultQueue), Tasks: int64(len(tasks))}}, v.Denied, problems)
	}
	return plan.Error(problems)
}

// configured reports whether a queue exists.
func (c *Config) configured(queue api.Name) bool {
	_, ok := c.Queues[queue]
	return ok || queue == api.DefaultQueue
}

func (a *admission) invalid(ctx context.Context, caller dispatch.Caller, err error) error {
	return dispatch.LogInvalid(ctx, a.cfg.Ledger, caller.Principal, "run.submit", err)
}

// repeated returns the run of a request that the same caller has made before, and
// refuses another request under the same id. doc has the key of the request, and of a
// retry its digest: its plan differs where a branch has moved since.
func (a *admission) repeated(ctx context.Context, caller dispatch.Caller, p *plan.Plan, doc runDoc) (api.Run, bool, error) {
	var r *run
	var ok bool
	if err := a.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		r, ok, err = runByID(v, p.ID)
		return err
	}); err != nil {
		return api.Run{}, false, err
	}
	if !ok {
		return api.Run{}, false, a.archive.refuseExpired(ctx, p.ID)
	}
	again := doc.Key != "" && r.doc.Key == doc.Key
	same := r.doc.Digest == p.Digest()
	switch {
	case again && doc.Slot != nil: // the plan of its schedule may have changed since
		same = true
	case again && doc.Asked != "":
		same = r.doc.Asked == doc.Asked || r.doc.Asked == "" // older rows have no digest
	}
	switch {
	case r.principal == caller.Principal && same:
	case r.principal == caller.Principal && again:
		return api.Run{}, false, api.Errorf(api.CodeConflict, "key %.80q belongs to another request, which submitted run %s", doc.Key, p.ID).
			WithHint("use another key and another id; or repeat the first request unchanged, which submits nothing")
	default:
		return api.Run{}, false, api.Errorf(api.CodeConflict, "run id %s is in use for another plan", p.ID).
			WithHint("submit this plan under an id of its own: --id NEW or --new; or run the tasks of the other again, with changes: bailiwick run retry %s", p.ID)
	}
	run, err := a.archive.show(ctx, p.ID, 0, defaultPage)
	run.Existing = !again
	return run, true, err
}

// admit decides about a run and makes it durable.
func (a *admission) admit(ctx context.Context, caller dispatch.Caller, r *run) (api.Run, error) {
	decision, err := a.validate(ctx, caller, r)
	if err != nil {
		return api.Run{}, a.invalid(ctx, caller, err)
	}
	now := a.cfg.Now().UTC()
	r.principal, r.submitted = caller.Principal, now
	d := &r.doc
	d.Labels, d.Queue, d.Digest, d.Nonce, d.Trace = r.plan.Labels, r.plan.Queue, r.plan.Digest(), nonce(), dispatch.TraceOf(ctx)
	if wall := time.Duration(r.plan.Limits.Wall); wall > 0 {
		d.DeadlineAt = now.Add(wall)
	}
	if err := a.driver.capacity.reserve(r.principal, r.size(), "this plan"); err != nil {
		return api.Run{}, a.invalid(ctx, caller, err)
	}
	a.driver.submitting.begin(r.id)
	defer a.driver.submitting.done(r.id)
	failpoint.Hit(failpoint.RunSubmitCommit, string(r.id))
	_, err = a.cfg.Ledger.Commit(ctx, decision, submitEntry(r), func(tx *store.Tx) error {
		var n int
		if err := tx.Get("SELECT count(*) FROM run WHERE id = ?", store.Args{r.id}, &n); err != nil || n > 0 {
			return errors.Join(err, errDuplicate)
		}
		if old := r.doc.RetryOf; old != "" {
			if err := tx.Get("SELECT count(*) FROM run WHERE id = ?", store.Args{old}, &n); err != nil {
				return err
			}
			if n == 0 { // retention removed it since it was read
				return api.Errorf(api.CodeNotFound, "run %q has expired: it cannot be retried", old).WithHint("submit its plan again")
			}
		}
		if err := caller.CheckToken(); err != nil {
			return err
		}
		return insertRun(tx, r)
	})
	if err != nil {
		a.driver.capacity.release(r.principal, r.size())
	}
	if errors.Is(err, errDuplicate) { // the same request was admitted at the same time
		run, ok, err := a.repeated(ctx, caller, r.plan, r.doc)
		if err == nil && !ok {
			err = errDuplicate
		}
		return run, a.invalid(ctx, caller, err)
	}
	if err != nil {
		return api.Run{}, err
	}
	failpoint.Hit(failpoint.RunSubmitCommitted, string(r.id))
	d.Parameters = nil
	a.driver.inbox.put(runAdded{r})
	return a.archive.show(ctx, r.id, 0, defaultPage)
}

func submitEntry(r *run) record.Entry {
	request := record.RunRequest{
		Queue: string(r.plan.Queue), RetryOf: string(r.doc.RetryOf), Revision: int64(r.doc.Number), Tasks: int64(len(r.tasks)), //nolint:gosec // G115: numbers count up from 1
		Changed: r.doc.Changed, Rules: r.doc.Rules, Template: string(r.doc.Template), Parameters: r.doc.Parameters, NoReuse: r.doc.NoReuse,
	}
	for _, t := range r.doc.From {
		request.From = append(request.From, string(t))
	}
	for i := range r.tasks {
		if r.tasks[i].takenOver {
			request.Taken++
		}
	}
	refs := map[string]api.Digest{record.RefPlan: r.plan.Digest()}
	if s := r.doc.Slot; s != nil {
		request.Schedule, request.Slot, refs[record.RefSchedule] = string(s.Schedule), s.At.UTC().Format(time.RFC3339), s.Artifact
	}
	return record.Entry{Kind: record.KindRunSubmitted, Run: string(r.id), Refs: refs, Detail: request}
}

func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return hex.EncodeToString(b[:])
}

// validate decides about every task that is not done, as if it were submitted now,
// and pins what their names refer to. Its error has every problem, and a denial
// is logged.
func (a *admission) validate(ctx context.Context, caller dispatch.Caller, r *run) (policy.Decision, error) {
	var none policy.Decision
	v := vettingOf(r.plan.Tasks, func(i int) bool { return r.tasks[i].state != api.TaskDone })
	caller.Retries = r.doc.RetryOf
	if err := v.validate(ctx, a.cfg.Dispatch, caller); err != nil {
		return none, err
	}
	problems := plan.NameTasks(append(v.problems(), v.missingProducts(v.products())...), r.plan.Tasks)
	if v.Denied.Valid() {
		return none, a.deny(ctx, r.dry, submitEntry(r), v.Denied, problems)
	}
	if len(problems) > 0 {
		return none, plan.Error(problems)
	}
	r.doc.Revision, r.doc.Number = v.Revision, v.Number
	if err := r.doc.Slot.current(v.Revision); err != nil {
		return none, err
	}
	pinned := r.doc.Commits // of the run that this one retries
	r.doc.Commits = map[string]string{}
	for n := range v.reqs {
		if s := v.reqs[n].Source; s != nil {
			r.doc.Commits[sourceKey(s)] = cmp.Or(pinned[sourceKey(s)], v.Commits[n])
		}
	}
	engine, err := a.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return none, err
	}
	return engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionRunSubmit, Resource: string(caller.Principal), Token: caller.TokenValid != nil}), nil
}

// deny logs that policy refuses a plan, unless the request is a dry run, and returns
// every problem.
func (a *admission) deny(ctx context.Context, dry bool, entry record.Entry, d policy.Decision, problems []api.Problem) error {
	refused := plan.Error(problems).WithHint("do not retry; see what you may use: bailiwick can %s dispatch SUBAGENT", d.Principal())
	refused.Code = api.CodeDenied
	if dry {
		return refused
	}
	return a.cfg.Ledger.Deny(ctx, d, entry, func(e *api.Error) *api.Error {
		refused.AuditEntry = e.AuditEntry
		return refused
	})
}
