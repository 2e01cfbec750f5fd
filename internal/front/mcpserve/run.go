package mcpserve

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
)

// submitInput is a plan and an optional run id.
type submitInput struct {
	Plan       object                     `json:"plan"`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty" jsonschema:"values of the parameters that the plan declares"`
	RunID      api.RunID                  `json:"runId,omitempty" jsonschema:"idempotency key of your choice, 1 to 64 characters of a-z 0-9 -; it replaces the id of the plan; repeating a plan with the same id does not start a second run; answers may name the run by this id with a suffix, and every tool accepts both"`
	AppendTo   api.RunID                  `json:"appendTo,omitempty" jsonschema:"id of an open run of yours: add the tasks of plan to it instead of starting a run. plan has tasks and nothing else; they may depend on the tasks of the run. Only if a human has granted you append"`
}

// advertised returns the schema of a plan. The service validates the plan and
// reports all problems at once.
func (submitInput) advertised() map[string]json.RawMessage {
	return map[string]json.RawMessage{"plan": api.PlanSchema()}
}

// submit submits a plan, always under an id, so that it can be repeated if the
// answer is lost.
func (s *Server) submit(ctx context.Context, c *call, in submitInput) (runOutput, error) {
	if in.AppendTo != "" {
		return s.append(ctx, c, in)
	}
	id := in.RunID
	if id == "" && !hasID(in.Plan) {
		id = api.NewRunID(s.cfg.Now())
	}
	run, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Run, error) {
		return rt.Submit(ctx, api.RunRequest{Plan: json.RawMessage(in.Plan), Parameters: in.Parameters, RunID: id})
	})
	if err != nil {
		if api.CodeOf(err) == api.CodeUnavailable && id != "" { // the request may have arrived
			err = &adviceError{err, "then repeat the call with runId " + string(id) + ", so that it is not started twice"}
		}
		return runOutput{}, err
	}
	out, err := s.runPage(ctx, c, run.RunID, "")
	out.Existing = run.Existing
	if run.Existing && err == nil {
		out.Advice = "run " + string(run.RunID) + " already exists and this call started nothing; to run the plan again, submit it with another runId; " + out.Advice
	}
	if err != nil {
		// It was accepted: a client without its id might submit another.
		out = runOf(&run, nil)
		out.Existing = run.Existing
		out.Advice = "reading its tasks failed (" + errorText(toolError(err)) + ") but the run continues: check it with " + toolStatus
		return out, nil //nolint:nilerr // reported as advice
	}
	return out, nil
}

// append adds the tasks of a plan to a run. Tasks have ids, so a repeated call adds
// nothing twice.
func (s *Server) append(ctx context.Context, c *call, in submitInput) (runOutput, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(in.Plan, &members); err != nil {
		return runOutput{}, api.Errorf(api.CodeInvalid, "plan: %w", err)
	}
	if len(members) != 1 || members["tasks"] == nil || in.RunID != "" || len(in.Parameters) > 0 {
		return runOutput{}, api.Errorf(api.CodeInvalid, "appendTo: want a plan with tasks and nothing else, and neither runId nor parameters").
			WithHint("with appendTo pass only tasks; omit appendTo to start a new run")
	}
	run, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Run, error) {
		return rt.Append(ctx, in.AppendTo, api.RunAppend{Tasks: members["tasks"]})
	})
	if err != nil {
		return runOutput{}, err
	}
	out, err := s.runPage(ctx, c, run.RunID, "")
	if err != nil {
		out = runOf(&run, nil)
		out.Advice = "the tasks were added; reading the run failed (" + errorText(toolError(err)) + "): check it with " + toolStatus
	}
	return out, nil
}

// hasID reports whether a plan has an id. The service validates it.
func hasID(plan object) bool {
	var named struct {
		ID json.RawMessage `json:"id"`
	}
	return json.Unmarshal(plan, &named) == nil && named.ID != nil
}

// statusInput names a run and a page of its tasks.
type statusInput struct {
	RunID api.RunID  `json:"runId"`
	After cursorText `json:"after,omitempty" jsonschema:"next from the previous page; default: the first page"`
}

