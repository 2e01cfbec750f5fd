package mcpserve

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// submitInput is a plan.
type submitInput struct {
	Plan  object    `json:"plan"`
	RunID api.RunID `json:"runId,omitempty" jsonschema:"an id of your choice, 1 to 64 of a-z 0-9 -; the same plan with the same id is not run twice"`
}

// shown is the plan's own schema. It is held to the plan by the service, which
// says all that is wrong with it.
func (submitInput) shown() map[string]json.RawMessage {
	return map[string]json.RawMessage{"plan": api.PlanSchema()}
}

// submit hands in a plan, under an id in any case: so it can be done again when
// nobody can say whether it arrived.
func (s *Server) submit(ctx context.Context, c *call, in submitInput) (runOutput, error) {
	id := in.RunID
	if id == "" && !hasID(in.Plan) {
		id = api.NewRunID(s.cfg.Now())
	}
	run, err := ask(ctx, c, func(rt client.Runtime) (api.Run, error) {
		return rt.Submit(ctx, api.RunRequest{Plan: json.RawMessage(in.Plan), RunID: id})
	})
	if err != nil {
		if api.CodeOf(err) == api.CodeUnavailable && id != "" { // after the request may have arrived
			err = &advised{err, "then call again with runId " + string(id) + ", so that it is not run twice"}
		}
		return runOutput{}, err
	}
	out, err := s.runPage(ctx, c, run.RunID, "")
	if err != nil {
		// It was taken, and whoever does not hear its id may submit another.
		out = runOf(&run, nil)
		out.Advice = "reading its tasks failed (" + faultText(faultOf(err)) + "); it goes on: look again with " + toolStatus
		return out, nil //nolint:nilerr // it says so
	}
	return out, nil
}

// hasID reports whether a plan names itself. What it names is for the service
// to check.
func hasID(plan object) bool {
	var named struct {
		ID json.RawMessage `json:"id"`
	}
	return json.Unmarshal(plan, &named) == nil && named.ID != nil
}

// statusInput names a run and a page of its tasks.
type statusInput struct {
	RunID api.RunID `json:"runId"`
	After string    `json:"after,omitempty" jsonschema:"next of the page before; the first page when absent"`
}

func (s *Server) status(ctx context.Context, c *call, in statusInput) (runOutput, error) {
	return s.runPage(ctx, c, in.RunID, in.After)
}

// The bounds of an answer about a run.
const (
	runTasks   = 100 // tasks in a page
	runText    = 400 // bytes of a message or an event
	runFew     = 20  // tasks that are listed of those that one depends on
	runPageMax = 2 * pageBytes
)

// runPage reads a run and the page of its tasks behind a cursor. Where they are
// long there are fewer on it.
func (s *Server) runPage(ctx context.Context, c *call, id api.RunID, after string) (runOutput, error) {
	for limit := runTasks; ; {
		run, err := ask(ctx, c, func(rt client.Runtime) (api.Run, error) { return rt.Run(ctx, id, after, limit) })
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
		limit = max(1, fits) // its end has a cursor of its own
	}
}

// runOutput is how a run stands, with a page of its tasks.
type runOutput struct {
	RunID        api.RunID             `json:"runId"`
	State        api.RunState          `json:"state"`
	Settled      bool                  `json:"settled" jsonschema:"nothing more happens"`
	Queue        api.Name              `json:"queue"`
	Revision     uint64                `json:"revision" jsonschema:"of the catalog; every name means what it meant there"`
	Plan         api.Digest            `json:"plan" jsonschema:"digest of the plan"`
	SubmittedAt  time.Time             `json:"submittedAt"`
	SettledAt    *time.Time            `json:"settledAt,omitempty"`
	Deadline     *time.Time            `json:"deadline,omitempty" jsonschema:"when it is cancelled unless it is settled"`
	RetryOf      api.RunID             `json:"retryOf,omitempty" jsonschema:"the run whose finished tasks it took over"`
	CancelledBy  api.Principal         `json:"cancelledBy,omitempty"`
	CancelReason string                `json:"cancelReason,omitempty"`
	Total        int                   `json:"total" jsonschema:"how many tasks it has"`
	Counts       map[api.TaskState]int `json:"counts" jsonschema:"how many tasks are in each state"`
	Tasks        []runTask             `json:"tasks" jsonschema:"a page of them, in the order of the plan"`
	Next         string                `json:"next,omitempty" jsonschema:"pass it as after for the next page; absent at the end"`
	Advice       string                `json:"advice,omitempty" jsonschema:"what you can do now"`
}

