package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// completeness holds the entries against each other: each names the one before
// it of its run and of its dispatch, so that none can be kept back, and
// together they are what happens to a plan, or to a dispatch, from the
// beginning to the end.
func (v *verification) completeness() {
	row := v.rows[RowCompleteness]
	c := &v.b.Case
	if c.Run != "" {
		v.replayRuns(c.Run)
	}
	v.links()
	v.belongs()
	row.checked += len(v.entries)
	if c.Run != "" {
		r := v.replayed[c.Run]
		switch {
		case r == nil || r.submitted == nil:
			row.fail("run %s: the entry that submits it is missing", c.Run)
		case r.settled == nil:
			row.fail("run %s is not over in these entries: evidence is of what is, so its end is kept back", c.Run)
		default:
			v.words[RowCompleteness] = fmt.Sprintf("run %s has all its entries, from #%d to #%d; each of its %d tasks is accounted for, once", c.Run, r.submitted.seq, r.settled.seq, len(r.tasks))
		}
		for _, h := range v.ordered {
			if !h.over() && r != nil && r.settled != nil {
				row.fail("dispatch %s has no end, and its run has", h.id)
			}
		}
		return
	}
	h := v.dispatches[c.Dispatch]
	switch {
	case h == nil || len(h.attempts) == 0:
		row.fail("dispatch %s: the entry that accepts it is missing", c.Dispatch)
	case !h.over():
		row.fail("dispatch %s is not over in these entries: evidence is of what is, so its end is kept back", c.Dispatch)
	default:
		v.words[RowCompleteness] = fmt.Sprintf("dispatch %s has all its entries, from #%d to its end #%d; it is no run", c.Dispatch, h.attempts[0].admitted.seq, h.last().final().seq)
	}
}

// maxRetries is how many runs may go on from each other.
const maxRetries = 1000

// replayRuns replays a run, after those that it goes on from.
func (v *verification) replayRuns(id api.RunID) {
	row := v.rows[RowCompleteness]
	var chain []*replay
	for id != "" && len(chain) <= maxRetries {
		r := &replay{id: id, histories: v.dispatches}
		chain = append(chain, r)
		if v.replayed[id] != nil {
			row.fail("run %s goes on from itself", id)
			break
		}
		v.replayed[id] = r
		id = ""
		for _, e := range v.runs[r.id] {
			if ask, ok := e.Detail.(record.RunRequest); ok && e.Kind == record.KindRunSubmitted {
				id = api.RunID(ask.RetryOf)
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
	row := v.rows[RowCompleteness]
	for _, e := range v.runs[r.id] {
		err := r.step(e)
		if err == nil && e == r.submitted {
			if err = v.readPlan(r); err == nil {
				err = r.takeOver()
			}
		}
		if err != nil {
			row.fail("run %s: entry #%d: %v", r.id, e.seq, err)
		}
	}
}

func (v *verification) readPlan(r *replay) error {
	doc, err := v.document(r.submitted.Refs[record.RefPlan], "plan")
	if err != nil {
		return err
	}
	p, problems := plan.Parse(doc)
	if len(problems) > 0 || p.Digest() != r.submitted.Refs[record.RefPlan] || p.ID != r.id {
		return fmt.Errorf("its plan is none, or of another run")
	}
	r.plan, r.tasks = p, make([]taskReplay, len(p.Tasks))
	for i := range r.tasks {
		r.tasks[i].state = api.TaskPending
	}
	return nil
}

// links holds each entry against the one that it names as the one before it.
// The end of a run is the last of it; of a dispatch more may follow that
// changes nothing of it.
func (v *verification) links() {
	row := v.rows[RowCompleteness]
	runs, dispatches := map[string]uint64{}, map[api.DispatchID]uint64{}
	for i := range v.entries {
		e := &v.entries[i]
		if !e.ok {
			continue
		}
		if v.replayed[api.RunID(e.Run)] != nil && e.Run != "" {
			if want := runs[e.Run]; e.Prev.Run != want {
				row.fail("run %s: entry #%d follows %s, which %s", e.Run, e.seq, numbered(e.Prev.Run), missing(want))
			}
			runs[e.Run] = e.seq + 1
		}
		if e.Dispatch != "" {
			if want := dispatches[e.Dispatch]; e.Prev.Dispatch != want {
				row.fail("dispatch %.80q: entry #%d follows %s, which %s", e.Dispatch, e.seq, numbered(e.Prev.Dispatch), missing(want))
			}
			dispatches[e.Dispatch] = e.seq + 1
		}
	}
}

func numbered(n uint64) string {
	if n == 0 {
		return "nothing"
	}
	return fmt.Sprintf("entry #%d", n-1)
}

func missing(have uint64) string {
	if have == 0 {
		return "is not here"
	}
	return fmt.Sprintf("is not the one that is here, #%d: one is missing, or one too many", have-1)
}

// belongs refuses entries that have nothing to do with the case.
func (v *verification) belongs() {
	row := v.rows[RowCompleteness]
	mine := map[api.DispatchID]bool{v.b.Case.Dispatch: true}
	for i := range v.entries {
		if e := &v.entries[i]; e.ok && e.Dispatch != "" && e.Run != "" && v.replayed[api.RunID(e.Run)] != nil {
			mine[e.Dispatch] = true
		}
	}
	// What a dispatch takes over is not known before its manifest is read, so of
	// one that is shown by itself all those of its run may be here.
	run := ""
	if h := v.dispatches[v.b.Case.Dispatch]; h != nil && len(h.attempts) > 0 {
		run = h.attempts[0].admitted.Run
	}
	for i := range v.entries {
		e := &v.entries[i]
		switch {
		case !e.ok || e.Kind.Rules():
		case e.Dispatch != "" && (mine[e.Dispatch] || run != "" && v.dispatches[e.Dispatch] != nil && len(v.dispatches[e.Dispatch].attempts) > 0):
		case e.Run != "" && v.replayed[api.RunID(e.Run)] != nil:
		default:
			row.fail("entry #%d has nothing to do with what this is about", e.seq)
		}
	}
}
