package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// knownDispatch is what the entries so far say about a dispatch. Almost all of a log are
// over, and only their chain is kept.
type knownDispatch struct {
	record.DispatchChain
	last uint64                 // number of its last entry, plus one
	item *report.PeriodDispatch // nil once it is attested outside the period
	// listed: an entry of the period is about it. reused: it has the result of another.
	listed, reused bool
}

// knownRun is likewise of a run.
type knownRun struct {
	record.RunChain
	last   uint64
	item   *report.PeriodRun // nil once it settled outside the period
	listed bool
}

// chains verifies that an entry names its predecessors and can follow them. What is no id
// has no chain: a denied request may name anything.
func (c *periodCheck) chains(e *entry) {
	row := c.v.rows[report.RowCompleteness]
	if _, err := api.ParseDispatchID(string(e.Dispatch)); err == nil {
		c.dispatch(e, row)
	}
	if _, err := api.ParseRunID(e.Run); err == nil {
		c.run(e, row)
	}
}

func (c *periodCheck) dispatch(e *entry, row *report.Finding) {
	k := c.dispatches[e.Dispatch]
	if k == nil {
		k = &knownDispatch{}
		c.dispatches[e.Dispatch] = k
	}
	if e.Prev.Dispatch != k.last {
		row.Fail("entry #%d names %s as the previous one of dispatch %s, but that is %s", e.seq, entryName(e.Prev.Dispatch), e.Dispatch, entryName(k.last))
	}
	k.last = e.seq + 1
	before := k.DispatchChain
	if err := k.Step(&e.Entry); err != nil {
		row.Fail("entry #%d: dispatch %s: %v", e.seq, e.Dispatch, err)
		return
	}
	if before.State == k.State && before.Attempt == k.Attempt && before.Attested == k.Attested {
		return
	}
	if k.item == nil {
		k.item = &report.PeriodDispatch{Dispatch: e.Dispatch, Run: api.RunID(e.Run), Task: e.Task, Principal: e.Principal, Entry: e.seq}
		if d, ok := e.Detail.(record.DispatchRequest); ok {
			k.item.Subagent = api.Name(d.Subagent)
		}
	}
	seq := e.seq
	k.item.State, k.item.Attempts = string(k.State), k.Attempt
	switch {
	case k.Attested:
		k.item.Statement = &seq
	case k.Over():
		k.item.End = &seq
	}
	if d, ok := e.Detail.(record.TaskReuse); ok && e.Kind == record.KindTaskReused {
		k.reused, k.item.Reuses = true, api.DispatchID(d.Of)
	}
	if c.period.Has(e.At) && !k.listed {
		k.listed = true
		c.out.Dispatches = append(c.out.Dispatches, k.item)
		c.listed++
	}
	if (k.Attested || k.reused) && !k.listed {
		k.item = nil
	}
}

func (c *periodCheck) run(e *entry, row *report.Finding) {
	k := c.runs[e.Run]
	if k == nil {
		k = &knownRun{}
		c.runs[e.Run] = k
	}
	if e.Prev.Run != k.last {
		row.Fail("entry #%d names %s as the previous one of run %s, but that is %s", e.seq, entryName(e.Prev.Run), e.Run, entryName(k.last))
	}
	k.last = e.seq + 1
	if err := k.Step(e.Kind); err != nil {
		row.Fail("entry #%d: run %s: %v", e.seq, e.Run, err)
		return
	}
	switch d := e.Detail.(type) {
	case record.RunRequest:
		if e.Kind == record.KindRunSubmitted {
			k.item = &report.PeriodRun{Run: api.RunID(e.Run), Submitter: e.Principal, State: "not settled", Tasks: d.Tasks, Entry: e.seq}
		}
	case record.RunGrowth:
		if k.item != nil {
			k.item.Tasks = max(k.item.Tasks, d.Total)
		}
	case record.RunEnd:
		if k.item != nil {
			seq := e.seq
			k.item.State, k.item.End = d.State, &seq
		}
	}
	if k.item == nil {
		return
	}
	if c.period.Has(e.At) && !k.listed {
		k.listed = true
		c.out.Runs = append(c.out.Runs, k.item)
		c.listed++
	}
	if k.Settled && !k.listed {
		k.item = nil
	}
}

// list adds an entry of the period to the list of its matter, if it has one.
func (c *periodCheck) list(e *entry, by []report.SignedBy) {
	if c.out.Entries == 0 {
		c.out.First = e.seq
	}
	c.out.Entries++
	c.out.Last = e.seq
	to := &c.out.Service
	d := detail[record.OperatorDecision](e)
	switch vote := d.Verb == string(api.VerbApprove) || d.Verb == string(api.VerbDeny); {
	case e.Decision == record.Deny, e.Kind == record.KindAuthRefused:
		to = &c.out.Denials
	case vote, e.Kind == record.KindApprovalRequest, e.Kind == record.KindApprovalExpired:
		to = &c.out.Approvals
	case e.Kind.Rules(), e.Kind == record.KindKeyRotated:
		to = &c.out.Rules
	case !slices.Contains([]record.Kind{record.KindServiceStarted, record.KindServiceStopped, record.KindCatalogRefused, record.KindRetentionRemoved, record.KindEvidenceRefused}, e.Kind):
		return
	}
	line := report.PeriodEntry{Entry: e.seq, At: e.At, Kind: e.Kind, Signed: by}
	said := e.Entry
	if start, ok := e.Detail.(record.ServiceStart); ok {
		line.Config, start.Isolation = start.Config, nil // "audit list" shows the layers
		said.Detail = start
	}
	line.Line = said.Line(e.seq)
	*to = append(*to, line)
	c.listed++
}

// gaps notes what an entry, of the period or after it, says about evidence that the
// service does not have, or that does not verify.
func (c *periodCheck) gaps(e *entry) {
	lacks := func(dispatch, run, why string) {
		k, r := c.dispatches[api.DispatchID(dispatch)], c.runs[run]
		if dispatch != "" && k != nil && k.listed {
			c.lack("dispatch "+record.Word(dispatch), why)
		} else if run != "" && r != nil && r.listed {
			c.lack("run "+record.Word(run), why)
		}
	}
	switch d := e.Detail.(type) {
	case record.EvidenceRefused:
		lacks(d.Dispatch, d.Run, fmt.Sprintf("the service found that its evidence does not verify [#%d]", e.seq))
	case record.Removal:
		if d.Class == "content" || d.Class == "unreferenced" {
			return // evidence has the digests
		}
		for _, id := range d.Dispatches {
			lacks(id, "", fmt.Sprintf("retention removed its evidence [#%d]", e.seq))
		}
		for _, id := range d.Runs {
			lacks("", id, fmt.Sprintf("retention removed its plan [#%d]", e.seq))
		}
	}
}

func (c *periodCheck) lack(what, why string) {
	c.out.Lacking = append(c.out.Lacking, report.PeriodGap{What: what, Why: why})
	c.listed++
}

// lacking adds what had no end, or no statement, when the copy was made.
func (c *periodCheck) lacking() {
	for _, r := range c.out.Runs {
		if r.End == nil {
			c.lack("run "+string(r.Run), "it has not settled in this copy")
		}
	}
	for _, d := range c.out.Dispatches {
		switch k := c.dispatches[d.Dispatch]; {
		case !k.Over() && !k.reused:
			c.lack("dispatch "+string(d.Dispatch), "it has not ended in this copy")
		case !k.Attested && !k.reused:
			c.lack("dispatch "+string(d.Dispatch), "it has ended without a signed statement")
		}
	}
}
