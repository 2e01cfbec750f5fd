package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// PeriodReport is the verdict about a copy of a whole log, with what happened in a period.
// Its shape is stable. The rows are about the whole log.
type PeriodReport struct {
	V     int        `json:"v"`    // 1
	Log   string     `json:"log"`  // its origin
	Size  uint64     `json:"size"` // of the checkpoint
	Root  string     `json:"root"` // hexadecimal
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"` // excluded

	Entries uint64 `json:"entries"` // of the period
	First   uint64 `json:"first"`   // the numbers of the first and the last of them; 0 in an empty period
	Last    uint64 `json:"last"`

	Runs       []*PeriodRun      `json:"runs"`       // with entries in the period
	Dispatches []*PeriodDispatch `json:"dispatches"` // that changed their state in the period
	Denials    []PeriodEntry     `json:"denials"`
	Approvals  []PeriodEntry     `json:"approvals"` // requests, votes and expiries
	Rules      []PeriodEntry     `json:"rules"`     // catalog revisions, decisions of operators, stops, keys
	Service    []PeriodEntry     `json:"service"`   // starts with their configuration, stops, removals
	Lacking    []PeriodGap       `json:"lacking"`   // what has no evidence

	Rows  []Row `json:"rows"`
	Claim Claim `json:"claim"`
}

// The rows of a PeriodReport that a Report does not have.
const (
	RowRecords RowName = "operator records"
	RowChains  RowName = "chains"
)

// PeriodRun is a run as it is at the end of the copy.
type PeriodRun struct {
	Run       api.RunID     `json:"run"`
	Submitter api.Principal `json:"submitter"`
	State     string        `json:"state"` // an api.RunState, or "not settled"
	Tasks     int64         `json:"tasks"`
	Entry     uint64        `json:"entry"`         // that submitted it
	End       *uint64       `json:"end,omitempty"` // that settled it
}

// PeriodDispatch is a dispatch as it is at the end of the copy.
type PeriodDispatch struct {
	Dispatch  api.DispatchID `json:"dispatch"`
	Run       api.RunID      `json:"run,omitempty"`
	Task      string         `json:"task,omitempty"`
	Principal api.Principal  `json:"principal"`
	Subagent  api.Name       `json:"subagent,omitempty"`
	State     string         `json:"state"` // an api.Event
	Attempts  int            `json:"attempts"`
	Reuses    api.DispatchID `json:"reuses,omitempty"` // whose result it has
	Entry     uint64         `json:"entry"`            // that accepted it
	End       *uint64        `json:"end,omitempty"`
	Statement *uint64        `json:"statement,omitempty"` // the entry that names it
}

// PeriodEntry is an entry of the period, worded like "audit list": what callers said
// is between quotation marks.
type PeriodEntry struct {
	Entry  uint64                `json:"entry"`
	At     time.Time             `json:"at"`
	Kind   record.Kind           `json:"kind"`
	Line   string                `json:"line"`
	Signed []SignedBy            `json:"signed,omitempty"` // the verified signatures of what it puts in force
	Config *record.ServiceConfig `json:"config,omitempty"` // of a start
}

// PeriodGap is something without evidence.
type PeriodGap struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// NewPeriod returns the report of a period in which nothing happened. Zero times are no
// bounds.
func NewPeriod(origin string, since, until time.Time) PeriodReport {
	r := PeriodReport{V: 1, Log: origin, Runs: []*PeriodRun{}, Dispatches: []*PeriodDispatch{}, Denials: []PeriodEntry{}, Approvals: []PeriodEntry{}, Rules: []PeriodEntry{}, Service: []PeriodEntry{}, Lacking: []PeriodGap{}}
	for _, at := range []struct {
		from time.Time
		to   **time.Time
	}{{since, &r.Since}, {until, &r.Until}} {
		if !at.from.IsZero() {
			utc := at.from.UTC()
			*at.to = &utc
		}
	}
	return r
}

