package retention

import (
	"context"
	"errors"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Runs are the stored runs.
type Runs interface {
	// Expired returns the runs that were settled before a time, oldest first.
	Expired(ctx context.Context, before time.Time) ([]Run, error)
	// Remove removes the rows and the plan of a settled run. The error is
	// ErrNotRemovable when it must be kept.
	Remove(tx *store.Tx, id api.RunID) error
}

// Run is a settled run.
type Run struct {
	ID    api.RunID
	Bytes int64 // of its rows
	Kept  bool  // a dispatch of it is pinned, or a stored run retries it: its evidence needs this one
}

// expireRuns removes the rows of runs, in the transaction of the entry that names
// them. A run that is pinned meanwhile ends the collection of runs.
func (gc *Collector) expireRuns(ctx context.Context, by api.Principal, now time.Time, report *api.GCReport) error {
	if gc.cfg.Runs == nil || gc.cfg.Rules.Runs == 0 {
		return nil
	}
	list, err := gc.cfg.Runs.Expired(ctx, now.Add(-gc.cfg.Rules.Runs))
	if err != nil {
		return err
	}
	rule := ageRule(api.ClassRuns, gc.cfg.Rules.Runs)
	var batch []Run
	for i, r := range list {
		if r.Kept {
			report.KeptRuns++
		} else {
			batch = append(batch, r)
		}
		if len(batch) == 0 || len(batch) < maxBatch && i < len(list)-1 {
			continue
		}
		if !report.DryRun {
			err := gc.removeRuns(ctx, by, rule, batch)
			if errors.Is(err, ErrNotRemovable) {
				return nil // the next collection looks again
			}
			if err != nil {
				return err
			}
		}
		for _, r := range batch {
			report.Runs = append(report.Runs, api.GCRemoval{Class: api.ClassRuns, Run: r.ID, Rule: rule, Bytes: r.Bytes})
		}
		batch = nil
	}
	return nil
}

func (gc *Collector) removeRuns(ctx context.Context, by api.Principal, rule string, batch []Run) error {
	detail := record.Removal{Class: string(api.ClassRuns), Rule: rule, Items: int64(len(batch))}
	for _, r := range batch {
		detail.Runs, detail.Bytes = append(detail.Runs, string(r.ID)), detail.Bytes+r.Bytes
	}
	_, err := gc.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindRetentionRemoved, Principal: by, Detail: detail}, func(tx *store.Tx) error {
		for _, r := range batch {
			if err := gc.cfg.Runs.Remove(tx, r.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