func (s *Server) status(ctx context.Context, c *call, in statusInput) (runOutput, error) {
	return s.runPage(ctx, c, in.RunID, string(in.After))
}

// The bounds of an answer about a run.
const (
	runTasks     = 100 // tasks in a page
	runText      = 400 // bytes of a message or an event
	runAfter     = 20  // dependencies listed for a task
	runApprovals = 10  // listed for a run
	runPageMax   = 2 * pageBytes
)

// runPage reads a run and the page of its tasks after a cursor. It returns fewer
// tasks if they are long.
func (s *Server) runPage(ctx context.Context, c *call, id api.RunID, after string) (runOutput, error) {
	for limit := runTasks; ; {
		run, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Run, error) { return rt.Run(ctx, id, after, limit) })
		if err != nil {
			return runOutput{}, err
		}
		tasks := make([]runTask, 0, len(run.Tasks))
		size, fits := 0, 0
		for i := range run.Tasks {
			t := taskOf(&run.Tasks[i])
			b, err := json.Marshal(t)
			if err != nil {
				return runOutput{}, err
			}
			if size += len(b); size <= runPageMax {
				fits++
			}
			tasks = append(tasks, t)
		}
		if fits == len(tasks) || limit == 1 {
			return runOf(&run, tasks), nil
		}
		limit = max(1, fits) // the shorter page has its own cursor
	}
}

// runOutput is the state of a run, with a page of its tasks.
type runOutput struct {
	RunID        api.RunID             `json:"runId"`
	State        api.RunState          `json:"state"`
	Settled      bool                  `json:"settled" jsonschema:"the run has ended"`
	Queue        api.Name              `json:"queue"`
	Revision     uint64                `json:"revision" jsonschema:"of the catalog, in which all names are resolved"`
	Plan         api.Digest            `json:"plan" jsonschema:"digest of the plan"`
	SubmittedAt  time.Time             `json:"submittedAt"`
	SettledAt    *time.Time            `json:"settledAt,omitempty"`
	Deadline     *time.Time            `json:"deadline,omitempty" jsonschema:"when it is cancelled unless it has ended"`
	RetryOf      api.RunID             `json:"retryOf,omitempty" jsonschema:"the run whose finished tasks it reuses"`
	CancelledBy  api.Actor             `json:"cancelledBy,omitempty"`
	CancelReason string                `json:"cancelReason,omitempty"`
	Total        int                   `json:"total" jsonschema:"number of tasks"`
	Counts       map[api.TaskState]int `json:"counts" jsonschema:"number of tasks in each state"`
	Usage        []api.ModelUsage      `json:"usage,omitempty" jsonschema:"what all its dispatches used of their models, one for each currency"`
	Approvals    []approvalWait        `json:"approvals,omitempty" jsonschema:"what waits for people to approve it; you cannot approve: tell a human, and wait"`
	MoreApproval int                   `json:"moreApprovals,omitempty" jsonschema:"how many more there are"`
	Tasks        []runTask             `json:"tasks" jsonschema:"one page, in the order of the plan"`
	Next         string                `json:"next,omitempty" jsonschema:"pass as after for the next page; absent on the last page"`
	Existing     bool                  `json:"existing,omitempty" jsonschema:"an earlier call submitted this run; this call started nothing"`
	Advice       string                `json:"advice,omitempty" jsonschema:"what you can do next"`
}

// approvalWait is an approval that people have not given yet.
type approvalWait struct {
	Approval   api.ApprovalID  `json:"approval"`
	Task       api.TaskID      `json:"task"`
	DispatchID api.DispatchID  `json:"dispatchId,omitempty" jsonschema:"whose call of a tool it is about; absent if it is about the task"`
	Tool       string          `json:"tool,omitempty"`
	By         []api.Principal `json:"by,omitempty" jsonschema:"who may approve the task"`
	Needs      int             `json:"needs" jsonschema:"how many different people must approve"`
	Approved   int             `json:"approved,omitempty" jsonschema:"how many have approved"`
	Expires    time.Time       `json:"expires" jsonschema:"then the task fails, or the call is denied"`
}

