package catalog

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Signed returns a revision document by its digest and the envelopes that are
// attached to it, for who hands them on to be verified. It verifies nothing but
// digests: a root that has changed since does not keep evidence back.
func (c *Catalog) Signed(ctx context.Context, d api.Digest) (api.Revision, [][]byte, error) {
	idx, err := c.index(ctx)
	if err != nil {
		return api.Revision{}, nil, err
	}
	doc, err := c.document(ctx, d)
	if err != nil {
		return api.Revision{}, nil, err
	}
	desc, ok := idx.tags[TagOf(doc.Number)]
	if !ok {
		return api.Revision{}, nil, fault(FaultUnsigned, nil, "revision %d (%s): not in the catalog's index", doc.Number, d.Short())
	}
	envelopes, err := c.envelopes(ctx, idx, desc.Digest)
	return doc, envelopes, err
}
