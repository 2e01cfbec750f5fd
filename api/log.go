package api

import (
	"fmt"
	"strings"
	"time"
)

// LogQuery selects audit entries: those that all of it is true of. The zero
// value selects all.
type LogQuery struct {
	After  *uint64 // only entries behind this number
	Before *uint64 // only entries before this number
	First  int     // only the oldest so many; 0: all
	Last   int     // only the newest so many, still in the order of the log; 0: all. At most MaxLogPage

	Run       RunID      // only of this run, its tasks and their dispatches
	Task      TaskID     // only of tasks of this name, and their dispatches
	Dispatch  DispatchID // only of this dispatch
	Role      Name       // only of dispatches in this role
	Tool      string     // only of calls of this tool; see CheckTool
	Principal Principal  // only of this principal
	Kinds     []string   // only of these kinds
	Decision  string     // only of what was decided so: allow or deny

	// Since and Until are about the time that an entry bears, in microseconds:
	// from Since on, and before Until. Zero: any.
	Since, Until time.Time
}

// MaxLogPage is how many of the newest entries can be asked for.
const MaxLogPage = 1000

// CheckTool refuses what cannot be the name of a tool in the log: 1 to 255
// characters of printable ASCII without white space, quotation mark and
// backslash.
func CheckTool(s string) error {
	if s == "" || len(s) > 255 || strings.IndexFunc(s, func(r rune) bool { return r < '!' || r > '~' || r == '"' || r == '\\' }) >= 0 {
		return fmt.Errorf("tool %.80q: want 1 to 255 of printable ASCII without white space, quotation mark and backslash", s)
	}
	return nil
}
