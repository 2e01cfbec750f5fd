package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	// LeafBatch is the largest number of entries that Leaves returns.
	LeafBatch = 4096
	// leafBytes is the size of the entries after which Leaves stops.
	leafBytes = 16 << 20
)

var errEnough = errors.New("enough for one call")

// Committed returns a channel that is closed after the next commit, and when the
// store closes. Get it before reading, and no commit is missed.
func (l *Ledger) Committed() <-chan struct{} { return l.store.Committed() }

// Leaves returns at most limit entries from number from on, in order and without
// a gap. limit is at most LeafBatch. It verifies their hashes, but does not
// decode them: Entry is empty.
func (l *Ledger) Leaves(ctx context.Context, from uint64, limit int) ([]Committed, error) {
	var list []Committed
	bytes := 0
	err := l.store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT "+hashedRow+" FROM audit_entry WHERE seq >= ? ORDER BY seq LIMIT ?", store.Args{int64(from), min(limit, LeafBatch)}, //nolint:gosec // G115: see append
			func(scan store.Scan) error {
				c, err := readHashed(scan)
				if want := from + uint64(len(list)); err == nil && c.Seq != want {
					err = fmt.Errorf("audit log: entry #%d is missing", want)
				}
				if err != nil {
					return err
				}
				list = append(list, c)
				if bytes += len(c.Leaf); bytes >= leafBytes {
					return errEnough
				}
				return nil
			})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return list, nil
}

// Admits returns why an entry of kind k must not be admitted now, or nil. While
// the tree is not kept, only operations that end work or only read are admitted:
// refusing those would protect no one. Commit calls Admits; callers of CommitAll
// call it first.
func (l *Ledger) Admits(k record.Kind) error {
	switch k { //nolint:exhaustive // all others begin work
	case record.KindCancelRequested, record.KindRunCancelled, record.KindRunPaused, record.KindQueuePaused,
		record.KindStopRequested, record.KindAuditRead, record.KindAccessAllowed, record.KindDispatchUnpinned, record.KindDispatchPinned:
		return nil
	}
	if err := l.admit(); err != nil {
		return unavailable(err)
	}
	return nil
}
