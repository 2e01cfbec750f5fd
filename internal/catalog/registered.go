package catalog

import (
	"context"
	"maps"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Origins says when the content that each name means came into the catalog.
type Origins struct {
	of    Mark
	times map[api.Ref]time.Time
}

// Time returns when the present content of a name came; zero for a name that
// there is not.
func (o Origins) Time(ref api.Ref) time.Time { return o.times[ref] }

// Of is the revision whose names these are.
func (o Origins) Of() Mark { return o.of }

// Origins goes back through the history of rev until it knows, for each of its
// names, the first of the revisions since which the name has meant the same.
// What was found out about an earlier revision (the zero value: nothing) saves
// going on from there.
func (c *Catalog) Origins(ctx context.Context, rev *Revision, known Origins) (Origins, error) {
	found := Origins{of: rev.Mark(), times: map[api.Ref]time.Time{}}
	open := maps.Clone(rev.doc.Artifacts) // names that meant the same in doc
	for doc, d := &rev.doc, rev.digest; ; {
		if (Mark{doc.Number, d}) == known.of {
			for ref := range open {
				found.times[ref] = known.times[ref]
			}
			return found, nil
		}
		before, err := c.previous(ctx, doc)
		if err != nil {
			return Origins{}, err
		}
		for ref, e := range open {
			if before == nil || before.Artifacts[ref].Digest != e.Digest {
				found.times[ref] = doc.CreatedAt
				delete(open, ref)
			}
		}
		if len(open) == 0 {
			return found, nil
		}
		d, doc = doc.Previous, before
	}
}
