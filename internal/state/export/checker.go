package export

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// Checker verifies the evidence about each run once it is settled, and about each
// other dispatch once it is attested, with the code that auditors use. It runs in
// the background and blocks no work: that would not repair evidence. Failures are
// logged, counted and shown in the status.
type Checker struct {
	x      *Exporter
	ledger *audit.Ledger
	trust  func(context.Context) (evidence.Trust, error)
	log    *slog.Logger

	mu     sync.Mutex
	status api.EvidenceStatus // guarded by mu
}

// NewChecker returns a Checker with the trust of an auditor of this installation.
func NewChecker(x *Exporter, trust func(context.Context) (evidence.Trust, error), log *slog.Logger) *Checker {
	return &Checker{x: x, ledger: x.cfg.Ledger, trust: trust, log: log}
}

// Status returns how many bundles were checked and refused.
func (c *Checker) Status() api.EvidenceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// recheck is how far before the last entry of an earlier service the Checker
// starts: it may have stopped before it had checked what ended in that time.
const recheck = time.Minute

// ends returns the kinds of entries after which evidence can be checked.
func ends() []record.Kind { return []record.Kind{record.KindRunSettled, record.KindDispatchAttested} }

// unchecked returns the number of the first entry that the earlier service, which
// wrote the entries before from, may not have checked.
func (c *Checker) unchecked(ctx context.Context, from uint64) uint64 {
	if from == 0 {
		return 0
	}
	last, err := c.ledger.List(ctx, audit.Query{Before: from, Newest: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return from
	}
	first, err := c.ledger.List(ctx, audit.Query{Before: from, Since: last[0].Entry.At.Add(-recheck), Kinds: ends(), Limit: 1})
	if err != nil || len(first) == 0 {
		return from
	}
	return first[0].Seq
}

// Run checks the evidence about all that ends after the first from entries, and
// shortly before, until ctx is done.
func (c *Checker) Run(ctx context.Context, from uint64) {
	q := audit.Query{From: c.unchecked(ctx, from), Kinds: ends()}
	for e, err := range c.ledger.Watch(ctx, q) {
		if err != nil {
			c.log.ErrorContext(ctx, "evidence is no longer checked", slog.Any("err", err))
			return
		}
		req := Request{Run: api.RunID(e.Entry.Run)}
		if e.Entry.Kind == record.KindDispatchAttested {
			if req = (Request{Dispatch: e.Entry.Dispatch}); c.ofRun(ctx, e.Entry.Dispatch) {
				continue // checked with its run
			}
		}
		c.check(ctx, req)
	}
}

// ofRun reports whether a dispatch belongs to a run.
func (c *Checker) ofRun(ctx context.Context, id api.DispatchID) bool {
	list, err := c.ledger.List(ctx, audit.Query{Dispatch: id, Kind: record.KindDispatchAccepted, Limit: 1})
	return err == nil && len(list) == 1 && list[0].Entry.Run != ""
}

// Report returns the report that an auditor would get.
func (c *Checker) Report(ctx context.Context, req Request) (report.Report, error) {
	b, err := c.x.Bundle(ctx, req)
	if err != nil {
		return report.Report{}, err
	}
	t, err := c.trust(ctx)
	if err != nil {
		return report.Report{}, err
	}
	return evidence.Verify(b, t, evidence.Options{}), nil
}

// faultPause is how long the Checker waits after a fault of the machine, and for
// statements that cannot be signed now: until then there is no evidence at all.
const faultPause = time.Second

func (c *Checker) check(ctx context.Context, req Request) {
	r, err := c.Report(ctx, req)
	for (durable.IsFault(err) || api.CodeOf(err) == api.CodeNotFinished) && background.Pause(ctx, faultPause) == nil {
		r, err = c.Report(ctx, req)
	}
	if ctx.Err() != nil || errors.Is(err, store.ErrPoisoned) {
		return // the next service checks it; a fault of the machine says nothing about evidence
	}
	if err != nil && req.Run != "" {
		if removed, err := c.ledger.RemovedRun(ctx, req.Run, 0); err == nil && removed != nil {
			return // it has expired under a short rule of retention
		}
	}
	d := record.EvidenceRefused{Run: string(req.Run), Dispatch: string(req.Dispatch), Rows: []string{}}
	switch {
	case err != nil:
		d.Message = err.Error()
		if e, ok := errors.AsType[*api.Error](err); ok {
			d.Message = e.Message
		}
	case r.Failed():
		var why []string
		for _, row := range r.Rows {
			if row.Status == report.Fail {
				d.Rows, why = append(d.Rows, string(row.Row)), append(why, string(row.Row)+": "+row.Why)
			}
		}
		d.Message = strings.Join(why, "; ")
	}
	if d.Message != "" {
		c.log.ErrorContext(ctx, "evidence does not verify", slog.String("subject", cmp.Or(d.Run, d.Dispatch)), slog.String("reason", d.Message))
		if _, err := c.ledger.Record(ctx, record.Entry{Kind: record.KindEvidenceRefused, Detail: d}, nil); err != nil {
			c.log.ErrorContext(ctx, "cannot log that evidence does not verify", slog.Any("err", err))
		}
	}
	c.mu.Lock() // after the entry, so that a reader of the status finds it in the log
	defer c.mu.Unlock()
	c.status.Checked++
	if d.Message != "" {
		c.status.Refused++
		c.status.Last = d.Message
	}
}
