package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ErrNotRemovable is the error of Dispatches.MarkRemoved for a dispatch that is
// pinned, has not ended, or is already marked.
var ErrNotRemovable = errors.New("the dispatch must be kept")

// Dispatches are the records.
type Dispatches interface {
	// Items calls each for every dispatch, with every digest that it refers to. It
	// fails if one cannot be read: its blobs could seem unreferenced.
	Items(ctx context.Context, each func(Item) error) error
	// MarkRemoved notes a removal in the record.
	MarkRemoved(tx *store.Tx, id api.DispatchID, r api.Removal) error
}

// Config configures a Collector.
type Config struct {
	Store      *store.Store // opened with Migration among its migrations
	Ledger     *audit.Ledger
	Blobs      *blob.Store // opened with Config.Swept
	Dispatches Dispatches
	Checkouts  Checkouts // may be nil
	Runs       Runs      // may be nil
	Rules      Rules
	Every      time.Duration // interval of collections in the background; 0: none
	Database   string        // directory of the state database
	Attempts   string        // directory of the attempts in progress
	Now        func() time.Time
	Logger     *slog.Logger
	Room       func() error // makes room for a collection on a full disk; may be nil
}

// Migration is the schema of this package: the time of the last collection, and
// whether marked files are yet to be removed.
func Migration() store.Migration {
	return store.Migration{Owner: "retain", Steps: []string{`
CREATE TABLE retain_run (
	one     INTEGER PRIMARY KEY CHECK (one = 1),
	at      INTEGER NOT NULL, -- nanoseconds since 1970; 0: never
	pending INTEGER NOT NULL  -- 1: what is marked may not be removed yet
) STRICT;`}}
}

// Collector collects on request and in the background, and measures disk usage.
type Collector struct {
	cfg  Config
	turn chan struct{} // a mutex with a context, of collections and measurements
	gauge

	work *background.Keeper
}

// Open starts collecting in the background: first what an earlier service marked
// and did not remove, then on schedule.
func Open(ctx context.Context, cfg Config) (*Collector, error) {
	if err := cfg.Rules.Check(); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "retention: %w", err)
	}
	gc := &Collector{cfg: cfg, turn: make(chan struct{}, 1), gauge: gauge{wanted: background.NewSignal()}}
	gc.turn <- struct{}{}
	last, pending, err := gc.lastRun(ctx)
	if err != nil {
		return nil, err
	}
	s := schedule{every: cfg.Every, last: last, pending: pending, now: cfg.Now, jitter: rand.N[time.Duration], collect: gc.bySchedule}
	gc.work = background.Start(ctx)
	gc.work.Go(s.run)
	gc.work.Go(gc.measureWanted)
	return gc, nil
}

// Close stops the background work.
func (gc *Collector) Close() error {
	gc.work.Close()
	return nil
}

func (gc *Collector) lastRun(ctx context.Context) (last time.Time, pending bool, err error) {
	var at int64
	err = gc.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT at, pending FROM retain_run", nil, &at, &pending)
	})
	if errors.Is(err, store.ErrNoRow) {
		return time.Time{}, false, nil
	}
	if at == 0 {
		return time.Time{}, pending, err
	}
	return time.Unix(0, at), pending, err
}

func (gc *Collector) bySchedule(ctx context.Context) {
	report, err := gc.Collect(ctx, "", false)
	if err != nil && ctx.Err() == nil {
		gc.cfg.Logger.ErrorContext(ctx, "collection failed; the next one retries", slog.Any("err", err))
	}
	if n := len(report.Dispatches) + len(report.Checkouts) + len(report.Runs) + report.Unreferenced.Blobs; n > 0 {
		gc.cfg.Logger.InfoContext(ctx, "collected", slog.Int("dispatches", len(report.Dispatches)), slog.Int("runs", len(report.Runs)), slog.Int("checkouts", len(report.Checkouts)),
			slog.Int("blobs", report.Unreferenced.Blobs), slog.Int64("bytes", report.Unreferenced.Bytes))
	}
}

// Collect removes what the rules select and unreferenced blobs; by is the caller,
// empty for the service itself. With dryRun it changes nothing. The report of a
// failed collection lists what was marked: that is durable, and the next
// collection removes the files.
func (gc *Collector) Collect(ctx context.Context, by api.Principal, dryRun bool) (api.GCReport, error) {
	report := api.GCReport{DryRun: dryRun, Rules: append([]string{}, gc.cfg.Rules.Strings()...), Dispatches: []api.GCRemoval{}, Checkouts: []api.GCRemoval{}, Runs: []api.GCRemoval{}}
	if err := gc.enter(ctx); err != nil {
		return report, err
	}
	defer gc.leave()
	if gc.cfg.Room != nil && !dryRun {
		if err := gc.cfg.Room(); err != nil {
			return report, api.Errorf(api.CodeUnavailable, "%w", err)
		}
	}
	if err := gc.trim(ctx, &report); err != nil {
		return report, fmt.Errorf("checkouts: %w", err)
	}
	if err := gc.expireRuns(ctx, by, gc.cfg.Now().UTC(), &report); err != nil {
		return report, fmt.Errorf("runs: %w", err)
	}
	var err error
	for range 10 {
		// A dispatch may be pinned after the survey: survey again.
		if err = gc.collect(ctx, by, &report); !errors.Is(err, ErrNotRemovable) {
			break
		}
	}
	return report, err
}

