package api

import (
	"fmt"
	"time"
)

// WaitingKind is why something waits for a person. The set grows.
type WaitingKind string

// The kinds.
const (
	WaitingQuestion WaitingKind = "question" // an agent asks
	WaitingApproval WaitingKind = "approval" // a call of an agent, or a task, needs an approval
	WaitingFailed   WaitingKind = "failed"   // a run failed and its owner has not looked at it
)

// Waiting is something that waits for a person.
type Waiting struct {
	Kind       WaitingKind       `json:"kind"`
	Since      time.Time         `json:"since"`
	Until      *time.Time        `json:"until,omitempty"` // when the question or the request expires, or its run is cancelled
	Principal  Principal         `json:"principal"`       // that the run or dispatch belongs to
	RunID      RunID             `json:"runId,omitempty"`
	Task       TaskID            `json:"task,omitempty"`
	DispatchID DispatchID        `json:"dispatchId,omitempty"` // that asks
	Attempt    int               `json:"attempt,omitempty"`    // of the dispatch
	Subagent   Name              `json:"subagent,omitempty"`
	Text       string            `json:"text,omitempty"` // the beginning of the question
	Approval   ApprovalID        `json:"approval,omitempty"`
	Electorate                   // of an approval
	Tool       string            `json:"tool,omitempty"`   // that the call is of
	Counts     map[TaskState]int `json:"counts,omitempty"` // of a failed run
}

// Commands are the command lines by which a person deals with w, and, of an approval,
// approves it. The question is that of w, or nil if it was answered meanwhile.
func (w *Waiting) Commands(q *Question) (command, approve string) {
	switch {
	case w.Kind == WaitingApproval:
		return fmt.Sprintf("bailiwick approval show %s", w.Approval), fmt.Sprintf("bailiwick approval approve %s", w.Approval)
	case w.Kind != WaitingQuestion:
		return fmt.Sprintf("bailiwick run show %s", w.RunID), ""
	case w.RunID != "":
		return fmt.Sprintf("bailiwick run answer %s --task %s --attempt %d %s", w.RunID, w.Task, w.Attempt, q.AnswerForm()), ""
	}
	return fmt.Sprintf("bailiwick dispatch answer %s --attempt %d %s", w.DispatchID, w.Attempt, q.AnswerForm()), ""
}