// approvalWaits returns the first of what a run waits for, and how many more there are.
func approvalWaits(open []api.OpenApproval) (list []approvalWait, more int) {
	for _, a := range open[:min(len(open), runApprovals)] {
		list = append(list, approvalWait{a.ID, a.Task, a.DispatchID, cuttext.Text(a.Tool, runText), a.By, a.Needs, a.Approved, a.Expires})
	}
	return list, len(open) - len(list)
}

// runTask is a task for the caller of its run.
type runTask struct {
	Task        api.TaskID     `json:"task"`
	State       api.TaskState  `json:"state"`
	Subagent    api.Name       `json:"subagent,omitempty" jsonschema:"absent for a quorum and an approval"`
	GrewFrom    api.TaskID     `json:"grewFrom,omitempty" jsonschema:"the task of the plan that it grew from"`
	After       []api.TaskID   `json:"after,omitempty" jsonschema:"tasks that it depends on"`
	MoreAfter   int            `json:"moreAfter,omitempty" jsonschema:"how many more there are"`
	Reason      api.Reason     `json:"reason,omitempty" jsonschema:"why it, or its last attempt, failed"`
	Message     string         `json:"message,omitempty" jsonschema:"explanation of reason, or the text of its question"`
	Cause       api.TaskID     `json:"cause,omitempty" jsonschema:"of a skipped task: the dependency that did not succeed, or that its condition is about"`
	DispatchID  api.DispatchID `json:"dispatchId,omitempty" jsonschema:"of its latest attempt"`
	Attempt     int            `json:"attempt,omitempty"`
	Attempts    int            `json:"attempts" jsonschema:"maximum number of attempts"`
	Asks        bool           `json:"asks,omitempty" jsonschema:"waiting for an answer"`
	NotBefore   *time.Time     `json:"notBefore,omitempty" jsonschema:"earliest start of the next attempt"`
	CancelledBy api.Actor      `json:"cancelledBy,omitempty"`
	StartedAt   *time.Time     `json:"startedAt,omitempty"`
	EndedAt     *time.Time     `json:"endedAt,omitempty"`
	Blocked     string         `json:"blocked,omitempty" jsonschema:"what it is waiting for"`
	TakenOver   bool           `json:"takenOver,omitempty" jsonschema:"reused from the run that this one retries"`
	ReusedFrom  api.DispatchID `json:"reusedFrom,omitempty" jsonschema:"an earlier dispatch with the same inputs, which made its result; nothing ran"`
}

func taskOf(t *api.RunTask) runTask {
	message := t.Message
	if !t.Asks { // a question is the agent's, and its paths are those in the jail
		message = usererror.WithoutPaths(message)
	}
	few := t.After[:min(len(t.After), runAfter)]
	var reused api.DispatchID
	if t.Reused != nil {
		reused = t.Reused.DispatchID
	}
	return runTask{
		Task: t.Task, State: t.State, Subagent: t.Subagent, GrewFrom: t.GrewFrom, After: few, MoreAfter: len(t.After) - len(few), Reason: t.Reason, Message: cuttext.Text(message, runText),
		Cause: t.Cause, DispatchID: t.DispatchID, Attempt: t.Attempt, Attempts: t.Attempts, Asks: t.Asks, NotBefore: t.NotBefore, CancelledBy: t.CancelBy,
		StartedAt: t.StartedAt, EndedAt: t.EndedAt, Blocked: cuttext.Text(t.Blocked, runText), TakenOver: t.TakenOver, ReusedFrom: reused,
	}
}

func runOf(r *api.Run, tasks []runTask) runOutput {
	out := runOutput{
		RunID: r.RunID, State: r.State, Settled: r.State.Settled(), Queue: r.Queue, Revision: r.Revision, Plan: r.Plan, SubmittedAt: r.SubmittedAt,
		SettledAt: r.SettledAt, Deadline: r.Deadline, RetryOf: r.RetryOf, CancelledBy: r.CancelBy, CancelReason: cuttext.Text(r.CancelReason, runText),
		Total: r.Total, Counts: r.Counts, Usage: r.Usage, Tasks: tasks, Next: r.Next,
	}
	if out.Tasks == nil {
		out.Tasks = []runTask{}
	}
	if out.Counts == nil {
		out.Counts = map[api.TaskState]int{}
	}
	out.Approvals, out.MoreApproval = approvalWaits(r.Approvals)
	out.Advice = runAdvice(r)
	return out
}

