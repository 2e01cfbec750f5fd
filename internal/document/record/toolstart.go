package record

import "github.com/bailiwick-dev/bailiwick/api"

// ToolStart is the line that begins descriptor 3 of bailiwick-toolhost. The contents of
// Files follow it, in their order, and then the descriptor ends. Its starter writes it:
// the service, or in mode system the launcher, so that the service sees no secret.
//
// Standard input has a ToolRequest a line, standard output a ToolReply a line, both
// canonical. When standard input ends, the service is gone, and so is the reason to serve.
// Standard error has lines without values of Secrets: those that the server wrote begin
// with ToolServerLine, and those of bailiwick-toolhost with ToolOwnLine.
type ToolStart struct {
	Server  api.ToolServer `json:"server"`
	Files   []api.File     `json:"files,omitempty"`   // of its capability
	Secrets Secrets        `json:"secrets,omitempty"` // those of the server
}

// How lines of standard error begin.
const (
	ToolServerLine = "| "
	ToolOwnLine    = "! "
)

// MaxToolStart bounds the line: the names of the files of a capability, the definitions of
// tools, and the values of the secrets.
const MaxToolStart = 16 << 20
