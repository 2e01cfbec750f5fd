package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Status is the outcome of a check.
type Status string

// The values of Status.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	NA   Status = "na" // not checked; that is not a pass
)

// RowName names one of the checks. The set is closed.
type RowName string

// The rows, in their order.
const (
	RowInclusion     RowName = "inclusion"
	RowSignature     RowName = "checkpoint signature"
	RowConsistency   RowName = "consistency"
	RowAnchor        RowName = "anchor"
	RowCatalog       RowName = "catalog signatures"
	RowManifest      RowName = "manifest binding"
	RowResult        RowName = "result binding"
	RowProvenance    RowName = "provenance closure"
	RowCompleteness  RowName = "run completeness"
	RowAuthorisation RowName = "authorisation"
	RowTools         RowName = "tool calls"
	RowTime          RowName = "time"
)

// RowNames lists them all.
func RowNames() []RowName {
	return []RowName{
		RowInclusion, RowSignature, RowConsistency, RowAnchor, RowCatalog, RowManifest, RowResult, RowProvenance, RowCompleteness, RowAuthorisation, RowTools, RowTime,
	}
}

// Row is one check and its outcome.
type Row struct {
	Row    RowName `json:"row"`
	Status Status  `json:"status"`
	Why    string  `json:"why"`
}

// Claim is what the evidence proves about its log.
type Claim string

// The claims. Each implies those before it.
const (
	ClaimNone            Claim = "none"
	ClaimTamperDetecting Claim = "tamper-detecting" // a checkpoint was kept elsewhere: a later change of the log contradicts it
	ClaimTamperEvident   Claim = "tamper-evident"   // and the service cannot have changed what is kept
	ClaimWitnessed       Claim = "witnessed"        // and witnesses saw a single log
)

// Claims lists them, the weakest first.
func Claims() []Claim {
	return []Claim{ClaimNone, ClaimTamperDetecting, ClaimTamperEvident, ClaimWitnessed}
}

func (c Claim) rank() int {
	for i, known := range Claims() {
		if c == known {
			return i
		}
	}
	return -1
}

// AtLeast reports whether c is want or implies it.
func (c Claim) AtLeast(want Claim) bool { return want.rank() >= 0 && c.rank() >= want.rank() }

// ParseClaim reads the name of one.
func ParseClaim(s string) (Claim, error) {
	if Claim(s).rank() < 0 {
		return "", fmt.Errorf("claim %.40q: want one of %s", s, api.OneOf(Claims()))
	}
	return Claim(s), nil
}

// The other two axes.
const (
	TimeAsserted = "asserted" // by the service's clock
	TimeAttested = "attested" // by a time-stamp authority: not later than it says

	AuthorisationNone     = "none"      // not shown that everything was allowed
	AuthorisationSameUser = "same-user" // shown, by rules that the service account could have changed
)

// Report is the verdict about a bundle. Its shape is stable.
type Report struct {
	V          int            `json:"v"` // 1
	Run        api.RunID      `json:"run,omitempty"`
	Dispatch   api.DispatchID `json:"dispatch,omitempty"`
	Log        string         `json:"log"`  // its origin
	Size       uint64         `json:"size"` // of the checkpoint
	Root       string         `json:"root"` // hexadecimal
	Entries    int            `json:"entries"`
	Dispatches int            `json:"dispatches"`
	From       *time.Time     `json:"from,omitempty"` // of the first entry and the last, by the service's clock
	To         *time.Time     `json:"to,omitempty"`

	Ran *Ran `json:"ran,omitempty"` // nil if the trust file is invalid, or the verifier stopped

	Work *Work `json:"work,omitempty"` // nil if the trust file is invalid

	Rows          []Row  `json:"rows"`
	Claim         Claim  `json:"claim"`
	Time          string `json:"time"`
	Authorisation string `json:"authorisation"`
}

// Work is what it took to verify a bundle, and what its size allows.
type Work struct {
	Bytes       int64 `json:"bytes"` // that were verified: those of the bundle and of the auditor's copies, without content
	Units       int64 `json:"units"`
	UnitLimit   int64 `json:"unitLimit"`
	Memory      int64 `json:"memory"` // bytes of decoded values, estimated before decoding
	MemoryLimit int64 `json:"memoryLimit"`
}

// Failed reports whether any row fails.
func (r *Report) Failed() bool {
	for _, row := range r.Rows {
		if row.Status != Pass && row.Status != NA {
			return true
		}
	}
	return len(r.Rows) != len(RowNames())
}

// Good reports whether no row fails and the claim is at least want.
func (r *Report) Good(want Claim) bool { return !r.Failed() && r.Claim.AtLeast(want) }

// Row returns one of the rows.
func (r *Report) Row(name RowName) Row {
	for _, row := range r.Rows {
		if row.Row == name {
			return row
		}
	}
	return Row{Row: name, Status: NA, Why: "not checked"}
}

// JSON returns the report as canonical JSON with a line feed.
func (r *Report) JSON() ([]byte, error) {
	b, err := canon.Marshal(r)
	return append(b, '\n'), err
}

// Text returns the report for people: what ran, then a line for each row, then the
// axes.
// No content can move a cursor or begin a line.
func (r *Report) Text() string {
	var b strings.Builder
	if r.Ran != nil {
		for _, f := range r.Ran.facts(maxShown) {
			fmt.Fprintf(&b, "%-9s  %s\n", f.Label, plain(f.Value))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n", plain(r.scope()))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-4s  %-20s  %s\n", row.Status, row.Row, plain(row.Why))
	}
	fmt.Fprintf(&b, "%s\n", plain(r.verdict()))
	return b.String()
}

// plain shows a text on one line, in its script. What would hide or command something is
// escaped, as package visible says.
func plain(s string) string { return strings.ReplaceAll(visibletext.Reveal(s), "\n", `\n`) }

// PlainLines is plain for a text of several lines.
func PlainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}
