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
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Checker verifies, with the core that an auditor uses, what the service would
// hand out about everything that is over: a run once it is settled, a dispatch
// of its own once it is stated. It is behind everything else and holds up
// nothing: work that was done is done, and to stop what comes would not mend it.
// What does not verify is logged, counted, and shown in the status.
type Checker struct {
	x      *Exporter
	ledger *audit.Ledger
	trust  func(context.Context) (evidence.Trust, error)
	log    *slog.Logger
	held   evidence.Receipts

	mu   sync.Mutex
	said api.EvidenceStatus // guarded by mu
}

// NewChecker returns one that goes by what an auditor of this installation would
// be given. Receipts may be nil.
func NewChecker(x *Exporter, trust func(context.Context) (evidence.Trust, error), receipts evidence.Receipts, log *slog.Logger) *Checker {
	return &Checker{x: x, ledger: x.cfg.Ledger, trust: trust, held: receipts, log: log}
}

// Status says how many were checked and what came of it.
func (c *Checker) Status() api.EvidenceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// behind is how long before a service ended what came to its end may not have
// been checked.
const behind = time.Minute

// ends are the kinds of entries after which there is something to check.
func ends() []record.Kind { return []record.Kind{record.KindRunSettled, record.KindDispatchAttested} }

// unchecked is the first entry that the service before this one, whose last was
// the one before from, may not have come to.
func (c *Checker) unchecked(ctx context.Context, from uint64) uint64 {
	if from == 0 {
		return 0
	}
	last, err := c.ledger.List(ctx, audit.Query{Before: from, Newest: true, Limit: 1})
	if err != nil || len(last) == 0 {
		return from
	}
	first, err := c.ledger.List(ctx, audit.Query{Before: from, Since: last[0].Entry.At.Add(-behind), Kinds: ends(), Limit: 1})
	if err != nil || len(first) == 0 {
		return from
	}
	return first[0].Seq
}

// Run checks what comes to its end after the log has from entries, and what did
// just before, until ctx is done.
func (c *Checker) Run(ctx context.Context, from uint64) {
	q := audit.Query{From: c.unchecked(ctx, from), Kinds: ends()}
	for e, err := range c.ledger.Watch(ctx, q) {
		if err != nil {
			c.log.ErrorContext(ctx, "evidence is not checked any more", slog.Any("err", err))
			return
		}
		req := Request{Run: api.RunID(e.Entry.Run)}
		if e.Entry.Kind == record.KindDispatchAttested {
			if req = (Request{Dispatch: e.Entry.Dispatch}); c.ofRun(ctx, e.Entry.Dispatch) {
				continue // it is checked with its run
			}
		}
		c.check(ctx, req)
	}
}

// ofRun reports whether a dispatch is a task's.
func (c *Checker) ofRun(ctx context.Context, id api.DispatchID) bool {
	list, err := c.ledger.List(ctx, audit.Query{Dispatch: id, Kind: record.KindDispatchAccepted, Limit: 1})
	return err == nil && len(list) == 1 && list[0].Entry.Run != ""
}

// Report is what an auditor would say.
func (c *Checker) Report(ctx context.Context, req Request) (evidence.Report, error) {
	b, err := c.x.Bundle(ctx, req)
	if err != nil {
		return evidence.Report{}, err
	}
	t, err := c.trust(ctx)
	if err != nil {
		return evidence.Report{}, err
	}
	return evidence.Verify(b, t, evidence.Options{Receipts: c.held}), nil
}

func (c *Checker) check(ctx context.Context, req Request) {
	r, err := c.Report(ctx, req)
	if ctx.Err() != nil {
		return
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
			if row.Status == evidence.Fail {
				d.Rows, why = append(d.Rows, string(row.Row)), append(why, string(row.Row)+": "+row.Why)
			}
		}
		d.Message = strings.Join(why, "; ")
	}
	if d.Message != "" {
		c.log.ErrorContext(ctx, "evidence does not verify", slog.String("subject", cmp.Or(d.Run, d.Dispatch)), slog.String("reason", d.Message))
		if _, err := c.ledger.Record(ctx, record.Entry{Kind: record.KindEvidenceRefused, Detail: d}, nil); err != nil {
			c.log.ErrorContext(ctx, "and that cannot be logged", slog.Any("err", err))
		}
	}
	c.mu.Lock() // who is told of it finds it in the log
	defer c.mu.Unlock()
	c.said.Checked++
	if d.Message != "" {
		c.said.Refused++
		c.said.Last = d.Message
	}
}
