// Package toolcall calls tools of registered servers: MCP servers in jails of their own
// or over streamable HTTP, and declared commands.
//
// A tool host, bailiwick-toolhost, has the server and its credential, which comes from the
// secret store and never from an agent; this package starts it and asks it for calls. It
// decides nothing: internal/tool/gateway has decided and logged a call before
// it comes here. What a server says is hostile: each part has a bound, definitions are
// compared with their pins, and the tool host refuses its own requests.
//
// Carries R-G5 and R-G7.
package toolcall

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Owner is whose session a call uses. For a server with shared sessions only Server and
// Revision count.
type Owner struct {
	Server   api.Name
	Revision Revision // that the dispatch is pinned to
	Dispatch api.DispatchID
}

// Revision has a server, its capability and its secrets; a *catalog.Revision is one.
type Revision interface {
	ToolServer(name api.Name) (api.ToolServer, api.Digest, error)
	Capability(name api.Name) (api.Capability, api.Digest, error)
	Secret(name api.Name) (api.Secret, api.Digest, error)
	Digest() api.Digest
}

// Call is one call of a tool. The arguments are canonical.
type Call struct {
	Owner     Owner
	Tool      string // of the server; empty for a declared command
	Arguments json.RawMessage
	Progress  func(text string) // of the server; nil: none
	Approved  *api.ToolAction   // by people; nil: nothing
}

// Answer is what a call returned: a canonical MCP CallToolResult.
type Answer struct {
	Result  json.RawMessage
	IsError bool // the tool says that it failed
}

// Fault says why a call has no answer, in words for the agent. The gateway adds whether
// it had an effect.
type Fault struct {
	Message string
	// Unsent says that the call did not reach the server, so it had no effect.
	Unsent bool
}

func (f *Fault) Error() string { return f.Message }

// Caller calls tools. *Pool is one.
type Caller interface {
	// Call returns the answer of the server, or a *Fault. It returns within the server's
	// time limit.
	Call(ctx context.Context, c Call) (Answer, error)
	// Closed lists the tools that are closed in the owner's session, by their server's names.
	Closed(o Owner) []string
	// ClosedSince returns when the definitions of a server were read last, in whichever
	// session, if a tool was closed then; else the zero time.
	ClosedSince(revision Revision, server api.Name, tool string) time.Time
	// End ends the sessions of a dispatch.
	End(id api.DispatchID)
}
