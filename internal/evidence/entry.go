package evidence

import (
	"errors"
	"fmt"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"sort"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// clockSlack is how far the clocks of two honest machines may differ.
const clockSlack = time.Minute

// entry is an entry of the log as it was decoded.
type entry struct {
	record.Entry
	seq  uint64
	hash note.Hash
	ok   bool // it could be decoded
	// begins is the attempt of a dispatch that it admits.
	begins *attempt
}

func newEntry(e *bundle.Entry) (entry, error) {
	out := entry{seq: e.Seq, hash: note.LeafHash(e.Leaf)}
	var err error
	if out.Entry, err = record.DecodeEntry(e.Leaf); err != nil {
		return out, err
	}
	out.ok = true
	return out, nil
}

// world is what the entries say, put in order: the runs, the dispatches, and
// what was allowed when.
type world struct {
	runs       map[api.RunID][]*entry
	dispatches map[api.DispatchID]*history
	ordered    []*history // those that were accepted, as they were
	replayed   map[api.RunID]*replay
	revisions  map[api.Digest]*revision
}

// history is what became of one dispatch.
type history struct {
	id       api.DispatchID
	state    api.Event // by the table of transitions; empty before it was accepted
	entries  []*entry
	attempts []*attempt
	attested *entry
	denied   *entry // the first that denies it
	stated   bool   // its statement is right
}

// attempt is one of a dispatch.
type attempt struct {
	number   int
	admitted *entry // dispatch.accepted or dispatch.answered
	started  *entry
	end      *entry
	closing  *entry // the end of what waited for an answer and was given none

	manifest *record.Manifest // nil: it could not be read
	result   *record.Result   // nil: there is none, or it could not be read
}

func newWorld(v *verification) *world {
	w := &world{runs: map[api.RunID][]*entry{}, dispatches: map[api.DispatchID]*history{}, replayed: map[api.RunID]*replay{}, revisions: map[api.Digest]*revision{}}
	for i := range v.entries {
		e := &v.entries[i]
		if !e.ok {
			continue
		}
		if e.Run != "" {
			w.runs[api.RunID(e.Run)] = append(w.runs[api.RunID(e.Run)], e)
		}
		if e.Dispatch != "" {
			h := w.dispatches[e.Dispatch]
			if h == nil {
				h = &history{id: e.Dispatch}
				w.dispatches[e.Dispatch] = h
			}
			h.entries = append(h.entries, e)
		}
	}
	row := v.rows[RowCompleteness]
	for i := range v.entries { // in the order of the log, so that a report is the same each time
		e := &v.entries[i]
		if !e.ok || e.Dispatch == "" {
			continue
		}
		h := w.dispatches[e.Dispatch]
		if h.entries[0] != e {
			continue
		}
		for _, e := range h.entries {
			if err := h.step(e); err != nil {
				row.fail("dispatch %.80q: entry #%d: %v", h.id, e.seq, err)
			}
		}
		if len(h.attempts) > 0 {
			w.ordered = append(w.ordered, h)
		}
	}
	return w
}

// last returns the attempt that is under way or was the last; nil: none.
func (h *history) last() *attempt {
	if len(h.attempts) == 0 {
		return nil
	}
	return h.attempts[len(h.attempts)-1]
}

// over reports whether nothing follows.
func (h *history) over() bool {
	a := h.last()
	return a != nil && a.final() != nil
}

// final returns the entry with which the dispatch ended in this attempt.
func (a *attempt) final() *entry {
	switch {
	case a.closing != nil:
		return a.closing
	case a.end != nil && a.end.Kind != record.KindDispatchNeedsInput:
		return a.end
	}
	return nil
}

// at returns the attempt that was the last before entry n.
func (h *history) at(n uint64) *attempt {
	k := sort.Search(len(h.attempts), func(k int) bool { return h.attempts[k].admitted.seq >= n })
	if k == 0 {
		return nil
	}
	return h.attempts[k-1]
}

// finished returns the attempt with which the dispatch finished before entry n;
// nil: it did not.
func (h *history) finished(n uint64) *attempt {
	a := h.last()
	if a == nil || a.end == nil || a.end.Kind != record.KindDispatchFinished || a.end.seq >= n {
		return nil
	}
	return a
}

// step applies the next entry of a dispatch.
func (h *history) step(e *entry) error {
	switch e.Kind { //nolint:exhaustive // the others are steps of the table, or change nothing
	case record.KindDispatchDenied:
		if h.denied == nil {
			h.denied = e
		}
		return nil
	case record.KindDispatchAttested:
		if !h.over() || h.attested != nil {
			return errors.New("attested before it ended, or twice")
		}
		h.attested = e
		return nil
	}
	state, ok := record.NextDispatch(h.state, e.Kind)
	a := h.last()
	switch {
	case !ok && h.state == "":
		return fmt.Errorf("%s before it was accepted", e.Kind)
	case !ok:
		return fmt.Errorf("%s while it is %s", e.Kind, h.state)
	case state == h.state:
		return nil
	case state == api.EventAccepted:
		if a = (&attempt{number: len(h.attempts) + 1, admitted: e}); e.Attempt == a.number {
			h.attempts, e.begins = append(h.attempts, a), a
		}
	case state == api.EventStarted && e.Attempt == a.number:
		a.started = e
	case h.state == api.EventNeedsInput && e.Attempt == a.number:
		a.closing = e
	case e.Attempt == a.number:
		a.end = e
	}
	if e.Attempt != a.number {
		return fmt.Errorf("%s of attempt %d, and it is in attempt %d", e.Kind, e.Attempt, a.number)
	}
	h.state = state
	return nil
}
