package evidence

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// clockSlack is how far the clocks of two honest machines may differ.
const clockSlack = time.Minute

// entry is a decoded entry of the log.
type entry struct {
	record.Entry
	seq    uint64
	hash   logproof.Hash
	ok     bool     // it could be decoded
	begins *attempt // the attempt that it admits, if any
	// taint is what its dispatch has before it: of entries about tools, see traceTaint.
	taint  *api.Taint
	action *api.ToolAction // what a request for an approval is about; nil if it could not be read
	// refused: it cannot follow the entries before it, which is reported. Nothing else
	// is compared with it: such entries could all be about one document.
	refused bool
}

func newEntry(e *bundle.Entry) (entry, error) {
	out := entry{seq: e.Seq, hash: logproof.LeafHash(e.Leaf)}
	var err error
	if out.Entry, err = record.DecodeEntry(e.Leaf); err != nil {
		return out, err
	}
	out.ok = true
	return out, nil
}

// detail returns the detail of an entry, which has the type that belongs to its kind. It is
// empty if e is nil, or of a kind with another detail.
func detail[D record.Detail](e *entry) (d D) {
	if e != nil {
		d, _ = e.Detail.(D)
	}
	return d
}

// world is the entries by run and dispatch, and the catalog revisions.
type world struct {
	entries    []entry
	runs       map[api.RunID][]*entry
	dispatches map[api.DispatchID]*history
	ordered    []*history // the accepted ones, in the order of the log
	replayed   map[api.RunID]*replay
	revisions  map[api.Digest]*revision
	stops      engagements
	toolsets   sync.Map // by revision, role and servers: see tools
}

// history is the entries of one dispatch.
type history struct {
	id               api.DispatchID
	chain            record.DispatchChain
	entries          []*entry
	attempts         []*attempt
	attested         *entry
	denied           *entry // the first denial
	attestationValid bool
	approvals        map[string]*entry // the requests, by id

	cancelOnce   sync.Once
	cancels      []*entry          // see cancelled
	statement    *record.Statement // nil if it could not be read
	statementKey seal.KeyID        // that signed it
}

// attempt is one attempt of a dispatch.
type attempt struct {
	number   int
	admitted *entry // dispatch.accepted or dispatch.answered
	started  *entry
	end      *entry
	closing  *entry // the end of an attempt whose question was not answered
	refused  []*entry
	calls    []*entry // about its tools, in the order of the log

	manifest *record.Manifest // nil if it could not be read
	signed   *record.Result   // nil if absent, or if it could not be read
	unsigned error            // why it could not
	result   *record.Result   // signed, if it is of this attempt

	reuses  api.DispatchID // whose result it has, without having run
	earlier *attempt       // that made it; nil if it is not in the bundle: see linkReuse

	taintOnce  sync.Once
	taintAfter *api.Taint // of the dispatch, at the end of the attempt: see tainted

	index   sync.Once
	outputs map[string]api.Artifact // of result, by path: see product
}

// group sorts the entries by run and dispatch, and follows each dispatch. row fails for an
// entry that cannot follow those before it.
func (w *world) group(row *report.Finding) {
	w.runs, w.dispatches, w.replayed = map[api.RunID][]*entry{}, map[api.DispatchID]*history{}, map[api.RunID]*replay{}
	w.revisions, w.stops = map[api.Digest]*revision{}, newEngagements()
	for i := range w.entries {
		e := &w.entries[i]
		if !e.ok {
			continue
		}
		if e.Kind == record.KindStopEngaged {
			w.stops.add(e)
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
	for i := range w.entries { // in the order of the log, so that reports are reproducible
		e := &w.entries[i]
		if !e.ok || e.Dispatch == "" {
			continue
		}
		h := w.dispatches[e.Dispatch]
		if h.entries[0] != e {
			continue
		}
		for _, e := range h.entries {
			if err := h.step(e); err != nil {
				e.refused = true
				row.Fail("dispatch %.80q: entry #%d: %v", h.id, e.seq, err)
			}
		}
		if len(h.attempts) > 0 {
			w.ordered = append(w.ordered, h)
		}
	}
	w.linkReuse()
}

// last returns the latest attempt, or nil.
func (h *history) last() *attempt {
	if len(h.attempts) == 0 {
		return nil
	}
	return h.attempts[len(h.attempts)-1]
}

// final returns the entry that ended the dispatch in this attempt, or nil.
func (a *attempt) final() *entry {
	switch {
	case a.closing != nil:
		return a.closing
	case a.end != nil && a.end.Kind != record.KindDispatchNeedsInput:
		return a.end
	}
	return nil
}

// at returns the latest attempt before entry n, or nil.
func (h *history) at(n uint64) *attempt {
	k := sort.Search(len(h.attempts), func(k int) bool { return h.attempts[k].admitted.seq >= n })
	if k == 0 {
		return nil
	}
	return h.attempts[k-1]
}

// finished returns the attempt in which the dispatch finished before entry n, or
// nil.
func (h *history) finished(n uint64) *attempt {
	a := h.last()
	if a != nil && a.admitted.Kind == record.KindTaskReused && a.admitted.seq < n {
		return a
	}
	if a == nil || a.end == nil || a.end.Kind != record.KindDispatchFinished || a.end.seq >= n {
		return nil
	}
	return a
}

// step applies the next entry of a dispatch.
func (h *history) step(e *entry) error {
	before := h.chain
	if err := h.chain.Step(&e.Entry); err != nil {
		return err
	}
	now := h.chain
	switch {
	case now.Attested != before.Attested:
		h.attested = e
	case now.State == before.State:
		switch {
		case e.Kind == record.KindDispatchDenied && h.denied == nil:
			h.denied = e
		case e.Kind == record.KindEgressRefused:
			h.last().refused = append(h.last().refused, e)
		case slices.Contains(toolKinds(), e.Kind) && h.last() != nil:
			h.last().calls = append(h.last().calls, e)
			if d, ok := e.Detail.(record.ApprovalRequest); ok && e.Kind == record.KindApprovalRequest {
				if h.approvals == nil {
					h.approvals = map[string]*entry{}
				}
				h.approvals[d.Approval] = e
			}
		}
	case now.State == api.EventAccepted, e.Kind == record.KindTaskReused:
		e.begins = &attempt{number: now.Attempt, admitted: e}
		h.attempts = append(h.attempts, e.begins)
	case now.State == api.EventStarted:
		h.last().started = e
	case before.State == api.EventNeedsInput:
		h.last().closing = e
	default:
		h.last().end = e
	}
	return nil
}
