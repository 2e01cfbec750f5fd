package server

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Runs is what the server needs of the orchestrator (R-O1), which decides about
// every call itself. The server refuses steering calls by token before.
type Runs interface {
	RunSteerer
	QueueKeeper
}

// RunReader shows runs to the principals that may see them, also without an
// orchestrator.
type RunReader interface {
	Describe(ctx context.Context, who api.Principal, id api.RunID, after string, limit int) (api.Run, error)
	List(ctx context.Context, who api.Principal, f api.RunFilter) ([]api.Run, error)
	Events(ctx context.Context, who api.Principal, id api.RunID, after string, wait time.Duration) (api.RunEvents, error)
	Plan(ctx context.Context, who api.Principal, id api.RunID) (json.RawMessage, error)
	Waiting(ctx context.Context, who api.Principal) ([]api.Waiting, error)
	See(ctx context.Context, by dispatch.Caller, id api.RunID) error
	LimitAnswer(ctx context.Context, d *api.Dispatch) error
	Owners(ctx context.Context, prefix string, length int) (map[string]api.Principal, error)
}

// RunSteerer submits and steers runs.
type RunSteerer interface {
	Submit(ctx context.Context, by dispatch.Caller, req api.RunRequest) (api.Run, error)
	// Append adds tasks to a run; steers is true for an operator call, which needs no
	// grant.
	Append(ctx context.Context, by dispatch.Caller, steers bool, id api.RunID, req api.RunAppend) (api.Run, error)
	Retry(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunRetry) (api.Run, error)
	Cancel(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error)
	Answer(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunAnswer) (api.Run, error)
	Pause(ctx context.Context, by dispatch.Caller, id api.RunID) (api.Run, error)
	Resume(ctx context.Context, by dispatch.Caller, id api.RunID) (api.Run, error)
}

// QueueKeeper shows and steers queues.
type QueueKeeper interface {
	Queues(ctx context.Context) ([]api.Queue, error)
	PauseQueue(ctx context.Context, by dispatch.Caller, name api.Name) (api.Queue, error)
	ResumeQueue(ctx context.Context, by dispatch.Caller, name api.Name) (api.Queue, error)
}

// runPage is the default number of tasks in a page of a run.
const runPage = 100

// runCalls answers the calls about runs and queues.
type runCalls struct {
	cfg     *Config
	callers *callers
}

func (c *runCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallRunSubmit:   handle(c.submit),
		api.CallRunList:     show(c.list),
		api.CallRunDescribe: c.aboutRun(show(c.describe)),
		api.CallRunEvents:   c.aboutRun(show(c.events)),
		api.CallRunPlan:     c.aboutRun(show(c.plan)),
		api.CallRunCancel:   c.steersRun(handle(c.cancel)),
		api.CallRunPause:    c.steersRun(show(c.pause)),
		api.CallRunResume:   c.steersRun(show(c.resume)),
		api.CallRunRetry:    c.steersRun(handle(c.retry)),
		api.CallRunAppend:   c.steersRun(handle(c.add(false))),
		api.CallRunAppendTo: c.steersRun(handle(c.add(true))),
		api.CallRunAnswer:   c.steersRun(handle(c.answer)),
		api.CallRunSeen:     c.aboutRun(show(c.see)),
		api.CallWaiting:     show(c.waiting),
		api.CallQueueList:   show(c.queues),
		api.CallQueuePause:  show(c.steerQueue(QueueKeeper.PauseQueue)),
		api.CallQueueResume: show(c.steerQueue(QueueKeeper.ResumeQueue)),
	}
}

// runs returns the orchestrator, or the error that none is configured.
func (c *runCalls) runs() (Runs, error) {
	if c.cfg.Runs == nil {
		return nil, api.Errorf(api.CodeNotConfigured, "this service has no orchestrator: it shows runs and neither starts nor changes any").
			WithHint("dispatch each subagent separately, or have a person start one with: %s", api.StartRuns(c.cfg.Mode))
	}
	return c.cfg.Runs, nil
}

// aboutRun parses the id in the path of a call about one run.
func (c *runCalls) aboutRun(h handler) handler {
	return func(w http.ResponseWriter, r *request) error {
		id, err := api.ParseRunID(r.PathValue("id"))
		if err != nil {
			return malformed(api.CodeInvalid, "%w", err)
		}
		r.run = id
		if err := (scopes{c.cfg}).resolve(r, &r.run, nil); err != nil {
			return err
		}
		return h(w, r)
	}
}

// steersRun is aboutRun for a call that changes the run. The handler it wraps may
// rely on c.cfg.Runs.
func (c *runCalls) steersRun(h handler) handler {
	return c.aboutRun(func(w http.ResponseWriter, r *request) error {
		if _, err := c.runs(); err != nil {
			return err
		}
		return h(w, r)
	})
}

