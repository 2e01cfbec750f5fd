package api

import (
	"encoding/json"
	"time"
)

// RunRequest submits a plan. Submitting the same plan with the same id again
// returns the same run.
type RunRequest struct {
	Plan  json.RawMessage `json:"plan"`            // a Plan
	RunID RunID           `json:"runId,omitempty"` // instead of the plan's id; default: that, or a new one
	// Parameters are values of parameters that the plan declares.
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
	// DryRun validates the request and decides about each task, and does nothing: the
	// answer is the run that would be made.
	DryRun bool `json:"dryRun,omitempty"`
	// Key is a random text of at most MaxKey bytes that identifies this request: a
	// repetition of it finds its own run, which is then not reported as Existing.
	Key string `json:"key,omitempty"`
	// NoReuse runs every task, also where an earlier dispatch has its result.
	NoReuse bool `json:"noReuse,omitempty"`
}

// MaxKey bounds the key of a request, in bytes.
const MaxKey = 64

// RunState is the state of a run, derived from its tasks. The set is closed.
type RunState string

// The states of a run. The last three are final.
const (
	RunRunning   RunState = "running"
	RunWaiting   RunState = "waiting"   // for an answer; no task can continue before
	RunPaused    RunState = "paused"    // the run or its queue: no further task starts
	RunDone      RunState = "done"      // every task is done
	RunFailed    RunState = "failed"    // a task failed or was denied
	RunCancelled RunState = "cancelled" // the run was cancelled, or only cancelled tasks and those that depend on them are not done
)

// RunStates lists them all.
func RunStates() []RunState {
	return []RunState{RunRunning, RunWaiting, RunPaused, RunDone, RunFailed, RunCancelled}
}

// Settled reports whether s is final.
func (s RunState) Settled() bool { return s == RunDone || s == RunFailed || s == RunCancelled }

// NeedsAttention reports whether a run ended without what it was submitted for and
// without a person's decision: a task failed, or the service cancelled it at its
// time limit.
func (r *Run) NeedsAttention() bool {
	return r.State == RunFailed || r.State == RunCancelled && r.CancelBy == Service
}

// TaskState is the state of a task. The set is closed; internal/rule/plan has the
// transitions.
type TaskState string

// The states of a task. The last five are final.
const (
	TaskPending   TaskState = "pending" // waits for its dependencies
	TaskReady     TaskState = "ready"   // waits for its locks or a free slot
	TaskRunning   TaskState = "running"
	TaskWaiting   TaskState = "waiting" // for an answer, an approval, or the time of its next attempt
	TaskGrowing   TaskState = "growing" // waits for the tasks that grew from it
	TaskDone      TaskState = "done"
	TaskFailed    TaskState = "failed"
	TaskSkipped   TaskState = "skipped" // a dependency is not done, or a condition does not hold
	TaskCancelled TaskState = "cancelled"
	TaskDenied    TaskState = "denied" // policy refused it
)

// TaskStates lists them all.
func TaskStates() []TaskState {
	return []TaskState{TaskPending, TaskReady, TaskRunning, TaskWaiting, TaskGrowing, TaskDone, TaskFailed, TaskSkipped, TaskCancelled, TaskDenied}
}

// Settled reports whether s is final.
func (s TaskState) Settled() bool {
	switch s {
	case TaskDone, TaskFailed, TaskSkipped, TaskCancelled, TaskDenied:
		return true
	case TaskPending, TaskReady, TaskRunning, TaskWaiting, TaskGrowing:
	}
	return false
}

// Run is the execution of a plan.
type Run struct {
	RunID        RunID             `json:"runId"`
	State        RunState          `json:"state"`
	Queue        Name              `json:"queue"`
	Principal    Principal         `json:"principal"`
	Plan         Digest            `json:"plan"`     // of its canonical form
	Revision     uint64            `json:"revision"` // of the catalog, to which all names are pinned
	SubmittedAt  time.Time         `json:"submittedAt"`
	SettledAt    *time.Time        `json:"settledAt,omitempty"`
	Sealed       bool              `json:"sealed,omitempty"`    // a signed checkpoint covers its end; not set in lists
	Undriven     bool              `json:"undriven,omitempty"`  // it is open and the service has no orchestrator: nothing continues it
	StartWith    string            `json:"startWith,omitempty"` // if undriven: what a person does so that it continues
	Deadline     *time.Time        `json:"deadline,omitempty"`  // when an unsettled run is cancelled
	RetryOf      RunID             `json:"retryOf,omitempty"`   // the run whose finished tasks it reuses
	From         []TaskID          `json:"from,omitempty"`      // as of the RunRetry that made it
	Changed      []string          `json:"changed,omitempty"`   // how its plan differs from RetryOf's plan, as text
	CancelBy     Actor             `json:"cancelledBy,omitempty"`
	CancelReason string            `json:"cancelReason,omitempty"`
	Counts       map[TaskState]int `json:"counts"`
	Total        int               `json:"total"`
	NoReuse      bool              `json:"noReuse,omitempty"`   // as of its RunRequest
	DryRun       bool              `json:"dryRun,omitempty"`    // of a submission: the run was only validated, and does not exist
	Labels       map[Name]string   `json:"labels,omitempty"`    // of its plan
	Existing     bool              `json:"existing,omitempty"`  // of a submission: an earlier request made this run, nothing was started
	Approvals    []OpenApproval    `json:"approvals,omitempty"` // that it waits for, oldest first, at most MaxOpenApprovals; not in lists
	Budgets      []BudgetStatus    `json:"budgets,omitempty"`   // per run, once something is reserved of them; not in lists
	Usage        []ModelUsage      `json:"usage,omitempty"`     // of models, by all its dispatches, one for each currency; not in lists
	Tasks        []RunTask         `json:"tasks"`               // a page, in the order of the plan; not in lists
	Next         string            `json:"next,omitempty"`      // cursor of the next page; absent on the last
}

