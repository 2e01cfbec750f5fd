package record

import (
	"encoding/json"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ToolStart is the line that begins the standard input of bailiwick-toolhost. The
// contents of Files follow it, in their order. What comes then goes to the server. When
// that input ends, the starter is gone, and so is the reason to serve.
//
// Standard output has what the server writes, and nothing else. Standard error has lines
// without values of Secrets: those that the server writes there begin with
// ToolServerLine, and those of bailiwick-toolhost with ToolOwnLine.
type ToolStart struct {
	Server  api.Name     `json:"server"`
	Command api.Command  `json:"command"`
	Host    api.ToolHost `json:"host,omitzero"`
	Files   []api.File   `json:"files,omitempty"`   // of the capability
	Secrets Secrets      `json:"secrets,omitempty"` // those of Host
	// Input is the whole input of a declared command: its arguments.
	Input json.RawMessage `json:"input,omitempty"`
}

// How lines of standard error begin.
const (
	ToolServerLine = "| "
	ToolOwnLine    = "! "
)

// ToolHostFailed is the exit status of bailiwick-toolhost when it could not run the
// server. Others are those of the server.
const ToolHostFailed = 125

// MaxToolStart bounds the line: the names of the files of a capability, the values of
// the secrets, and the arguments.
const MaxToolStart = 8 << 20
