package api

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// ToolServer is a registered upstream of tools: an MCP server, or a declared command.
// Exactly one of Stdio, HTTP and Run is set. What an agent may call of it follows from
// Allow and its role; see Tool.
type ToolServer struct {
	Name        Name         `json:"name"`
	Description string       `json:"description,omitempty"`
	Stdio       *StdioServer `json:"stdio,omitempty"`
	HTTP        *HTTPServer  `json:"http,omitempty"`
	Run         *ToolCommand `json:"run,omitempty"`
	Session     ToolSession  `json:"session,omitempty"` // of Stdio and HTTP; dispatch when absent
	// Trusted says that what it returns is not text from outside. A dispatch that calls
	// a server which is not trusted is tainted.
	Trusted bool        `json:"trusted,omitempty"`
	Allow   []ToolAllow `json:"allow"` // sorted by tool; of a command one, whose tool is empty
	// Definitions are those of the tools of Allow, sorted by name, as they were when the
	// catalog was planned. Their digest is the pin; see catalog.PinOf. A tool that its
	// server defines otherwise is closed.
	Definitions []ToolDefinition `json:"definitions"`
	Timeout     Duration         `json:"timeout,omitempty"`  // of one call; DefaultToolTimeout when absent
	Parallel    int              `json:"parallel,omitempty"` // calls at once; DefaultToolParallel when absent
}

// Host returns the jail of a server; nil if it has none.
func (s ToolServer) Host() *ToolHost {
	switch {
	case s.Stdio != nil:
		return &s.Stdio.ToolHost
	case s.Run != nil:
		return &s.Run.ToolHost
	}
	return nil
}

