package api

import (
	"encoding/json"
	"time"
)

// RunRequest submits a plan.
type RunRequest struct {
	Plan  json.RawMessage `json:"plan"` // a JSON object
	RunID string          `json:"runId,omitempty"`
}

// Run is what a plan became.
type Run struct {
	RunID string    `json:"runId"`
	State string    `json:"state,omitempty"`
	Tasks []RunTask `json:"tasks"`
}

// RunTask is a task of a run.
type RunTask struct {
	Name       string     `json:"name"`
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	DispatchID DispatchID `json:"dispatchId,omitempty"`
}

// RunEvents are the events of a run behind a cursor.
type RunEvents struct {
	Events []RunEvent `json:"events"`
	Next   string     `json:"next"`
	Done   bool       `json:"done"`
}

// RunEvent is a step in the life of a run.
type RunEvent struct {
	At    time.Time `json:"at"`
	Task  string    `json:"task,omitempty"`
	State string    `json:"state"`
}