func (c *runCalls) submit(ctx context.Context, r *request, req api.RunRequest) (api.Run, error) {
	if len(req.Plan) == 0 {
		return api.Run{}, malformed(api.CodeInvalid, "request: the member \"plan\" is missing")
	}
	runs, err := c.runs()
	if err != nil {
		return api.Run{}, err
	}
	if err := (scopes{c.cfg}).chooseRun(ctx, r.caller.Principal, &req); err != nil {
		return api.Run{}, err
	}
	if err := c.refuseReserved(ctx, req.RunID); err != nil {
		return api.Run{}, err
	}
	run, err := runs.Submit(ctx, r.caller.Caller, req)
	return run, c.callers.orInactive(ctx, r.caller, err)
}

func (c *runCalls) list(ctx context.Context, r *request) ([]api.Run, error) {
	q := r.query()
	f, err := api.ParseRunFilter(q.values)
	if err != nil {
		q.fail("%w", err)
	}
	f.Limit = q.limit(50)
	if q.err != nil {
		return nil, q.err
	}
	if err := (scopes{c.cfg}).resolve(r, &f.After, nil); err != nil {
		return nil, err
	}
	return c.cfg.Reader.List(ctx, r.caller.Principal, f)
}

func (c *runCalls) describe(ctx context.Context, r *request) (api.Run, error) {
	q := r.query()
	after, limit := q.after(), q.limit(runPage)
	if q.err != nil {
		return api.Run{}, q.err
	}
	run, err := c.cfg.Reader.Describe(ctx, r.caller.Principal, r.run, after, limit)
	if err == nil {
		run.Sealed, err = c.sealed(ctx, &run)
	}
	if err == nil {
		err = c.addUsage(ctx, &run)
	}
	if err == nil {
		err = c.addReports(ctx, run.Tasks)
	}
	if err == nil && !run.State.Settled() {
		run.Approvals, err = (&approvalCalls{c.cfg}).ofRun(ctx, r.caller.Principal, run.RunID)
	}
	if err == nil {
		run.Budgets, err = c.cfg.Dispatch.Budgets(ctx, r.caller.Principal, api.BudgetFilter{Run: run.RunID})
	}
	return run, err
}

// addReports adds what the agents of tasks reported last, and what gave them text from
// outside.
func (c *runCalls) addReports(ctx context.Context, tasks []api.RunTask) error {
	var ids []api.DispatchID
	for i := range tasks {
		if tasks[i].DispatchID != "" {
			ids = append(ids, tasks[i].DispatchID)
		}
	}
	reports, err := c.cfg.Dispatch.Reports(ctx, ids)
	for i := range tasks {
		r := reports[tasks[i].DispatchID]
		tasks[i].Progress, tasks[i].Taint, tasks[i].Reused, tasks[i].Unreachable = r.Progress, r.Taint, r.Reused, r.Unreachable
	}
	return err
}

// addUsage adds what the tasks of a run used of their models.
func (c *runCalls) addUsage(ctx context.Context, run *api.Run) error {
	usage, err := c.cfg.Dispatch.RunUsage(ctx, run.RunID)
	if err != nil || len(usage) == 0 {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(usage)) {
		for _, u := range usage[id] {
			run.Usage = api.AddUsage(run.Usage, u)
		}
	}
	for i := range run.Tasks {
		run.Tasks[i].Usage = usage[run.Tasks[i].Task]
	}
	return nil
}

// sealed reports whether the newest signed checkpoint covers the end of a run.
func (c *runCalls) sealed(ctx context.Context, run *api.Run) (bool, error) {
	if run.SettledAt == nil || c.cfg.Tree == nil {
		return false, nil
	}
	end, err := c.cfg.Ledger.List(ctx, audit.Query{Run: run.RunID, Kinds: []record.Kind{record.KindRunSettled}, Newest: true, Limit: 1})
	if err != nil || len(end) == 0 {
		return false, err
	}
	_, checkpoint := c.cfg.Tree.Latest()
	return end[0].Seq < checkpoint.Size, nil
}

func (c *runCalls) events(ctx context.Context, r *request) (api.RunEvents, error) {
	q := r.query()
	after, wait := q.after(), q.wait()
	if q.err != nil {
		return api.RunEvents{}, q.err
	}
	events, err := c.cfg.Reader.Events(ctx, r.caller.Principal, r.run, after, wait)
	if err == nil {
		err = c.callers.checkActive(ctx, r.caller)
	}
	if events.Events == nil {
		events.Events = []api.RunEvent{} // [] in JSON
	}
	return events, err
}

