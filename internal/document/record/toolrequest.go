package record

import (
	"encoding/json"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Bounds of lines, in bytes: MaxToolReply has an answer or an offer.
const (
	MaxToolRequest = 2 << 20
	MaxToolReply   = 8 << 20
)

// ToolRequest is what the service asks a tool host. A session is one with the server; of a
// server that runs in a jail there is one.
type ToolRequest struct {
	ID      int64    `json:"id"` // from 1, counting up
	Verb    ToolVerb `json:"verb"`
	Session int64    `json:"session,omitempty"` // from 1; the service chooses it
	Call    *ToolUse `json:"call,omitempty"`
	Of      int64    `json:"of,omitempty"` // the call that a cancel ends
	// Records are envelopes of the operators' decisions, which follow those given before.
	Records [][]byte `json:"records,omitempty"`
}

// ToolVerb says what a ToolRequest is.
type ToolVerb string

// The verbs. A cancel and a close have no reply of their own.
const (
	ToolVerbOpen    ToolVerb = "open"    // a session
	ToolVerbList    ToolVerb = "list"    // the definitions of the server's tools
	ToolVerbCall    ToolVerb = "call"    // a tool, or the declared command, which needs no session
	ToolVerbCancel  ToolVerb = "cancel"  // a call
	ToolVerbClose   ToolVerb = "close"   // a session
	ToolVerbRecords ToolVerb = "records" // decisions of operators
)

// ToolUse is one call of a tool.
type ToolUse struct {
	Tool      string          `json:"tool,omitempty"` // of the server; empty for a declared command
	Arguments json.RawMessage `json:"arguments"`      // canonical
	Progress  bool            `json:"progress,omitempty"`
	Dispatch  api.DispatchID  `json:"dispatch,omitempty"`
	// Approved is what people approved; nil: nothing. Their votes are among the records.
	Approved *api.ToolAction `json:"approved,omitempty"`
}

// ToolReply is what a tool host answers to a request, or says by itself about a session:
// that its tools have changed, or that it has ended. Secrets are redacted.
type ToolReply struct {
	ID       int64           `json:"id,omitempty"`
	Session  int64           `json:"session,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"` // to a call: an MCP CallToolResult
	IsError  bool            `json:"isError,omitempty"`
	Offer    *ToolOffer      `json:"offer,omitempty"`    // to a list
	Fault    *ToolFault      `json:"fault,omitempty"`    // why a request has no other answer
	Progress *string         `json:"progress,omitempty"` // of a call
	Changed  bool            `json:"changed,omitempty"`
	Ended    *ToolFault      `json:"ended,omitempty"`
}

// ToolOffer is what a server has.
type ToolOffer struct {
	Tools    []api.ToolDefinition `json:"tools"`              // in canonical form, sorted by name
	TaskOnly []string             `json:"taskOnly,omitempty"` // those that run as tasks of MCP only
	Unused   []string             `json:"unused,omitempty"`   // what no agent gets, such as resources
}

// ToolFault says what went wrong.
type ToolFault struct {
	Kind ToolFaultKind `json:"kind"`
	Text string        `json:"text"`           // for a person; may quote the server
	Said string        `json:"said,omitempty"` // the end of the server's standard error
	// Reason is what is wrong with an invalid answer or a refused call, without text from the
	// server.
	Reason string `json:"reason,omitempty"`
}

// ToolFaultKind says what a fault means for its call.
type ToolFaultKind string

// The kinds.
const (
	ToolFaultUnsent     ToolFaultKind = "unsent"     // the call did not reach the server
	ToolFaultCredential ToolFaultKind = "credential" // likewise: the server refuses the credential
	ToolFaultInvalid    ToolFaultKind = "invalid"    // the answer is invalid; the call may have had its effect
	ToolFaultEnded      ToolFaultKind = "ended"      // the session has ended
	ToolFaultBroke      ToolFaultKind = "broke"      // likewise: the server broke the protocol or a bound
	ToolFaultRefused    ToolFaultKind = "refused"    // the tool host did not send the call: people have not approved it
	ToolFaultBehind     ToolFaultKind = "behind"     // likewise: the tool host was given too few records
	ToolFaultFailed     ToolFaultKind = "failed"     // anything else
)
