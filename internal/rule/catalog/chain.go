package catalog

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Mark identifies the latest revision that a caller has seen; the zero value means
// none.
type Mark struct {
	Number uint64     `json:"number"`
	Digest api.Digest `json:"digest,omitempty"`
}

// CheckHighWater refuses rev if it is older than seen, or if its history does not
// contain seen. Signatures cannot detect this: an old revision is signed, too.
func (c *Catalog) CheckHighWater(ctx context.Context, seen Mark, rev *Revision) error {
	switch {
	case rev == nil:
		return fault(FaultRollback, nil, "catalog: no revision, but revision %d (%s) was seen before", seen.Number, seen.Digest.Short())
	case seen == Mark{}:
		return nil
	case rev.Number() < seen.Number:
		return fault(FaultRollback, nil, "catalog: revision %d is older than revision %d (%s), which was seen before", rev.Number(), seen.Number, seen.Digest.Short())
	}
	doc, d := &rev.doc, rev.digest
	for doc.Number > seen.Number {
		before, err := c.previous(ctx, doc)
		if err != nil {
			return err
		}
		if before == nil {
			break // seen is invalid: number 0 with a digest
		}
		doc, d = before, doc.Previous
	}
	if doc.Number != seen.Number || d != seen.Digest {
		return fault(FaultRollback, nil, "catalog: the history of revision %d has %s as number %d, but %s was seen before", rev.Number(), d.Short(), doc.Number, seen.Digest.Short())
	}
	return nil
}

// History returns the verified head and the revisions before it, newest first, at
// most limit; 0 means all.
func (c *Catalog) History(ctx context.Context, limit int) ([]api.CatalogRevision, error) {
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	return c.HistoryOf(ctx, head, 0, limit)
}

// HistoryOf returns head and the revisions before it, newest first, or those older than
// the number before if that is not 0; at most limit, or all if that is 0. The
// signatures of head prove that they are its history. It reads a document for each
// revision from head to the oldest that it returns.
func (c *Catalog) HistoryOf(ctx context.Context, head *Revision, before uint64, limit int) ([]api.CatalogRevision, error) {
	all := []api.CatalogRevision{}
	err := c.walk(ctx, head, func(doc *api.Revision, d api.Digest) bool {
		if before == 0 || doc.Number < before {
			all = append(all, api.CatalogRevision{Number: doc.Number, Digest: d, CreatedAt: doc.CreatedAt, Author: doc.Author, Reason: doc.Reason, Artifacts: len(doc.Artifacts)})
		}
		return limit <= 0 || len(all) < limit
	})
	return all, err
}

// WithPrevious returns the revision with this number in the history of head, and the
// one before it, which is nil for the first. Both are verified as by Current, with
// their own signatures.
func (c *Catalog) WithPrevious(ctx context.Context, head *Revision, number uint64) (rev, before *Revision, err error) {
	var digest, previous api.Digest
	err = c.walk(ctx, head, func(doc *api.Revision, d api.Digest) bool {
		if doc.Number == number {
			digest, previous = d, doc.Previous
		}
		return doc.Number > number
	})
	switch {
	case err != nil:
		return nil, nil, err
	case digest == "":
		return nil, nil, api.Errorf(api.CodeNotFound, "revision %d: not in the catalog, whose current revision is %d", number, head.Number())
	case digest == head.digest:
		rev = head
	default:
		if rev, err = c.At(ctx, digest); err != nil {
			return nil, nil, fmt.Errorf("revision %d: %w", number, err)
		}
	}
	if number == 1 {
		return rev, nil, nil
	}
	if before, err = c.At(ctx, previous); err != nil {
		return nil, nil, fmt.Errorf("revision %d: %w", number-1, err)
	}
	return rev, before, nil
}

// walk calls fn for head and each revision before it, newest first, until fn returns
// false.
func (c *Catalog) walk(ctx context.Context, head *Revision, fn func(doc *api.Revision, d api.Digest) bool) error {
	doc, d := &head.doc, head.digest
	for fn(doc, d) {
		before, err := c.previous(ctx, doc)
		if err != nil || before == nil {
			return err
		}
		d, doc = doc.Previous, before
	}
	return nil
}