func (c *runCalls) plan(ctx context.Context, r *request) (json.RawMessage, error) {
	return c.cfg.Reader.Plan(ctx, r.caller.Principal, r.run)
}

func (c *runCalls) cancel(ctx context.Context, r *request, req api.RunCancel) (api.Run, error) {
	return c.cfg.Runs.Cancel(ctx, r.caller.Caller, r.run, req)
}

func (c *runCalls) pause(ctx context.Context, r *request) (api.Run, error) {
	return c.cfg.Runs.Pause(ctx, r.caller.Caller, r.run)
}

func (c *runCalls) resume(ctx context.Context, r *request) (api.Run, error) {
	return c.cfg.Runs.Resume(ctx, r.caller.Caller, r.run)
}

func (c *runCalls) add(steers bool) func(context.Context, *request, api.RunAppend) (api.Run, error) {
	return func(ctx context.Context, r *request, req api.RunAppend) (api.Run, error) {
		if len(req.Tasks) == 0 {
			return api.Run{}, malformed(api.CodeInvalid, "request: the member \"tasks\" is missing")
		}
		run, err := c.cfg.Runs.Append(ctx, r.caller.Caller, steers, r.run, req)
		return run, c.callers.orInactive(ctx, r.caller, err)
	}
}

func (c *runCalls) retry(ctx context.Context, r *request, req api.RunRetry) (api.Run, error) {
	ids := scopes{c.cfg}
	stored, err := ids.choose(ctx, r.caller.Principal, string(req.RunID), ids.runs)
	if err != nil {
		return api.Run{}, err
	}
	req.RunID = api.RunID(stored)
	if err := c.refuseReserved(ctx, req.RunID); err != nil {
		return api.Run{}, err
	}
	return c.cfg.Runs.Retry(ctx, r.caller.Caller, r.run, req)
}

func (c *runCalls) answer(ctx context.Context, r *request, req api.RunAnswer) (api.Run, error) {
	if req.Task == "" {
		return api.Run{}, malformed(api.CodeInvalid, "request: the member \"task\" is missing")
	}
	return c.cfg.Runs.Answer(ctx, r.caller.Caller, r.run, req)
}

func (c *runCalls) see(ctx context.Context, r *request) (none, error) {
	return none{}, c.cfg.Reader.See(ctx, r.caller.Caller, r.run)
}

// waiting returns what waits for a person: the questions of dispatches, and what
// waits in runs.
func (c *runCalls) waiting(ctx context.Context, r *request) ([]api.Waiting, error) {
	asking, err := c.cfg.Dispatch.Asking(ctx, r.caller.Principal)
	if err != nil {
		return nil, err
	}
	list, byDispatch := []api.Waiting{}, map[api.DispatchID]*api.Dispatch{}
	for i := range asking {
		d := &asking[i]
		byDispatch[d.ID] = d
		if d.Run == "" {
			list = append(list, api.Waiting{Kind: api.WaitingQuestion, Principal: d.Principal, DispatchID: d.ID, Subagent: d.Subagent})
		}
	}
	ofRuns, err := c.cfg.Reader.Waiting(ctx, r.caller.Principal)
	if err != nil {
		return nil, err
	}
	list = append(list, ofRuns...)
	for i := range list {
		w := &list[i]
		if d := byDispatch[w.DispatchID]; d != nil {
			w.Attempt, w.Text, w.Since = d.Attempt, d.Message, *cmp.Or(d.EndedAt, &d.AcceptedAt)
			if d.AnswerBy != nil && (w.Until == nil || d.AnswerBy.Before(*w.Until)) {
				w.Until = d.AnswerBy
			}
		}
	}
	approvals, err := (&approvalCalls{c.cfg}).waiting(ctx, r.caller.Principal)
	if err != nil {
		return nil, err
	}
	list = append(list, approvals...)
	slices.SortStableFunc(list, func(a, b api.Waiting) int { return a.Since.Compare(b.Since) })
	return list, nil
}

func (c *runCalls) queues(ctx context.Context, _ *request) ([]api.Queue, error) {
	runs, err := c.runs()
	if err != nil {
		return nil, err
	}
	return runs.Queues(ctx)
}

func (c *runCalls) steerQueue(act func(QueueKeeper, context.Context, dispatch.Caller, api.Name) (api.Queue, error)) func(context.Context, *request) (api.Queue, error) {
	return func(ctx context.Context, r *request) (api.Queue, error) {
		name, err := api.ParseName(r.PathValue("name"))
		if err != nil {
			return api.Queue{}, malformed(api.CodeInvalid, "queue: %w", err)
		}
		runs, err := c.runs()
		if err != nil {
			return api.Queue{}, err
		}
		return act(runs, ctx, r.caller.Caller, name)
	}
}