// Failed reports whether any row fails.
func (r *PeriodReport) Failed() bool {
	for _, row := range r.Rows {
		if row.Status != Pass && row.Status != NA {
			return true
		}
	}
	return len(r.Rows) == 0
}

// JSON returns the report as canonical JSON with a line feed.
func (r *PeriodReport) JSON() ([]byte, error) {
	b, err := canon.Marshal(r)
	return append(b, '\n'), err
}

// Text returns the report for people: what happened, then a line for each row, then the
// claim.
func (r *PeriodReport) Text() string {
	var b strings.Builder
	for _, f := range r.facts() {
		fmt.Fprintf(&b, "%-9s  %s\n", f.Label, f.Value)
	}
	fmt.Fprintf(&b, "\nlog %s at %s\n", plain(r.Log), record.Plural(r.Size, "entry"))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-4s  %-20s  %s\n", row.Status, row.Row, plain(row.Why))
	}
	fmt.Fprintf(&b, "claim: %s   time: %s\n", r.Claim, TimeAsserted)
	return b.String()
}

// facts returns what happened, as printable ASCII.
func (r *PeriodReport) facts() []fact {
	from, to := "the first entry", "the last entry"
	if r.Since != nil {
		from = Clock(*r.Since)
	}
	if r.Until != nil {
		to = "before " + Clock(*r.Until)
	}
	what := "none"
	if r.Entries > 0 {
		what = fmt.Sprintf("%d, between #%d and #%d", r.Entries, r.First, r.Last)
	}
	out := []fact{{"period", fmt.Sprintf("from %s to %s, by the service's clock", from, to)}, {"entries", what}}
	out = appendFacts(out, "run", r.Runs, (*PeriodRun).text)
	out = appendFacts(out, "dispatch", r.Dispatches, (*PeriodDispatch).text)
	out = appendFacts(out, "denied", r.Denials, PeriodEntry.text)
	out = appendFacts(out, "approval", r.Approvals, PeriodEntry.text)
	out = appendFacts(out, "rule", r.Rules, PeriodEntry.text)
	out = appendFacts(out, "service", r.Service, PeriodEntry.text)
	return appendFacts(out, "lacking", r.Lacking, func(g PeriodGap) string { return plain(g.What + ": " + g.Why) })
}

// appendFacts appends the first of a list, or that it is empty.
func appendFacts[T any](out []fact, label string, list []T, text func(T) string) []fact {
	if len(list) == 0 {
		return append(out, fact{label, "none"})
	}
	for _, x := range list[:min(len(list), maxShown)] {
		out = append(out, fact{label, text(x)})
	}
	if n := len(list) - maxShown; n > 0 {
		out = append(out, fact{label, fmt.Sprintf("and %d more; -o json lists all", n)})
	}
	return out
}

func (r *PeriodRun) text() string {
	s := fmt.Sprintf("%s: %s, %s, submitted by %s in #%d", r.Run, r.State, record.Plural(r.Tasks, "task"), r.Submitter, r.Entry)
	if r.End != nil {
		s += fmt.Sprintf(", settled in #%d", *r.End)
	}
	return plain(s)
}

func (d *PeriodDispatch) text() string {
	s := fmt.Sprintf("%s: %s", d.Dispatch, d.State)
	if d.Reuses != "" {
		s = fmt.Sprintf("%s: has the result of dispatch %s", d.Dispatch, d.Reuses)
	}
	if d.Subagent != "" {
		s += ", subagent " + string(d.Subagent)
	}
	s += " for " + string(d.Principal)
	if d.Run != "" {
		s += fmt.Sprintf(", task %s of run %s", record.Word(d.Task), d.Run)
	}
	s += fmt.Sprintf(", accepted in #%d", d.Entry)
	if d.End != nil {
		s += fmt.Sprintf(", ended in #%d", *d.End)
	}
	if d.Statement != nil {
		s += fmt.Sprintf(", statement in #%d", *d.Statement)
	}
	return plain(s)
}

func (e PeriodEntry) text() string { return e.Line + plain(signedText(e.Signed)) }
