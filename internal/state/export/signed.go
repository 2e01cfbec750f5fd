package export

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// Signed returns the signed documents that an entry names, as a bundle.Signed.
func (x *Exporter) Signed(ctx context.Context, seq uint64) ([]byte, error) {
	c, err := x.cfg.Ledger.Get(ctx, seq)
	if err != nil {
		return nil, err
	}
	ref := c.Entry.SignedRef()
	if ref == "" {
		return nil, api.Errorf(api.CodeNotFound, "entry #%d names no signed document", seq)
	}
	doc := bundle.Signed{V: 1}
	switch d := c.Entry.Detail.(type) {
	case record.OperatorDecision:
		one, err := x.cfg.Record(ctx, d.Number)
		if err != nil {
			return nil, err
		}
		doc.Envelopes = [][]byte{one}
	case record.RevisionSeen:
		if doc.Envelopes, err = x.revision(ctx, c.Entry.Refs[ref]); err != nil {
			return nil, err
		}
	case record.KeyRotation:
		for _, envelope := range x.cfg.Rotations {
			if api.DigestOf(envelope) == c.Entry.Refs[ref] {
				doc.Envelopes = [][]byte{envelope}
			}
		}
	}
	if len(doc.Envelopes) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "the %s %s of entry #%d is not stored", ref, c.Entry.Refs[ref].Short(), seq)
	}
	return doc.Encode()
}

// revision returns the envelopes of a catalog revision.
func (x *Exporter) revision(ctx context.Context, d api.Digest) ([][]byte, error) {
	from, done, err := x.cfg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	_, envelopes, err := from.Signed(ctx, d)
	return envelopes, err
}
