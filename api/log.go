package api

import (
	"errors"
	"fmt"
	"strconv"
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

// ParseTime parses a time of a filter: an instant, a day in UTC, to which it adds days,
// or an age before now.
func ParseTime(text string, now time.Time, days int) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, days), nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	if age, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(age, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	return time.Time{}, errors.New("want a time such as 2026-11-21T14:22:11Z, a day such as 2026-11-21, or an age such as 2h or 7d")
}