// runTask is a task, as far as it helps who submitted it.
type runTask struct {
	Task        api.TaskID     `json:"task"`
	State       api.TaskState  `json:"state"`
	Subagent    api.Name       `json:"subagent"`
	After       []api.TaskID   `json:"after,omitempty" jsonschema:"what it depends on"`
	MoreAfter   int            `json:"moreAfter,omitempty" jsonschema:"so many are not listed"`
	Reason      api.Reason     `json:"reason,omitempty" jsonschema:"why it failed, or why its last attempt did"`
	Message     string         `json:"message,omitempty" jsonschema:"the reason in words; of a question its text"`
	Cause       api.TaskID     `json:"cause,omitempty" jsonschema:"of a skipped task: the one that is not done"`
	DispatchID  api.DispatchID `json:"dispatchId,omitempty" jsonschema:"of its latest attempt"`
	Attempt     int            `json:"attempt,omitempty"`
	Attempts    int            `json:"attempts" jsonschema:"how many it has at most"`
	Asks        bool           `json:"asks,omitempty" jsonschema:"it waits for an answer"`
	NotBefore   *time.Time     `json:"notBefore,omitempty" jsonschema:"of the next attempt"`
	CancelledBy api.Principal  `json:"cancelledBy,omitempty"`
	StartedAt   *time.Time     `json:"startedAt,omitempty"`
	EndedAt     *time.Time     `json:"endedAt,omitempty"`
	Blocked     string         `json:"blocked,omitempty" jsonschema:"of a ready task: what it waits for"`
	TakenOver   bool           `json:"takenOver,omitempty" jsonschema:"done in the run that this one retries"`
}

func taskOf(t *api.RunTask) runTask {
	few := t.After[:min(len(t.After), runFew)]
	return runTask{
		Task: t.Task, State: t.State, Subagent: t.Subagent, After: few, MoreAfter: len(t.After) - len(few), Reason: t.Reason, Message: Truncate(t.Message, runText),
		Cause: t.Cause, DispatchID: t.DispatchID, Attempt: t.Attempt, Attempts: t.Attempts, Asks: t.Asks, NotBefore: t.NotBefore, CancelledBy: t.CancelBy,
		StartedAt: t.StartedAt, EndedAt: t.EndedAt, Blocked: Truncate(t.Blocked, runText), TakenOver: t.TakenOver,
	}
}

func runOf(r *api.Run, tasks []runTask) runOutput {
	out := runOutput{
		RunID: r.RunID, State: r.State, Settled: r.State.Settled(), Queue: r.Queue, Revision: r.Revision, Plan: r.Plan, SubmittedAt: r.SubmittedAt,
		SettledAt: r.SettledAt, Deadline: r.Deadline, RetryOf: r.RetryOf, CancelledBy: r.CancelBy, CancelReason: Truncate(r.CancelReason, runText),
		Total: r.Total, Counts: r.Counts, Tasks: tasks, Next: r.Next,
	}
	if out.Tasks == nil {
		out.Tasks = []runTask{}
	}
	if out.Counts == nil {
		out.Counts = map[api.TaskState]int{}
	}
	out.Advice = runAdvice(r)
	return out
}

// runAdvice says what a model can do about a run. To steer one is for people.
func runAdvice(r *api.Run) string {
	for i := range r.Tasks {
		if t := &r.Tasks[i]; t.Asks {
			return "task " + string(t.Task) + " asks something: read it with " + toolDescribe + " and include question; a human answers with: bailiwick run answer " +
				string(r.RunID) + " --task " + string(t.Task)
		}
	}
	switch {
	case r.State == api.RunPaused:
		return "it is paused; a human can go on with it: bailiwick run resume " + string(r.RunID)
	case !r.State.Settled():
		return "it goes on by itself; to hear of it: " + toolWatch
	case r.State == api.RunDone:
		return "read what a task did with " + toolDescribe + " and its dispatchId"
	}
	return "see reason and message of the tasks that are not done; a human can submit it again without repeating what is done: bailiwick run retry " + string(r.RunID)
}

// watchInput says behind which event to watch a run.
type watchInput struct {
	RunID          api.RunID `json:"runId"`
	After          string    `json:"after,omitempty" jsonschema:"next of the answer before; from the beginning when absent"`
	TimeoutSeconds int       `json:"timeoutSeconds,omitempty" jsonschema:"seconds to wait for an event, at most 50; 0 or absent: return what is there"`
}

func (watchInput) bounds() map[string]span { return map[string]span{"timeoutSeconds": {0, maxWait}} }

// watch returns the events behind a cursor, waiting for the first of them.
func (s *Server) watch(ctx context.Context, c *call, in watchInput) (api.RunEvents, error) {
	begun := s.cfg.Now()
	until := begun.Add(time.Duration(in.TimeoutSeconds) * time.Second)
	for {
		left := max(0, until.Sub(s.cfg.Now()))
		events, err := ask(ctx, c, func(rt client.Runtime) (api.RunEvents, error) {
			return rt.RunEvents(ctx, in.RunID, in.After, min(left, lookTime))
		})
		if err != nil || len(events.Events) > 0 || events.Done || left == 0 {
			return eventPage(events), err
		}
		c.progress(ctx, s.cfg.Now().Sub(begun).Seconds(), "run "+string(in.RunID)+": nothing new")
	}
}

// eventPage is the beginning of what happened, as much as a model is given at a
// time. A cursor is the number of the first entry that is wanted.
func eventPage(all api.RunEvents) api.RunEvents {
	if all.Events == nil {
		all.Events = []api.RunEvent{}
	}
	size := 0
	for i := range all.Events {
		e := &all.Events[i]
		e.Text = Truncate(e.Text, runText)
		if size += len(e.Text) + 200; size > runPageMax {
			all.Next, all.Done = strconv.FormatUint(e.Seq, 10), false
			all.Events = all.Events[:i]
			break
		}
	}
	return all
}
