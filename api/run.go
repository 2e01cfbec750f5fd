package api

import (
	"encoding/json"
	"time"
)

// RunRequest submits a plan. Submitting the same plan under the same id again
// gives the same run.
type RunRequest struct {
	Plan  json.RawMessage `json:"plan"`            // a Plan
	RunID RunID           `json:"runId,omitempty"` // the plan's own, or one that the service makes, when absent
}

// RunState is where a run is. It follows from its tasks. The set is closed.
type RunState string

// The states of a run. The last three are final.
const (
	RunRunning   RunState = "running"
	RunWaiting   RunState = "waiting" // nothing moves until somebody answers
	RunPaused    RunState = "paused"  // it, or its queue: nothing new is started
	RunDone      RunState = "done"    // every task is done
	RunFailed    RunState = "failed"  // a task is failed, denied, or cancelled by itself
	RunCancelled RunState = "cancelled"
)

// RunStates lists them all.
func RunStates() []RunState {
	return []RunState{RunRunning, RunWaiting, RunPaused, RunDone, RunFailed, RunCancelled}
}

// Settled reports whether nothing will ever follow.
func (s RunState) Settled() bool { return s == RunDone || s == RunFailed || s == RunCancelled }

// TaskState is where a task is. The set is closed; internal/plan says what
// follows what.
type TaskState string

// The states of a task. The last five are final.
const (
	TaskPending   TaskState = "pending" // what it depends on has not ended
	TaskReady     TaskState = "ready"   // waits for its locks or a free slot
	TaskRunning   TaskState = "running"
	TaskWaiting   TaskState = "waiting" // for an answer, or for the time of its next attempt
	TaskDone      TaskState = "done"
	TaskFailed    TaskState = "failed"
	TaskSkipped   TaskState = "skipped" // something that it depends on is not done
	TaskCancelled TaskState = "cancelled"
	TaskDenied    TaskState = "denied" // policy refused it
)

// TaskStates lists them all.
func TaskStates() []TaskState {
	return []TaskState{TaskPending, TaskReady, TaskRunning, TaskWaiting, TaskDone, TaskFailed, TaskSkipped, TaskCancelled, TaskDenied}
}

// Settled reports whether nothing follows.
func (s TaskState) Settled() bool {
	switch s {
	case TaskDone, TaskFailed, TaskSkipped, TaskCancelled, TaskDenied:
		return true
	case TaskPending, TaskReady, TaskRunning, TaskWaiting:
	}
	return false
}

// Run is what a plan became.
type Run struct {
	RunID        RunID             `json:"runId"`
	State        RunState          `json:"state"`
	Queue        Name              `json:"queue"`
	Principal    Principal         `json:"principal"`
	Plan         Digest            `json:"plan"`     // of its canonical form
	Revision     uint64            `json:"revision"` // of the catalog; every name means what it meant there
	SubmittedAt  time.Time         `json:"submittedAt"`
	SettledAt    *time.Time        `json:"settledAt,omitempty"`
	Sealed       bool              `json:"sealed,omitempty"`   // a signed checkpoint of the log covers its end; in none but a run that is asked for by itself
	Deadline     *time.Time        `json:"deadline,omitempty"` // when it is cancelled, if it is not settled
	RetryOf      RunID             `json:"retryOf,omitempty"`  // the run whose finished tasks it took over
	CancelBy     Principal         `json:"cancelledBy,omitempty"`
	CancelReason string            `json:"cancelReason,omitempty"`
	Counts       map[TaskState]int `json:"counts"`
	Total        int               `json:"total"`
	Tasks        []RunTask         `json:"tasks"`          // a page of them, in the order of the plan; none in lists
	Next         string            `json:"next,omitempty"` // cursor of the next page; absent: this was the last
}

// RunTask is a task of a run.
type RunTask struct {
	Task       TaskID     `json:"task"`
	State      TaskState  `json:"state"`
	Subagent   Name       `json:"subagent"`
	After      []TaskID   `json:"after,omitempty"`      // what it depends on
	Reason     Reason     `json:"reason,omitempty"`     // of a failure, also of the last attempt of a task that is tried again
	Message    string     `json:"message,omitempty"`    // the same in words; of a question: its text
	Cause      TaskID     `json:"cause,omitempty"`      // of a task that was skipped: the one that is not done
	DispatchID DispatchID `json:"dispatchId,omitempty"` // of the latest attempt
	Attempt    int        `json:"attempt,omitempty"`    // 0: it was never started
	Attempts   int        `json:"attempts"`             // how many it has at most
	Asks       bool       `json:"asks,omitempty"`       // it waits for an answer; bailiwick dispatch show says the question
	NotBefore  *time.Time `json:"notBefore,omitempty"`  // of the next attempt
	CancelBy   Principal  `json:"cancelledBy,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"` // of the latest attempt
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	Blocked    string     `json:"blocked,omitempty"`   // of a ready task, in words: what it waits for
	TakenOver  bool       `json:"takenOver,omitempty"` // done in the run that this one retries
}

// RunEvents are the events of a run behind a cursor.
type RunEvents struct {
	Events []RunEvent `json:"events"`
	Next   string     `json:"next"` // cursor: what comes after these
	Done   bool       `json:"done"` // the run is settled and there are no more
}

// RunEvent is a step in the life of a run, of one of its tasks, or of a task's
// dispatch. It is an entry of the log.
type RunEvent struct {
	Seq        uint64     `json:"seq"` // number of the entry
	At         time.Time  `json:"at"`
	Event      string     `json:"event"` // the entry's kind
	Task       TaskID     `json:"task,omitempty"`
	DispatchID DispatchID `json:"dispatchId,omitempty"`
	Attempt    int        `json:"attempt,omitempty"` // of the task
	Reason     Reason     `json:"reason,omitempty"`
	Cause      TaskID     `json:"cause,omitempty"`
	State      string     `json:"state,omitempty"` // of the run, once it is settled
	Text       string     `json:"text"`            // the entry in plain words
}

// RunCancel ends a run, or one task of it.
type RunCancel struct {
	Task   TaskID `json:"task,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RunAnswer answers the question that a task waits with.
type RunAnswer struct {
	Task TaskID `json:"task"`
	// DispatchID and Attempt say whose question is answered: an answer that comes
	// late never goes to another one. A task that is tried again has another
	// dispatch. Absent, it is the one that waits.
	DispatchID DispatchID `json:"dispatchId,omitempty"`
	Text       string     `json:"text,omitempty"`
	Option     int        `json:"option,omitempty"` // number of the option, from 1; 0 for none
	Attempt    int        `json:"attempt,omitempty"`
}

// RunRetry submits the plan of a settled run again. What was done there is
// taken over, everything else runs.
type RunRetry struct {
	RunID RunID `json:"runId,omitempty"` // of the new run
}

// Queue is where runs wait for a free slot.
type Queue struct {
	Name     Name       `json:"name"`
	Slots    int        `json:"slots"` // tasks that may run at once
	Running  int        `json:"running"`
	Ready    int        `json:"ready"` // tasks that could run but for a lock, a free slot or a pause
	Runs     int        `json:"runs"`  // that are not settled
	PausedBy Principal  `json:"pausedBy,omitempty"`
	PausedAt *time.Time `json:"pausedAt,omitempty"`
}
