package audit

import (
	"context"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// RemovedRun returns the entry by which retention removed the rows of a run that
// entry from or a later one submitted, or nil.
func (l *Ledger) RemovedRun(ctx context.Context, id api.RunID, from uint64) (*record.Entry, error) {
	for {
		list, err := l.List(ctx, Query{From: from, Kind: record.KindRetentionRemoved, Limit: maxLimit})
		if err != nil {
			return nil, err
		}
		for i := range list {
			if d, ok := list[i].Entry.Detail.(record.Removal); ok && slices.Contains(d.Runs, string(id)) {
				return &list[i].Entry, nil
			}
			from = list[i].Seq + 1
		}
		if len(list) < maxLimit {
			return nil, nil //nolint:nilnil // as documented
		}
	}
}
