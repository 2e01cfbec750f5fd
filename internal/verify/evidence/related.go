package evidence

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// refuseUnrelated refuses whatever does not belong to the case: a reader of the
// bundle could take it for evidence. The manifests are read by then.
func (v *verification) refuseUnrelated() {
	v.refuseEntries()
	v.nameArtifacts()
	row := v.rows[report.RowProvenance]
	named := func(d api.Digest) bool {
		_, ok := v.docs.used.Load(d)
		return ok
	}
	for _, d := range slices.Sorted(maps.Keys(v.docs.documents)) {
		if !named(d) {
			row.Fail("document %s is not referenced", d.Short())
		}
	}
	for _, c := range v.b.Content {
		if !named(c.Digest) {
			row.Fail("content %s is not referenced", c.Digest.Short())
		}
	}
}

// refuseEntries refuses entries that belong neither to the case, nor to a dispatch
// whose products it used, nor to the rules by which it was decided.
func (v *verification) refuseEntries() {
	mine, last := v.related(v.b.Case.Dispatch), uint64(0)
	for i := range v.entries {
		if e := &v.entries[i]; e.ok && e.UnderRules() {
			last = e.seq
		}
	}
	for i := range v.entries {
		e := &v.entries[i]
		switch {
		case !e.ok || e.Dispatch != "" && mine[e.Dispatch]:
		case e.Run != "" && v.replayed[api.RunID(e.Run)] != nil:
		case e.Dispatch == "" && e.Run == "" && e.Kind.Rules() && e.seq < last:
		default:
			v.rows[report.RowCompleteness].Fail("entry #%d does not belong to this run or dispatch", e.seq)
		}
	}
}

// related returns the dispatches of the case: those of its runs, or dispatch
// and those whose products it used, directly or not.
func (w *world) related(dispatch api.DispatchID) map[api.DispatchID]bool {
	mine := map[api.DispatchID]bool{}
	for i := range w.entries {
		if e := &w.entries[i]; e.ok && e.Dispatch != "" && e.Run != "" && w.replayed[api.RunID(e.Run)] != nil {
			mine[e.Dispatch] = true
		}
	}
	next := []api.DispatchID{dispatch}
	for _, h := range w.ordered {
		if of := h.last().reuses; of != "" && mine[h.id] {
			next = append(next, of)
		}
	}
	for len(next) > 0 {
		id := next[0]
		if next = next[1:]; id == "" || mine[id] {
			continue
		}
		mine[id] = true
		h := w.dispatches[id]
		if h == nil {
			continue
		}
		for _, a := range h.attempts {
			next = append(next, a.reuses)
			if a.manifest == nil {
				continue // the manifest row reports it
			}
			next = append(next, a.manifest.Uses()...)
		}
	}
	return mine
}

// nameArtifacts marks the artifacts that decided: the subagents and
// schedules that were requested, and the grants and targets of the revisions that an entry put in
// force. What a manifest pins is marked where it is compared. A revision that no
// manifest and no entry names is refused.
func (v *verification) nameArtifacts() {
	pinned, ruled, requested := map[api.Digest]bool{}, map[api.Digest]bool{}, map[api.Ref]bool{}
	for _, h := range v.ordered {
		for _, a := range h.attempts {
			if m := a.manifest; m != nil {
				pinned[m.RevisionDigest], requested[api.RefTo(api.KindSubagent, m.Subagent)] = true, true
			}
		}
	}
	for i := range v.entries {
		if e := &v.entries[i]; e.ok && e.Kind == record.KindCatalogRevision {
			ruled[e.Refs[record.RefRevision]] = true
		}
		if ref, ok := scheduleOf(&v.entries[i]); ok && v.entries[i].ok {
			requested[ref] = true
		}
	}
	for d, r := range v.revisions {
		if !pinned[d] && !ruled[d] {
			v.rows[report.RowProvenance].Fail("catalog revision %s is not referenced", d.Short())
		}
		for ref, a := range r.doc.Artifacts {
			kind, _, err := ref.Split()
			if err == nil && (requested[ref] || ruled[d] && (kind == api.KindGrant || kind == api.KindTarget)) {
				v.docs.used.Store(a.Digest, nil)
			}
		}
	}
}
