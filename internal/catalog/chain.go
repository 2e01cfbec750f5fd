package catalog

import (
	"context"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Mark identifies a revision that a caller has seen and remembers. The zero
// value means that it has seen none.
type Mark struct {
	Number uint64     `json:"number"`
	Digest api.Digest `json:"digest,omitempty"`
}

// CheckHighWater refuses rev when it is older than seen, another revision of
// the same number, or one whose history does not contain seen. Signatures do
// not help there: an old revision was signed, too.
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
			break // seen.Number is 0 with a digest: no such revision
		}
		doc, d = before, doc.Previous
	}
	if doc.Number != seen.Number || d != seen.Digest {
		return fault(FaultRollback, nil, "catalog: the history of revision %d has %s as number %d, but %s was seen before", rev.Number(), d.Short(), doc.Number, seen.Digest.Short())
	}
	return nil
}

// Past is one revision of the history. That it is part of the history is
// proved by the head's signatures.
type Past struct {
	Number    uint64     `json:"number"`
	Digest    api.Digest `json:"digest"`
	CreatedAt time.Time  `json:"createdAt"`
	Author    string     `json:"author"`
	Reason    string     `json:"reason,omitempty"`
	Artifacts int        `json:"artifacts"`
}

// History returns the verified head and what came before it, newest first, at
// most limit of them; 0 means all.
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
