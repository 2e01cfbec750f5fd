package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// completeness verifies that no entry is missing: each names the previous entry
// of its run and of its dispatch, and together they replay the plan, or the
// dispatch, from its first entry to its last.
func (v *verification) completeness() {
	row := v.rows[report.RowCompleteness]
	c := &v.b.Case
	if c.Run != "" {
		v.replayRuns(c.Run)
	}
	v.chains()
	row.Checked += len(v.entries)
	if c.Run != "" {
		r := v.replayed[c.Run]
		switch {
		case r == nil || r.submitted == nil:
			row.Fail("run %s: no entry submits it", c.Run)
		case r.settled == nil:
			row.Fail("run %s has not settled in these entries; evidence is exported only after that, so its end is missing", c.Run)
		default:
			v.rows[report.RowCompleteness].Right = fmt.Sprintf("all entries of run %s, from #%d to #%d; each of its tasks (%d) is accounted for exactly once; each of its dispatches (%d) is here up to its statement",
				c.Run, r.submitted.seq, r.settled.seq, len(r.tasks), len(v.ordered))
		}
		for _, h := range v.ordered {
			if !h.chain.Over() && r != nil && r.settled != nil {
				row.Fail("dispatch %s has no end, but its run has settled", h.id)
			}
		}
		v.attestations()
		return
	}
	h := v.dispatches[c.Dispatch]
	switch {
	case h == nil || len(h.attempts) == 0:
		row.Fail("dispatch %s: no entry accepts it", c.Dispatch)
	case !h.chain.Over():
		row.Fail("dispatch %s has not ended in these entries; evidence is exported only after that, so its end is missing", c.Dispatch)
	case h.last().reuses != "":
		v.rows[report.RowCompleteness].Right = fmt.Sprintf("all entries of dispatch %s, which has the result of dispatch %s, and of that one", c.Dispatch, h.last().reuses)
	case h.attested != nil:
		v.rows[report.RowCompleteness].Right = fmt.Sprintf("all entries of dispatch %s, from #%d to its end #%d and its statement #%d", c.Dispatch, h.attempts[0].admitted.seq, h.last().final().seq, h.attested.seq)
	}
	v.attestations()
}

// attestations requires the attestation of every dispatch that has ended. It is
// the end of its chain: without it an exporter could leave out the statement and
// whatever else follows the end. Every version of the service attests each end.
func (v *verification) attestations() {
	for _, h := range v.ordered {
		if h.chain.Over() && h.attested == nil && h.last().reuses == "" { // that is attested whose result it has
			v.rows[report.RowCompleteness].Fail("dispatch %s has ended, but no entry attests it: its statement is withheld, or it was not made when this was exported; export again", h.id)
		}
	}
}

// maxRetries bounds a chain of runs that retry each other.
const maxRetries = 1000

// replayRuns replays a run, after the runs that it retries.
func (v *verification) replayRuns(id api.RunID) {
	row := v.rows[report.RowCompleteness]
	var chain []*replay
	for id != "" && len(chain) <= maxRetries {
		r := &replay{id: id, histories: v.dispatches, answers: map[uint64]*entry{}, meter: v.work, document: v.docs.document}
		chain = append(chain, r)
		if v.replayed[id] != nil {
			row.Fail("run %s retries itself", id)
			break
		}
		v.replayed[id] = r
		id = ""
		for _, e := range v.runs[r.id] {
			if request, ok := e.Detail.(record.RunRequest); ok && e.Kind == record.KindRunSubmitted {
				id = api.RunID(request.RetryOf)
				break
			}
		}
	}
	for i, r := range slices.Backward(chain) {
		if i+1 < len(chain) {
			r.before = chain[i+1]
		}
		v.replay(r)
	}
}

func (v *verification) replay(r *replay) {
	row := v.rows[report.RowCompleteness]
	for _, e := range v.runs[r.id] {
		err := r.step(e)
		if err == nil && e == r.submitted {
			if err = r.slot(); err == nil {
				err = v.readPlan(r)
			}
			if err == nil {
				err = r.reuseDone()
				r.began = len(r.tasks)
			}
		}
		if err != nil {
			e.refused = true
			row.Fail("run %s: entry #%d: %v", r.id, e.seq, err)
		}
	}
}

func (v *verification) readPlan(r *replay) error {
	doc, err := v.docs.load(r.submitted.Refs[record.RefPlan], "plan", r.submitted.reader())
	if err == nil {
		err = v.work.spend(unitPlan * len(doc))
	}
	if err != nil {
		return err
	}
	p, problems := plan.Parse(doc)
	if len(problems) > 0 || p.Digest() != r.submitted.Refs[record.RefPlan] || p.ID != r.id {
		return errors.New("the plan is invalid or of another run")
	}
	r.plan = p
	return r.addTasks(0)
}

// chains verifies that each entry names the previous entry of its run and of its
// dispatch, so that none is missing before the settlement of a run and before the
// attestation of a dispatch.
func (v *verification) chains() {
	row := v.rows[report.RowCompleteness]
	runs, dispatches := map[string]uint64{}, map[api.DispatchID]uint64{}
	for i := range v.entries {
		e := &v.entries[i]
		if !e.ok {
			continue
		}
		if v.replayed[api.RunID(e.Run)] != nil && e.Run != "" {
			if want := runs[e.Run]; e.Prev.Run != want {
				row.Fail("run %s: entry #%d names %s as the previous one, but the bundle has %s: an entry is missing or added", e.Run, e.seq, entryName(e.Prev.Run), entryName(want))
			}
			runs[e.Run] = e.seq + 1
		}
		if e.Dispatch != "" {
			if want := dispatches[e.Dispatch]; e.Prev.Dispatch != want {
				row.Fail("dispatch %.80q: entry #%d names %s as the previous one, but the bundle has %s: an entry is missing or added", e.Dispatch, e.seq, entryName(e.Prev.Dispatch), entryName(want))
			}
			dispatches[e.Dispatch] = e.seq + 1
		}
	}
}

// entryName names an entry by a member of record.Prev.
func entryName(n uint64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("entry #%d", n-1)
}