func (gc *Collector) enter(ctx context.Context) error {
	select {
	case <-gc.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (gc *Collector) leave() { gc.turn <- struct{}{} }

// collect removes content, evidence and unreferenced blobs once.
func (gc *Collector) collect(ctx context.Context, by api.Principal, report *api.GCReport) (err error) {
	// Before the survey: blobs stored from now on are protected.
	sweep, err := gc.cfg.Blobs.Sweep()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sweep.Close()) }()
	v, err := gc.survey(ctx)
	if err != nil {
		return err
	}
	report.Pinned, report.Waiting = v.pinned, v.waiting
	loose := v.refCounts.loose(sweep.Protected)
	now := gc.cfg.Now().UTC()
	plan := gc.cfg.Rules.plan(v.removable, v.refCounts, now)
	if report.DryRun {
		for _, r := range plan {
			report.Dispatches = append(report.Dispatches, r.report())
		}
		free := v.refCounts.loose(sweep.Protected)
		report.Unreferenced, report.Kept = free.count(), v.refCounts.keptCount()
		return nil
	}
	if err := gc.mark(ctx, by, now, plan, report); err != nil {
		return err
	}
	if err := gc.logLoose(ctx, by, loose.count()); err != nil {
		return err
	}
	if err := gc.remove(ctx, sweep, v.refCounts, report); err != nil {
		return err
	}
	report.Kept = v.refCounts.keptCount()
	return gc.cfg.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO retain_run(one, at, pending) VALUES (1, ?, 0) ON CONFLICT DO UPDATE SET at = excluded.at, pending = 0", now.UnixNano())
		return err
	})
}

func (r removal) report() api.GCRemoval {
	return api.GCRemoval{Class: r.class, Dispatch: r.id, Rule: r.rule, Bytes: r.bytes}
}

// maxBatch is the number of dispatches in one entry: the limit of its list.
const maxBatch = 32

// mark makes the plan durable: marks and entry in one transaction per batch.
func (gc *Collector) mark(ctx context.Context, by api.Principal, now time.Time, plan []removal, report *api.GCReport) error {
	for len(plan) > 0 {
		n := 1
		for n < min(len(plan), maxBatch) && plan[n].class == plan[0].class && plan[n].rule == plan[0].rule {
			n++
		}
		batch := plan[:n]
		plan = plan[n:]
		detail := record.Removal{Class: string(batch[0].class), Rule: batch[0].rule, Items: int64(n)}
		for _, r := range batch {
			detail.Dispatches, detail.Bytes = append(detail.Dispatches, string(r.id)), detail.Bytes+r.bytes
		}
		failpoint.Hit(failpoint.RetainCommit, string(batch[0].id))
		_, err := gc.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindRetentionRemoved, Principal: by, Detail: detail}, func(tx *store.Tx) error {
			for _, r := range batch {
				if err := gc.cfg.Dispatches.MarkRemoved(tx, r.id, api.Removal{Class: r.class, At: now, Rule: r.rule, By: by}); err != nil {
					return err
				}
			}
			_, err := tx.Exec("INSERT INTO retain_run(one, at, pending) VALUES (1, 0, 1) ON CONFLICT DO UPDATE SET pending = 1")
			return err
		})
		failpoint.Hit(failpoint.RetainCommitted, string(batch[0].id))
		if err != nil {
			return err
		}
		for _, r := range batch {
			report.Dispatches = append(report.Dispatches, r.report())
		}
	}
	return nil
}

// logLoose logs the removal of blobs that were unreferenced before any mark.
func (gc *Collector) logLoose(ctx context.Context, by api.Principal, n api.GCCount) error {
	if n.Blobs == 0 {
		return nil
	}
	_, err := gc.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindRetentionRemoved, Principal: by, Detail: record.Removal{
		Class: classUnreferenced, Rule: "nothing refers to it", Items: int64(n.Blobs), Bytes: n.Bytes,
	}}, nil)
	return err
}

// classUnreferenced is the class of unreferenced blobs in entries.
const classUnreferenced = "unreferenced"

// remove removes the blobs without references in h.
func (gc *Collector) remove(ctx context.Context, sweep *blob.Sweep, h refCounts, report *api.GCReport) error {
	for key, c := range h {
		if !c.here || c.referred() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		gone, err := sweep.Remove(key.digest())
		if err != nil {
			return err
		}
		failpoint.Hit(failpoint.RetainBlob, string(key.digest()))
		if !gone {
			report.Spared++
			continue
		}
		c.here = false
		report.Unreferenced.Blobs++
		report.Unreferenced.Bytes += c.size
	}
	return nil
}
