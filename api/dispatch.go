package api

import (
	"encoding/json"
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
	ID         DispatchID     `json:"dispatchId"`
	State      Event          `json:"state"`
	Reason     Reason         `json:"reason,omitempty"`
	Message    string         `json:"message,omitempty"` // the reason in words
	Attempt    int            `json:"attempt"`
	Principal  Principal      `json:"principal"`
	Subagent   Name           `json:"subagent"`
	Role       Name           `json:"role"`
	Tier       Tier           `json:"tier"`
	Target     Name           `json:"target"`
	Source     *PinnedSource  `json:"source,omitempty"`
	Revision   uint64         `json:"revision"` // of the catalog
	Manifest   Digest         `json:"manifest"`
	Result     Digest         `json:"result,omitempty"` // of the signed result document, once there is one
	AcceptedAt time.Time      `json:"acceptedAt"`
	StartedAt  *time.Time     `json:"startedAt,omitempty"`
	EndedAt    *time.Time     `json:"endedAt,omitempty"`
	CancelBy   Principal      `json:"cancelledBy,omitempty"`
	Outcome    *ResultSummary `json:"outcome,omitempty"`
	Mode       string         `json:"mode"` // same-user or system: who is protected against whom
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
	LogBytes  int64           `json:"logBytes"`           // written by the jail, of which LogKept are stored
	LogKept   int64           `json:"logKept"`
	LogDigest Digest          `json:"logDigest,omitempty"`
	Usage     Usage           `json:"usage"`
}

// Artifact is captured content.
type Artifact struct {
	Path   string `json:"path,omitempty"` // below outputs/; empty for the patch
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
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Usage is what the agent consumed.
type Usage struct {
	WallSeconds float64 `json:"wallSeconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	MaxMemory   Bytes   `json:"maxMemory,omitempty"`
}
