package api

import (
	"fmt"
	"strings"
	"time"
)

// LogQuery selects audit entries that match all its fields. The zero value selects
// all entries.
type LogQuery struct {
	After  *uint64 // entries after this number
	Before *uint64 // entries before this number
	First  int     // at most this many of the oldest; 0: all
	Last   int     // at most this many of the newest, in log order; 0: all. At most MaxLogPage

	Run       RunID      // of this run, its tasks and their dispatches
	Task      TaskID     // of tasks with this id, and their dispatches
	Dispatch  DispatchID // of this dispatch
	Role      Name       // of dispatches in this role
	Tool      string     // of calls of this tool; * stands for any text; see CheckToolPattern
	Principal Principal  // of this principal
	Kinds     []string   // of these kinds
	Decision  string     // with this decision: allow or deny

	// Since and Until bound the time of an entry, in microseconds: from Since on and
	// before Until. Zero: unbounded.
	Since, Until time.Time
}

// MaxLogPage bounds LogQuery.Last.
const MaxLogPage = 1000

// CheckTool checks the name of a tool in the log: 1 to 255 characters of printable
// ASCII without white space, quotation mark and backslash.
func CheckTool(s string) error {
	if s == "" || len(s) > 255 || strings.IndexFunc(s, func(r rune) bool { return r < '!' || r > '~' || r == '"' || r == '\\' }) >= 0 {
		return fmt.Errorf("tool %.80q: want 1 to 255 of printable ASCII without white space, quotation mark and backslash", s)
	}
	return nil
}

// maxToolWildcards bounds what a pattern costs per entry.
const maxToolWildcards = 2

// CheckToolPattern checks the name of a tool in which up to two * stand for any text.
func CheckToolPattern(s string) error {
	if err := CheckTool(s); err != nil {
		return err
	}
	if n := strings.Count(s, "*"); n > maxToolWildcards {
		return fmt.Errorf("tool %.80q: want at most %d wildcards *, not %d", s, maxToolWildcards, n)
	}
	return nil
}

// EvidenceStatus counts, since the start of the service, the evidence of settled
// runs and ended dispatches that the service has verified as an auditor would.
type EvidenceStatus struct {
	Checked uint64 `json:"checked"`
	Refused uint64 `json:"refused"`
	Last    string `json:"last,omitempty"` // why the last refused one does not verify
}

// EvidenceRequest requests the evidence about a settled run or an ended dispatch.
type EvidenceRequest struct {
	Run      RunID
	Dispatch DispatchID
	Blobs    bool // include inputs and results
	// Checkpoints are signed checkpoints that the auditor has. The evidence proves
	// that its log extends each.
	Checkpoints [][]byte
	// Wait bounds how long the service waits for a checkpoint that covers the
	// evidence; at most a minute. 0: no bound.
	Wait time.Duration
}

// MaxCheckpoints bounds EvidenceRequest.Checkpoints.
const MaxCheckpoints = 8

// StateDiffers begins the message of an error about rows of the state that do not
// follow from the log.
const StateDiffers = "the state differs from the log: "

// LogCheck is the result of verifying every entry of the log.
type LogCheck struct {
	Entries uint64 `json:"entries"`         // read, and hashed to the signed root
	Chained uint64 `json:"chained"`         // with the predecessor that they name
	Wrong   string `json:"wrong,omitempty"` // the first error; empty: the log is intact
}
