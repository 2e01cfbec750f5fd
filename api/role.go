package api

import "encoding/json"

// RoleTools is everything that a role may call, sorted by the name that agents call
// it by. No call returns a tool without a role (R-G1).
type RoleTools struct {
	Role     Name       `json:"role"`
	Revision uint64     `json:"revision"`
	Tools    []RoleTool `json:"tools"`
}

// RoleTool is a tool of a role, as people see it: metadata without the address,
// command or credential of its server.
type RoleTool struct {
	Tool        string        `json:"tool"` // SERVER/TOOL, or the name of a declared command, ask or report
	Name        string        `json:"name"` // by which agents call it
	Server      Name          `json:"server,omitempty"`
	Tier        Tier          `json:"tier"`
	Approval    *ToolApproval `json:"approval,omitempty"`  // absent: only a tainted dispatch needs one
	Approvers   int           `json:"approvers,omitempty"` // different people, where a call needs an approval
	Tainted     TaintRule     `json:"tainted,omitempty"`   // of a tool at stateful and above
	Trusted     bool          `json:"trusted,omitempty"`   // a call does not taint the dispatch
	Title       string        `json:"title,omitempty"`
	Description string        `json:"description,omitempty"` // as its server wrote it, pinned
	Definition  Digest        `json:"definition"`            // of the canonical ToolDefinition
	// The schemas, where they were requested.
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
}

// CanCallRequest queries the decision about a call of a tool without making it.
type CanCallRequest struct {
	Role Name   `json:"role"`
	Tool string `json:"tool"` // its ID; see Tool
	// Principal is whose dispatch it is. Empty: the caller's, or for an operator who
	// may dispatch nothing in the role, one with every ceiling.
	Principal Principal `json:"principal,omitempty"`
	Subagent  Name      `json:"subagent,omitempty"` // empty: each of the role
	Target    Name      `json:"target,omitempty"`   // empty: the subagent's own
	Tainted   bool      `json:"tainted,omitempty"`  // the dispatch has text from outside
}

// CanCallAnswer is the decision about a CanCallRequest, for each subagent of the role.
type CanCallAnswer struct {
	Revision uint64        `json:"revision"`
	Answers  []CanCallCase `json:"answers"` // sorted by subagent, at least one
}

// CanCallCase is the decision about a call by one subagent.
type CanCallCase struct {
	Subagent  Name      `json:"subagent"`
	Target    Name      `json:"target"`
	Principal Principal `json:"principal,omitempty"` // empty: of any, with every ceiling
	Ceiling   Tier      `json:"ceiling"`             // that a dispatch would have
	Decision  string    `json:"decision"`            // allow, deny or approval
	Approvers int       `json:"approvers,omitempty"` // different people who approve each call
	Policies  []string  `json:"policies,omitempty"`  // that decided
	Reasons   []string  `json:"reasons,omitempty"`
}

// The decisions of a CanCallCase.
const (
	CallAllowed       = "allow"
	CallDenied        = "deny"
	CallNeedsApproval = "approval" // allowed once people have approved it
)