// RunTask is a task of a run.
type RunTask struct {
	Task       TaskID     `json:"task"`
	State      TaskState  `json:"state"`
	Subagent   Name       `json:"subagent,omitempty"`   // none of a quorum or an approval
	After      []TaskID   `json:"after,omitempty"`      // what it depends on
	GrewFrom   TaskID     `json:"grewFrom,omitempty"`   // the task that it grew from
	Reason     Reason     `json:"reason,omitempty"`     // of a failure, including that of the last attempt before a retry
	Message    string     `json:"message,omitempty"`    // the reason as text; or the text of a question
	Cause      TaskID     `json:"cause,omitempty"`      // of a skipped task: the dependency that is not done, or the done one that its condition is about
	DispatchID DispatchID `json:"dispatchId,omitempty"` // of the latest attempt
	Attempt    int        `json:"attempt,omitempty"`    // 0: never started
	Attempts   int        `json:"attempts"`             // at most
	Asks       bool       `json:"asks,omitempty"`       // it waits for an answer; bailiwick dispatch show prints the question
	NotBefore  *time.Time `json:"notBefore,omitempty"`  // of the next attempt
	CancelBy   Actor      `json:"cancelledBy,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"` // of the latest attempt
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	Blocked    string     `json:"blocked,omitempty"`   // what it waits for, as text: a lock, a slot or a budget
	TakenOver  bool       `json:"takenOver,omitempty"` // done by the run that this one retries
	Reused     *Reuse     `json:"reused,omitempty"`    // the earlier dispatch that has its result
	// Usage is what all its dispatches used of their models, one for each currency.
	Usage []ModelUsage `json:"usage,omitempty"`
	// Of the latest dispatch.
	Progress *Progress `json:"progress,omitempty"` // the agent's last report
	Taint    *Taint    `json:"taint,omitempty"`    // it has text from outside
	// It runs and cannot connect to its model.
	Unreachable *Unreachable `json:"unreachable,omitempty"`
}

// RunEvents are the events of a run after a cursor.
type RunEvents struct {
	Events []RunEvent `json:"events"`
	Next   string     `json:"next"` // cursor after these events
	Done   bool       `json:"done"` // the run is settled and these are its last events
}

// RunEvent is a log entry about a run, one of its tasks, or a task's dispatch.
type RunEvent struct {
	Seq        uint64     `json:"seq"` // number of the entry
	At         time.Time  `json:"at"`
	Event      string     `json:"event"` // kind of the entry
	Task       TaskID     `json:"task,omitempty"`
	DispatchID DispatchID `json:"dispatchId,omitempty"`
	Attempt    int        `json:"attempt,omitempty"` // of the task
	Reason     Reason     `json:"reason,omitempty"`
	Cause      TaskID     `json:"cause,omitempty"`
	Tool       string     `json:"tool,omitempty"`  // of a tool call
	State      string     `json:"state,omitempty"` // of the run, once it is settled
	Text       string     `json:"text"`            // the entry as text
}

// RunCancel cancels a run, or one of its tasks.
type RunCancel struct {
	Task   TaskID `json:"task,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RunAnswer answers the question that a task waits with.
type RunAnswer struct {
	Task TaskID `json:"task"`
	// DispatchID and Attempt name the question, so that a late answer never goes to
	// another one; a retried task has a new dispatch. Absent: the current question.
	DispatchID DispatchID `json:"dispatchId,omitempty"`
	Text       string     `json:"text,omitempty"`
	Option     int        `json:"option,omitempty"` // number of the option, from 1; 0 for none
	Attempt    int        `json:"attempt,omitempty"`
}

// RunRetry submits the plan of a settled run again, possibly with changes. The new
// run reuses the tasks that are done and that no change reaches: neither
// they nor a task that they depend on is changed or named by From.
type RunRetry struct {
	RunID RunID  `json:"runId,omitempty"` // of the new run
	Key   string `json:"key,omitempty"`   // as of RunRequest
	// From names tasks that run again, with all that depend on them.
	From []TaskID `json:"from,omitempty"`
	// Sources are commits, branches or tags that replace those of the plan, for
	// every task that starts from the source; an empty one is HEAD.
	Sources []SourceRequest `json:"sources,omitempty"`
	// Inputs replace those of tasks.
	Inputs map[TaskID]json.RawMessage `json:"inputs,omitempty"`
}

// Queue is a queue of runs.
type Queue struct {
	Name    Name `json:"name"`
	Slots   int  `json:"slots"` // tasks that may run at once
	Running int  `json:"running"`
	Ready   int  `json:"ready"` // tasks that wait for a lock, a free slot or the end of a pause
	Runs    int  `json:"runs"`  // not settled
	// Weights say how many tasks of a principal start in one of its turns; 1 unless listed.
	Weights  map[Principal]int `json:"weights,omitempty"`
	PausedBy Principal         `json:"pausedBy,omitempty"`
	PausedAt *time.Time        `json:"pausedAt,omitempty"`
}