// SecretNames lists the secrets whose values a server needs, sorted.
func (s ToolServer) SecretNames() []Name {
	var names []Name
	if host := s.Host(); host != nil {
		names = slices.Collect(maps.Values(host.Secrets))
	}
	if h := s.HTTP; h != nil && h.Header != nil {
		names = append(names, h.Header.Secret)
	}
	if h := s.HTTP; h != nil && h.OAuth != nil {
		names = append(names, h.OAuth.Secret)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// StdioServer is a program that speaks MCP on its standard streams, in a jail of its
// own.
type StdioServer struct {
	Command Command `json:"command"`
	ToolHost
}

// ToolCommand is a program that answers one call: the arguments are JSON on its standard
// input, and the answer is its standard output. Each call has a jail of its own.
type ToolCommand struct {
	Command Command `json:"command"`
	ToolHost
}

// ToolHost is the jail of a server or declared command.
type ToolHost struct {
	Capability Name              `json:"capability,omitempty"` // its files, in the working directory
	Env        map[string]string `json:"env,omitempty"`
	Secrets    map[string]Name   `json:"secrets,omitempty"`  // by variable, whose value the program sees
	ReadOnly   []string          `json:"readOnly,omitempty"` // as of a target
	Path       []string          `json:"path,omitempty"`     // likewise
	Egress     []string          `json:"egress,omitempty"`   // HOST:PORT or *.HOST:PORT, through the proxy variables
	// Connect lists, by port of 127.0.0.1 in the jail, what a connection reaches: the
	// IP:PORT of any address, or unix:PATH. A human signed it.
	Connect map[int]string `json:"connect,omitempty"`
	Limits  Limits         `json:"limits,omitzero"` // memory, processes, disk, files and cpu of the jail
}

// HTTPServer is an MCP server over streamable HTTP.
type HTTPServer struct {
	// URL is https://HOST[:PORT]/PATH, or http://IP:PORT/PATH of this machine.
	URL string `json:"url"`
	// Address is the IP:PORT to dial instead of the addresses of the host, which must be
	// public. It may be any address.
	Address string      `json:"address,omitempty"`
	Header  *Credential `json:"credential,omitempty"`
	OAuth   *OAuthGrant `json:"oauth,omitempty"`
}

// OAuthGrant gets access tokens with client credentials (RFC 6749, section 4.4).
type OAuthGrant struct {
	TokenURL string   `json:"tokenURL"` // https
	ClientID string   `json:"clientID"`
	Secret   Name     `json:"secret"`
	Scopes   []string `json:"scopes,omitempty"`
}

// ToolSession says how dispatches share an upstream.
type ToolSession string

// The sessions.
const (
	SessionDispatch ToolSession = "dispatch" // one for each dispatch
	SessionShared   ToolSession = "shared"   // one for all: the server keeps no state
)

// Defaults of a ToolServer.
const (
	DefaultToolTimeout  = Duration(2 * time.Minute)
	DefaultToolParallel = 8
)

// ToolAllow lets roles call one tool of a server.
type ToolAllow struct {
	Tool     string        `json:"tool,omitempty"` // of the server; empty for a declared command
	Roles    []Name        `json:"roles"`          // sorted, at least one
	Tier     Tier          `json:"tier"`
	Approval *ToolApproval `json:"approval,omitempty"` // nil: only a tainted dispatch needs one
	Tainted  TaintRule     `json:"tainted,omitempty"`
}

// AsksPeople reports whether people approve each call, whatever its dispatch has read. It is
// the one reading of this rule, by the service, the tool host and the verifier.
func (a ToolAllow) AsksPeople() bool { return a.Approval != nil }

// ToolApproval says that people approve each call.
type ToolApproval struct {
	Wait    Duration `json:"wait,omitempty"`    // how long a call waits for them; DefaultApprovalWait when absent
	Expires Duration `json:"expires,omitempty"` // when the request is denied; DefaultApprovalExpiry when absent
}

// Defaults of a ToolApproval.
const (
	DefaultApprovalWait   = Duration(45 * time.Second)
	DefaultApprovalExpiry = Duration(24 * time.Hour)
)

// TaintRule says what a tainted dispatch may do at tier stateful and above.
type TaintRule string

// The rules.
const (
	TaintedAsk    TaintRule = "ask"    // with an approval; the default
	TaintedForbid TaintRule = "forbid" // nothing
)

// ToolDefinition is what an upstream says about a tool, in canonical form.
type ToolDefinition struct {
	Name         string          `json:"name"` // empty for a declared command
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	// TaskOnly says that the server runs the tool as a task of MCP only, which the gateway
	// does not do. A plan refuses such a tool, so it is in no catalog.
	TaskOnly bool `json:"-"`
}

// Tool is a tool in the hands of one role. Only catalog.ToolsOf makes one: no tool is
// without a role (R-G1).
type Tool struct {
	ID     string // SERVER/TOOL, or the name of a declared command, ask or report
	Name   string // by which agents call it: SERVER_TOOL, or as ID
	Role   Name
	Server Name // empty for ask and report
	ToolAllow
	Trusted    bool
	Definition ToolDefinition
}

// The tools of Bailiwick itself, which every role has.
const (
	ToolAsk    = "ask"    // a question to a human, which ends the attempt
	ToolReport = "report" // a line of progress
)

// MaxToolCalls is the limit calls of a subagent that has none.
const MaxToolCalls = 10_000

// Bounds of a tool call, in bytes.
const (
	MaxToolArguments = 256 << 10
	MaxToolAnswer    = 1 << 20
	MaxReport        = 1 << 10
)

// Taint says which call first gave a dispatch text from outside. Nothing removes it.
type Taint struct {
	Dispatch DispatchID `json:"dispatch"` // this one, or one whose products it has
	Attempt  int        `json:"attempt"`
	Call     int64      `json:"call"`
	Tool     string     `json:"tool"`
}

// Progress is the last report of an agent.
type Progress struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"` // in the agent's words
}

// ToolCalls counts the tool calls of an attempt.
type ToolCalls struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied,omitempty"`
	// Record has one ToolCallLine a line, of an attempt that has ended.
	Record *Artifact `json:"record,omitempty"`
}

// ToolCallLine is the record of one call, as callers see it.
type ToolCallLine struct {
	Attempt   int             `json:"attempt"`
	Number    int64           `json:"number"` // in its attempt, from 1
	At        time.Time       `json:"at"`
	Tool      string          `json:"tool"`
	Tier      Tier            `json:"tier"`
	Decision  string          `json:"decision"` // allow or deny
	Reasons   []string        `json:"reasons,omitempty"`
	Policies  []string        `json:"policies,omitempty"`
	Approval  ApprovalID      `json:"approval,omitempty"`
	State     string          `json:"state"` // running, returned, unknown or denied
	Error     string          `json:"error,omitempty"`
	Millis    int64           `json:"millis,omitempty"`
	Entry     uint64          `json:"auditEntry"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // absent once retention removed them
	Answer    json.RawMessage `json:"answer,omitempty"`    // an MCP CallToolResult; likewise
}
