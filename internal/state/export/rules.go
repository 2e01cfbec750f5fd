package export

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// catalog adds the revisions that were pinned or in force, with their signatures
// and those artifacts that determine what ran and what was allowed.
func (g *builder) catalog(ctx context.Context) error {
	wanted := map[api.Digest]map[api.Ref]bool{}
	want := func(d api.Digest, refs ...api.Ref) {
		if wanted[d] == nil {
			wanted[d] = map[api.Ref]bool{}
		}
		for _, r := range refs {
			wanted[d][r] = true
		}
	}
	var requested []api.Ref
	for i := range g.manifests {
		m := &g.manifests[i]
		want(m.RevisionDigest)
		for _, p := range m.Artifacts {
			want(m.RevisionDigest, p.Ref)
		}
		requested = append(requested, api.RefTo(api.KindSubagent, m.Subagent))
	}
	for _, seq := range g.seqs {
		if d, ok := g.entries[seq].Entry.Detail.(record.RunRequest); ok && d.Schedule != "" {
			requested = append(requested, api.RefTo(api.KindSchedule, api.Name(d.Schedule)))
		}
	}
	ruled := map[api.Digest]bool{} // whose grants may have decided
	for _, d := range g.inForce() {
		want(d, requested...)
		ruled[d] = true
	}
	if len(wanted) == 0 {
		return nil
	}
	cat, done, err := g.x.cfg.Catalog(ctx)
	if err != nil {
		return err
	}
	defer done()
	for d, refs := range wanted {
		if err := g.revision(ctx, cat, d, refs, ruled[d]); err != nil {
			return err
		}
	}
	slices.SortFunc(g.b.Case.Revisions, func(a, b bundle.Revision) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	return nil
}

// inForce returns the revisions that may have decided an admission.
func (g *builder) inForce() (list []api.Digest) {
	var now, before api.Digest
	var since time.Time
	for _, seq := range g.seqs {
		e := g.entries[seq].Entry
		switch {
		case e.Kind == record.KindCatalogRevision:
			now, before, since = e.Refs[record.RefRevision], now, e.At
		case e.Kind.Admits():
			if now != "" {
				list = append(list, now)
			}
			if before != "" && e.At.Sub(since).Abs() < record.RevisionGrace {
				list = append(list, before)
			}
		}
	}
	return list
}

func (g *builder) revision(ctx context.Context, cat Catalog, d api.Digest, refs map[api.Ref]bool, ruled bool) error {
	doc, envelopes, err := cat.Signed(ctx, d)
	if err != nil {
		return err
	}
	r := bundle.Revision{Digest: d, Envelopes: []api.Digest{}}
	for _, envelope := range envelopes {
		e := api.DigestOf(envelope)
		g.b.Documents[e], r.Envelopes = envelope, append(r.Envelopes, e)
	}
	g.b.Case.Revisions = append(g.b.Case.Revisions, r)
	for ref, entry := range doc.Artifacts {
		kind, _, err := ref.Split()
		if err != nil || !refs[ref] && (!ruled || kind != api.KindGrant && kind != api.KindTarget) {
			continue
		}
		if g.b.Documents[entry.Digest], err = cat.Artifact(ctx, entry.Digest); err != nil {
			return err
		}
	}
	return nil
}

// records adds the operators' records that the collected entries name.
func (g *builder) records(ctx context.Context) error {
	n := 0
	for _, seq := range g.seqs {
		if g.entries[seq].Entry.Kind == record.KindOperatorRecorded {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	list, err := g.x.cfg.Records(ctx, n)
	if err != nil {
		return err
	}
	for _, envelope := range list {
		d := api.DigestOf(envelope)
		g.b.Documents[d], g.b.Case.Records = envelope, append(g.b.Case.Records, d)
	}
	return nil
}
