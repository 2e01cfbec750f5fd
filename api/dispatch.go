package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is a step in the life of a dispatch. The set is closed (R-D3).
type Event string

// The six lifecycle events.
const (
	EventAccepted   Event = "accepted"
	EventStarted    Event = "started"
	EventFinished   Event = "finished"
	EventNeedsInput Event = "needs_input"
	EventFailed     Event = "failed"
	EventCancelled  Event = "cancelled"
)

// Events lists them all.
func Events() []Event {
	return []Event{EventAccepted, EventStarted, EventFinished, EventNeedsInput, EventFailed, EventCancelled}
}

// Ended reports whether nothing follows e in the same attempt.
func (e Event) Ended() bool { return e != EventAccepted && e != EventStarted }

// Reason says why a dispatch failed. The set is closed (R-D3).
type Reason string

// The failure reasons.
const (
	ReasonDenied    Reason = "denied"    // policy refused it
	ReasonIntegrity Reason = "integrity" // a signature, digest, expiry or revision was wrong
	ReasonFetch     Reason = "fetch"     // the source could not be had
	ReasonSetup     Reason = "setup"     // a setup script failed, or the jail could not be built
	ReasonContext   Reason = "context"   // a requirement was not met
	ReasonAgent     Reason = "agent"     // the agent ended with an error
	ReasonVerify    Reason = "verify"    // the verify command was red; the patch is kept
	ReasonOutput    Reason = "output"    // the result does not fit the output schema, or could not be captured
	ReasonTimeout   Reason = "timeout"   // the agent's time was over
	ReasonLimit     Reason = "limit"     // a resource limit ended it
	ReasonLost      Reason = "lost"      // the worker died without a result
)

// Reasons lists them all.
func Reasons() []Reason {
	return []Reason{
		ReasonDenied, ReasonIntegrity, ReasonFetch, ReasonSetup, ReasonContext, ReasonAgent,
		ReasonVerify, ReasonOutput, ReasonTimeout, ReasonLimit, ReasonLost,
	}
}

// DispatchRequest asks for one execution of a subagent. It names things; it
// carries no authority (R-B7). Unknown fields are refused by name.
type DispatchRequest struct {
	Subagent       Name            `json:"subagent"`
	Input          json.RawMessage `json:"input,omitempty"` // a JSON object; {} when absent
	Target         Name            `json:"target,omitempty"`
	Envs           []Name          `json:"env,omitempty"`
	Capabilities   []Name          `json:"capabilities,omitempty"` // beyond the subagent's own, laid over after them
	Source         *SourceRequest  `json:"source,omitempty"`
	TimeoutSeconds int             `json:"timeoutSeconds,omitempty"` // may shorten the subagent's limit, never lengthen it
	DispatchID     DispatchID      `json:"dispatchId,omitempty"`
}

// SourceRequest names where the workspace starts.
type SourceRequest struct {
	Name   Name   `json:"name"`
	Commit string `json:"commit,omitempty"` // a commit, branch or tag of the source; HEAD when absent
}

// Dispatch is the record of one dispatch, as callers see it.
type Dispatch struct {
	ID           DispatchID     `json:"dispatchId"`
	State        Event          `json:"state"`
	Reason       Reason         `json:"reason,omitempty"`
	Message      string         `json:"message,omitempty"` // the reason in words
	Attempt      int            `json:"attempt"`
	Principal    Principal      `json:"principal"`
	Run          RunID          `json:"run,omitempty"`  // it is a task's of this run
	Task         TaskID         `json:"task,omitempty"` //
	Subagent     Name           `json:"subagent"`
	Role         Name           `json:"role"`
	Tier         Tier           `json:"tier"`
	Target       Name           `json:"target"`
	Source       *PinnedSource  `json:"source,omitempty"`
	Revision     uint64         `json:"revision"` // of the catalog
	Manifest     Digest         `json:"manifest"`
	Input        Digest         `json:"input,omitempty"`     // of the canonical input
	Result       Digest         `json:"result,omitempty"`    // of the signed result document, once there is one
	Statement    Digest         `json:"statement,omitempty"` // of the signed statement about it, soon after it has ended
	AcceptedAt   time.Time      `json:"acceptedAt"`
	StartedAt    *time.Time     `json:"startedAt,omitempty"`
	EndedAt      *time.Time     `json:"endedAt,omitempty"`
	CancelBy     Principal      `json:"cancelledBy,omitempty"`
	CancelReason string         `json:"cancelReason,omitempty"` // in the words of CancelBy
	Outcome      *ResultSummary `json:"outcome,omitempty"`
	Mode         string         `json:"mode"`            // same-user or system: who is protected against whom
	Trace        Trace          `json:"trace,omitempty"` // the span of the request that asked for it

	// Question is what an attempt that ended with needs_input asks. It is there
	// where one dispatch is described, not in lists.
	Question  *Question  `json:"question,omitempty"`
	ResumedAt *time.Time `json:"resumedAt,omitempty"` // when the current attempt was admitted, if it is not the first
	AnswerBy  *time.Time `json:"answerBy,omitempty"`  // when a question that waits is given up
	Answer    *Answer    `json:"answer,omitempty"`    // to the question of this attempt, of an earlier attempt
	Attempts  []Attempt  `json:"attempts,omitempty"`  // the earlier ones, oldest first; not in lists
	Pinned    *Pin       `json:"pinned,omitempty"`    // not in lists
	Removed   []Removal  `json:"removed,omitempty"`   // what is not stored any more; not in lists
}