// runAdvice says what a model can do next. Only people resume and retry runs.
func runAdvice(r *api.Run) string {
	for i := range r.Tasks {
		if t := &r.Tasks[i]; t.Asks {
			return "task " + string(t.Task) + " has a question: read it with " + toolDescribe + " and include question; a human answers with: bailiwick run answer " +
				string(r.RunID) + " --task " + string(t.Task)
		}
	}
	if len(r.Approvals) > 0 && !r.Undriven {
		return approvalAdvice(&r.Approvals[0])
	}
	switch {
	case r.Undriven:
		return "nothing continues this run: the service has no orchestrator; a human starts one with: " + r.StartWith
	case r.State == api.RunPaused:
		return "the run is paused; a human can resume it: bailiwick run resume " + string(r.RunID)
	case !r.State.Settled():
		return "the run is in progress; watch it with " + toolWatch
	case r.State == api.RunDone:
		return "read the result of a task with " + toolDescribe + " and its dispatchId"
	}
	return "see reason and message of the tasks that are not done; a human can retry the run without repeating finished tasks: bailiwick run retry " + string(r.RunID)
}

// approvalAdvice tells a model that it waits for people, and cannot replace them.
func approvalAdvice(a *api.OpenApproval) string {
	what := "task " + string(a.Task)
	if a.DispatchID != "" {
		what = "a call of " + cuttext.Text(a.Tool, runText) + " by task " + string(a.Task)
	}
	who := "a human"
	if a.Needs > 1 {
		who = strconv.Itoa(a.Needs) + " humans"
	}
	for i, p := range a.By {
		who += []string{" of ", ", "}[min(i, 1)] + string(p)
	}
	return what + " waits for the approval of " + who + ". You cannot approve it, and nothing that you can call replaces the approval. Ask them to look at it with: bailiwick approval show " + string(a.ID) +
		" and to approve it with: bailiwick approval approve " + string(a.ID) + ". Meanwhile, wait with " + toolWatch
}

// watchInput names a run and the event after which to watch.
type watchInput struct {
	RunID          api.RunID  `json:"runId"`
	After          cursorText `json:"after,omitempty" jsonschema:"next from the previous answer; default: from the beginning"`
	TimeoutSeconds int        `json:"timeoutSeconds,omitempty" jsonschema:"seconds to wait for an event, at most 50; default: do not wait"`
}

func (watchInput) bounds() map[string]span { return map[string]span{"timeoutSeconds": {0, maxWait}} }

// watch returns the events after a cursor, waiting for the first.
func (s *Server) watch(ctx context.Context, c *call, in watchInput) (api.RunEvents, error) {
	begun := s.cfg.Now()
	until := begun.Add(api.Span(int64(in.TimeoutSeconds), time.Second))
	for {
		left := max(0, until.Sub(s.cfg.Now()))
		events, err := withRuntime(ctx, c, func(rt client.Runtime) (api.RunEvents, error) {
			return rt.RunEvents(ctx, in.RunID, string(in.After), min(left, pollInterval))
		})
		if err != nil || len(events.Events) > 0 || events.Done || left == 0 {
			return eventPage(events), err
		}
		c.progress(ctx, s.cfg.Now().Sub(begun).Seconds(), "run "+string(in.RunID)+": no new event")
	}
}

// eventPage returns the first events, up to a page. A cursor is the number of the
// first entry to return.
func eventPage(all api.RunEvents) api.RunEvents {
	if all.Events == nil {
		all.Events = []api.RunEvent{}
	}
	size := 0
	for i := range all.Events {
		e := &all.Events[i]
		e.Text = cuttext.Text(usererror.WithoutPaths(e.Text), runText)
		if size += len(e.Text) + 200; size > runPageMax {
			all.Next, all.Done = strconv.FormatUint(e.Seq, 10), false
			all.Events = all.Events[:i]
			break
		}
	}
	return all
}
