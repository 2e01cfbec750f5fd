package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// refusalGroup is how many refused requests one transaction of the log has at most,
// so that an agent which floods them does not keep others waiting.
const refusalGroup = 100

// maxMessage bounds a line of a worker's files.
const maxMessage = 1 << 20

// refusals logs the refused requests of one attempt, each once. A worker repeats all
// of them on every connection.
type refusals struct {
	*records
	row     row
	logging sync.WaitGroup // of log, started by report

	mu      sync.Mutex
	pending []record.EgressRefusal // guarded by mu
	busy    bool                   // something logs; guarded by mu
	logged  map[int64]bool         // by number; nil: not read from the log yet; used by what logs
}

// add accepts what a worker reports, or its files have. It returns true where nothing
// logs it.
func (r *refusals) add(e record.EgressRefusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e = e.Short(); e.Number < 1 || len(r.pending) >= record.MaxRefusals {
		return false
	}
	idle := !r.busy
	r.pending, r.busy = append(r.pending, e), true
	return idle
}

// report logs a refusal soon, together with those that come meanwhile. What fails is
// logged by completeRefusals.
func (r *refusals) report(ctx context.Context, e record.EgressRefusal) {
	if !r.add(e) {
		return
	}
	r.logging.Go(func() {
		if err := r.log(ctx); err != nil && ctx.Err() == nil {
			r.logger(&r.row.record).ErrorContext(ctx, "refused requests are not logged yet; the end of the attempt retries", slog.Any("err", err))
		}
	})
}

// log makes everything that was added durable.
func (r *refusals) log(ctx context.Context) error {
	for {
		group := r.next()
		if len(group) == 0 {
			return nil
		}
		err := r.load(ctx)
		if err == nil {
			err = r.commit(ctx, group)
		}
		if err != nil {
			r.mu.Lock()
			r.pending, r.busy = nil, false
			r.mu.Unlock()
			return err
		}
	}
}

// next returns the next group to log.
func (r *refusals) next() []record.EgressRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.pending), refusalGroup)
	group := r.pending[:n:n]
	r.pending, r.busy = r.pending[n:], n > 0
	return group
}

func (r *refusals) commit(ctx context.Context, group []record.EgressRefusal) error {
	var items []audit.Item
	var numbers []int64
	for _, e := range group {
		if r.logged[e.Number] || len(r.logged) >= record.MaxRefusals {
			continue
		}
		r.logged[e.Number] = true
		numbers = append(numbers, e.Number)
		items = append(items, audit.Item{Entry: lifeEntry(record.KindEgressRefused, r.row, e)})
	}
	if len(items) == 0 {
		return nil
	}
	failpoint.Hit(failpoint.RefuseCommit, string(r.row.record.ID))
	err := r.cfg.Ledger.CommitAll(ctx, items, func(tx *store.Tx) error {
		now, ok, err := load(tx, r.row.record.ID)
		if err == nil && (!ok || now.record.State != api.EventStarted || now.record.Attempt != r.row.record.Attempt) {
			err = errEnded
		}
		return err
	})
	failpoint.Hit(failpoint.RefuseCommitted, string(r.row.record.ID))
	if err != nil {
		for _, n := range numbers {
			delete(r.logged, n)
		}
	}
	return err
}

// load reads what the log has already.
func (r *refusals) load(ctx context.Context) error {
	if r.logged != nil {
		return nil
	}
	logged := map[int64]bool{}
	err := r.cfg.Store.Read(ctx, func(v *store.View) error {
		return audit.Each(v, audit.Query{Dispatch: r.row.record.ID, Kind: record.KindEgressRefused}, func(c *audit.Committed) error {
			if d, ok := c.Entry.Detail.(record.EgressRefusal); ok && c.Entry.Attempt == r.row.record.Attempt {
				logged[d.Number] = true
			}
			return nil
		})
	})
	if err == nil {
		r.logged = logged
	}
	return err
}

// completeRefusals logs the refused requests that the files of a worker have and the
// log does not, before the end of the attempt. The worker may have reported them
// while no service listened, or been killed.
func (f workFiles) completeRefusals(ctx context.Context, r row) error {
	if r.record.State != api.EventStarted {
		return nil
	}
	c := &refusals{records: f.records, row: r}
	dir := f.dir(&r)
	// What it reported comes first: of more than MaxRefusals, those are signed.
	err := eachLineOf(dir, record.WorkEvents, func(m *record.WorkerMessage) {
		if m.Refused != nil {
			c.add(*m.Refused)
		}
	})
	if err == nil {
		err = c.log(ctx)
	}
	if err == nil {
		err = eachLineOf(dir, record.WorkNetwork, func(line *api.NetworkLine) {
			if e, ok := record.RefusalOf(line); ok {
				c.add(e)
			}
		})
	}
	if err == nil {
		err = c.log(ctx)
	}
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// eachLineOf is eachLine for a file of an attempt, which may be absent.
func eachLineOf[T any](dir, name string, fn func(*T)) error {
	f, err := openWork(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(eachLine(f, fn), f.Close())
}
