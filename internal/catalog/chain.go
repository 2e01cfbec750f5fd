package catalog

import (
	"context"
	"time"

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

// Past is a revision of the history. The head's signatures prove that it is part of
// the history.
type Past struct {
	Number    uint64     `json:"number"`
	Digest    api.Digest `json:"digest"`
	CreatedAt time.Time  `json:"createdAt"`
	Author    string     `json:"author"`
	Reason    string     `json:"reason,omitempty"`
	Artifacts int        `json:"artifacts"`
}

// History returns the verified head and the revisions before it, newest first, at
// most limit; 0 means all.
func (c *Catalog) History(ctx context.Context, limit int) ([]Past, error) {
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	var all []Past
	doc, d := &head.doc, head.digest
	for doc != nil && (limit <= 0 || len(all) < limit) {
		all = append(all, Past{doc.Number, d, doc.CreatedAt, doc.Author, doc.Reason, len(doc.Artifacts)})
		before, err := c.previous(ctx, doc)
		if err != nil {
			return nil, err
		}
		d, doc = doc.Previous, before
	}
	return all, nil
}
