// Package toolclient has bailiwick-toolhost make calls of tools, and lists the definitions
// of a server's tools. It starts a tool host by a Starter and exchanges lines with it; the
// server itself, its protocol and its credential are beyond the tool host, which the
// service links no part of.
//
// What a tool host sends is read strictly and bounded, as it speaks to a server that may
// have taken it over. Nothing in this package decides whether a tool may be called.
//
// Carries R-G5.
package toolclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Config configures how tool hosts are reached.
type Config struct {
	Start Starter
	// Said gets what bailiwick-toolhost says about a server, such as a refused
	// request. nil: nobody.
	Said func(server api.Name, line string)
	// Records returns the operators' records that follow the first n, which a tool host
	// verifies approvals with. nil: none.
	Records func(ctx context.Context, n uint64) ([][]byte, error)
}

// Starter starts bailiwick-toolhost for a server. It closes none of the standard streams. A
// Plain does so in the account of its caller.
type Starter interface {
	Start(ctx context.Context, s Server, in, out, errs *os.File) (Process, error)
}

// Process is a bailiwick-toolhost that was started.
type Process interface {
	Wait() // until it has exited
	Kill() error
}

// Server is the document of a server and the values that its tool host needs.
type Server struct {
	api.ToolServer

	Revision api.Digest // of the catalog, that has it; empty: it is in none yet
	Refs     []string   // references of its secrets, of a server in a catalog
	// Secrets returns the values of its secrets, by name of artifact. A Starter calls it
	// unless it gets them elsewhere. nil: it has none.
	Secrets func(context.Context) (record.Secrets, error)
	Files   []File // of its capability
}

// File is a file of a capability.
type File struct {
	api.File

	Open func() (io.ReadCloser, error)
}

// Offer is what a server has.
type Offer struct {
	Tools  []api.ToolDefinition // in canonical form, sorted by name
	Unused []string             // what no agent gets, such as resources; no words of the server
}

// Definitions starts a tool host, reads the definitions of all tools of the server, and
// ends it. A declared command has no server.
func Definitions(ctx context.Context, cfg Config, s Server) (Offer, error) {
	h, err := Start(ctx, cfg, s)
	if err != nil {
		return Offer{}, err
	}
	session, err := h.Open(ctx, nil)
	if err != nil {
		return Offer{}, errors.Join(err, h.Close())
	}
	offer, err := session.Offer(ctx)
	return offer, errors.Join(err, h.Close())
}

// Call is one call of a tool. The arguments are canonical.
type Call struct {
	Tool      string // of the server; empty for a declared command
	Arguments json.RawMessage
	Progress  func(text string) // in the server's words; nil: none
	Dispatch  api.DispatchID
	Approved  *api.ToolAction // by people; nil: none
}

// Answer is what a tool returned.
type Answer struct {
	Result  json.RawMessage // a canonical CallToolResult, without secrets
	IsError bool            // the tool says that it failed
}

// EndedError says that a session has ended.
type EndedError struct {
	Why   string // for a person
	Broke bool   // the server broke the protocol or a bound
	Said  string // the end of its standard error; secrets are redacted
}

func (e *EndedError) Error() string {
	if e.Said == "" {
		return e.Why
	}
	return e.Why + ": " + lastLine(e.Said)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// UnsentError says that a call did not reach the server.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return e.Err.Error() }
func (e *UnsentError) Unwrap() error { return e.Err }

// ErrCredential means that a server refuses its credential.
var ErrCredential = errors.New("the server refuses its credential")

// RefusedError says that the tool host did not send a call, because it does not find that
// people approved it.
type RefusedError struct {
	Reason string
	behind bool // it was given too few records
}

func (e *RefusedError) Error() string { return "the tool host refuses the call: " + e.Reason }

// InvalidError says that an answer is invalid in the protocol. The tool may have had its
// effect.
type InvalidError struct {
	Reason string // without text from the server
	Err    error
}

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }
