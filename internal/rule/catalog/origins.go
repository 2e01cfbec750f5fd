package catalog

import (
	"context"
	"maps"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Origins says when the current content of each name was published.
type Origins struct {
	of    Mark
	times map[api.Ref]time.Time
}

// Time returns when the current content of a name was published; zero for an unknown
// name.
func (o Origins) Time(ref api.Ref) time.Time { return o.times[ref] }

// Of returns the revision that the origins are of.
func (o Origins) Of() Mark { return o.of }

// Origins walks the history of rev until it has found, for each name, the revision
// that introduced its current content. known, of an earlier revision or zero, ends
// the walk early.
func (c *Catalog) Origins(ctx context.Context, rev *Revision, known Origins) (Origins, error) {
	found := Origins{of: rev.Mark(), times: map[api.Ref]time.Time{}}
	open := maps.Clone(rev.doc.Artifacts) // names with the same content in doc
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
