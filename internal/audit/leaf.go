package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

const (
	// LeafBatch is how many entries Leaves returns at most.
	LeafBatch = 4096
	// leafBytes is how many bytes of entries are enough for one call.
	leafBytes = 16 << 20
)

var errEnough = errors.New("enough for one call")

// Committed returns a channel that is closed after the next commit, and when
// there will be none. Take it, then read, then wait: nothing is missed.
func (l *Ledger) Committed() <-chan struct{} { return l.store.Committed() }

// Leaves returns entries from number from on, in the order of the log and
// without a gap, at most LeafBatch of them. Each is held against its hash; none
// is decoded, so Entry is empty. The tree is fed from it.
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

// Admits says whether what an entry of kind k admits may begin now: while the
// tree is not kept only what ends something, or only reads, may: refusing that
// would protect nobody. Commit asks; who uses CommitAll asks before.
func (l *Ledger) Admits(k record.Kind) error {
	switch k { //nolint:exhaustive // whatever is not in the list begins something
	case record.KindCancelRequested, record.KindRunCancelled, record.KindRunPaused, record.KindQueuePaused,
		record.KindStopRequested, record.KindAuditRead, record.KindAccessAllowed, record.KindDispatchUnpinned, record.KindDispatchPinned:
		return nil
	}
	if err := l.admit(); err != nil {
		return unavailable(err)
	}
	return nil
}
