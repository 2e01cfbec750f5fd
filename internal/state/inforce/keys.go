package inforce

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// keysSeen returns the newest set of deploy keys in the log; zero: only the
// first set was seen, which needs no entry.
func keysSeen(v store.Reader) (seal.TrustMark, error) {
	last, err := audit.Last(v, record.KindCatalogKeys)
	if err != nil || last == nil {
		return seal.TrustMark{}, err
	}
	d, _ := last.Entry.Detail.(record.DeployKeysSeen)
	return seal.TrustMark{First: api.Digest(d.First), Number: uint64(d.Set), Digest: api.Digest(d.Digest)}, nil //nolint:gosec // G115: numbers count up from 1
}

// followKeys refuses a set of deploy keys that an accepted one has replaced, and logs a new
// one before anything is decided by it.
func (r *Reader) followKeys(ctx context.Context, root seal.TrustRoot) error {
	next := r.keys
	if err := next.Follow(root); err != nil {
		return err
	}
	if next == r.keys || r.keys == (seal.TrustMark{}) && next.Number == 1 {
		return nil
	}
	d := record.DeployKeysSeen{First: string(next.First), Set: int64(next.Number), Digest: string(next.Digest), Threshold: int64(root.Threshold)} //nolint:gosec // G115: numbers count up from 1
	for _, k := range root.Keys {
		d.Keys = append(d.Keys, string(k.ID))
	}
	if _, err := r.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindCatalogKeys, Detail: d}, nil); err != nil {
		return err
	}
	r.keys = next
	return nil
}
