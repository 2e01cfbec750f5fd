package record

import (
	"encoding/json"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ToolStart is the line that begins descriptor 3 of bailiwick-toolhost. The contents of
// Files follow it, in their order, and then the descriptor ends. Its starter writes it:
// the service, or in mode system the launcher, so that the service sees no secret.
//
// Standard input has a ToolRequest a line, standard output a ToolReply a line, both
// canonical. When standard input ends, the service has exited, and the tool host does so too.
// Standard error has lines without values of Secrets: those that the server wrote begin
// with ToolServerLine, the lines of bailiwick-toolhost with ToolOwnLine.
type ToolStart struct {
	Server  api.ToolServer `json:"server"`
	Files   []api.File     `json:"files,omitempty"`   // of its capability
	Secrets Secrets        `json:"secrets,omitempty"` // of the server
	// Gate is what approvals are verified with. nil: the server is in no catalog yet, and no
	// call that people approve is made. With it, the files are read from the catalog and do
	// not follow.
	Gate *ToolGate `json:"gate,omitempty"`
}

// ToolGate is what a tool host verifies the server and approvals with.
type ToolGate struct {
	Revision  api.Digest      `json:"revision"`            // of the catalog, that has the server
	Catalog   string          `json:"catalog"`             // directory, which is not trusted
	Trust     json.RawMessage `json:"trust"`               // trust.json: whose signatures make a revision
	Operators json.RawMessage `json:"operators,omitempty"` // operators.json: the first set of their keys; absent: none exists
	Service   string          `json:"service"`             // key id that the operators' records name
	// Kept is a directory of the server's tool hosts, of all that ever run: which approvals
	// were used, and how far they have seen the catalog and the operators' records.
	Kept string `json:"kept"`
	// Least is the newest record of the operators that the starter knows. A tool host that is
	// given fewer sends nothing that people approve.
	Least ToolMark `json:"least,omitzero"`
}

// ToolMark is the number and digest of the newest document of a chain that was seen.
type ToolMark struct {
	Number uint64     `json:"number"`
	Digest api.Digest `json:"digest,omitempty"`
}

// How lines of standard error begin.
const (
	ToolServerLine = "| "
	ToolOwnLine    = "! "
)

// MaxToolStart bounds the line: the names of the files of a capability, the definitions of
// tools, and the values of the secrets.
const MaxToolStart = 16 << 20