// Question is what an agent asks, to go on when somebody has answered (R-D6).
// The agent writes it to .bailiwick/question.json, at most
// MaxQuestion bytes.
type Question struct {
	Question string          `json:"question"`
	Options  []string        `json:"options,omitempty"` // to choose from; another answer may be given too
	Context  json.RawMessage `json:"context,omitempty"` // whatever helps who answers
	State    json.RawMessage `json:"state,omitempty"`   // whatever the agent wants back with the answer
}

// MaxQuestion bounds a question with its context and state, and MaxAnswer an
// answer, in bytes.
const (
	MaxQuestion = 1 << 20
	MaxAnswer   = 64 << 10
)

// Check refuses a question that cannot be put to anyone.
func (q *Question) Check() error {
	if strings.TrimSpace(q.Question) == "" {
		return errors.New("question: the member \"question\" is missing or empty")
	}
	if len(q.Options) > 100 {
		return fmt.Errorf("question: %d options, more than 100", len(q.Options))
	}
	for i, o := range q.Options {
		if strings.TrimSpace(o) == "" || slices.Contains(q.Options[:i], o) {
			return fmt.Errorf("question: option %d is empty or there twice", i+1)
		}
	}
	return nil
}

// AnswerRequest answers the question of a dispatch: with a text, or with one
// of its options.
type AnswerRequest struct {
	Text   string `json:"text,omitempty"`
	Option int    `json:"option,omitempty"` // number of the option, from 1; 0 for none
	// Attempt is the one whose question is answered: an answer that comes late
	// never goes to another question, and the same one again changes nothing.
	// 0 is the current one.
	Attempt int `json:"attempt,omitempty"`
}

// Answer is an answer that was given.
type Answer struct {
	Text   string    `json:"text"`
	Option int       `json:"option,omitempty"` // its number, from 1, where it is one of the options
	By     Principal `json:"by"`
	At     time.Time `json:"at"`
	Digest Digest    `json:"digest,omitempty"` // of the document that the next attempt was given
}

// Since is when the current attempt was admitted.
func (d *Dispatch) Since() time.Time {
	if d.ResumedAt != nil {
		return *d.ResumedAt
	}
	return d.AcceptedAt
}

// Attempt is an earlier attempt of a dispatch in short.
type Attempt struct {
	Attempt  int        `json:"attempt"`
	State    Event      `json:"state"`
	Message  string     `json:"message,omitempty"` // of a question: its text
	Manifest Digest     `json:"manifest"`
	Result   Digest     `json:"result,omitempty"`
	EndedAt  *time.Time `json:"endedAt,omitempty"`
	Answer   *Answer    `json:"answer,omitempty"`
}

// PinnedSource is a source at one commit.
type PinnedSource struct {
	Name   Name   `json:"name"`
	Commit string `json:"commit"` // full object name
}

// ResultSummary is what a worker brought back.
type ResultSummary struct {
	Captured  bool            `json:"captured,omitempty"` // the workspace was compared with its baseline
	Partial   bool            `json:"partial,omitempty"`  // captured before the work was complete
	Patch     *Artifact       `json:"patch,omitempty"`
	Files     []FileChange    `json:"files,omitempty"` // what the patch changes, at most 1,000 of them
	Outputs   []Artifact      `json:"outputs,omitempty"`
	LeftOut   []LeftOut       `json:"leftOut,omitempty"` // what was in the workspace and is not in patch or outputs, and why
	Verify    *VerifyReport   `json:"verify,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"` // outputs/result.json where the subagent has an output schema
	Isolation Isolation       `json:"isolation"`
	Steps     []Step          `json:"steps,omitempty"`
	ExitCode  *int            `json:"exitCode,omitempty"` // of the agent
	Question  *Artifact       `json:"question,omitempty"` // what the agent asks, where it ended with a question
	LogBytes  int64           `json:"logBytes"`           // written by the jail, of which LogKept are stored
	LogKept   int64           `json:"logKept"`
	Log       []LogPart       `json:"log,omitempty"` // what is kept, in order: the beginning and the end
	Usage     Usage           `json:"usage"`
}

// Artifact is captured content.
type Artifact struct {
	Path   string `json:"path,omitempty"` // below outputs/; empty for the patch
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// LogPart is a piece of the log that is kept.
type LogPart struct {
	Offset int64  `json:"offset"` // of its first byte in all that was written
	Size   int64  `json:"size"`
	Digest Digest `json:"digest"`
}

// FileChange is one path that a patch touches.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, modified, deleted, type
}

// LeftOut is something that capture refused to take.
type LeftOut struct {
	Path string `json:"path"` // escaped as Go escapes a string when it is not plain text
	Why  string `json:"why"`
}

// VerifyReport is what the verify command said.
type VerifyReport struct {
	Passed     bool    `json:"passed"`
	ExitCode   int     `json:"exitCode"`
	Seconds    float64 `json:"seconds"`
	ReportOnly bool    `json:"reportOnly,omitempty"`
	Message    string  `json:"message,omitempty"` // why it could not run, or how it ended when not by exit
}

// Isolation says which layers were active.
type Isolation struct {
	Level  string   `json:"level"`
	Layers []string `json:"layers"`
	Limits []string `json:"limits"` // how each limit was held: "memory: cgroup v1", "processes: rlimit per process"
}

// Step is one part of the worker's work with its duration.
type Step struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at,omitzero"` // when it began
	Seconds float64   `json:"seconds"`
}

// Usage is what the agent consumed.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	MaxMemory   Bytes   `json:"maxMemory,omitempty"`
}
