package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// recover resolves every dispatch that has not ended in the records.
func (l *lifecycle) recover(ctx context.Context) error {
	open, err := l.list(ctx, unfinished)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverBegin, "")
	for _, r := range open {
		failpoint.Hit(failpoint.RecoverOne, string(r.record.ID))
		w, err := l.cfg.Executor.Attach(ctx, l.files.dir(&r))
		switch {
		case err == nil:
			failpoint.Hit(failpoint.RecoverAttached, string(r.record.ID))
			err = l.logRecovered(ctx, r, "running")
			l.supervise(r, w)
		case errors.Is(err, executor.ErrNoWorker):
			err = l.resolve(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("dispatch %s: %w", r.record.ID, err)
		}
	}
	if err := l.recoverCancelled(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverSweep, "")
	l.work.Go(l.cfg.Sweep)
	if err := l.files.removeFinished(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverEnd, "")
	return nil
}

// recoverCancelled ends the dispatches that were cancelled while they waited
// for an answer, where the service stopped between the two entries.
func (l *lifecycle) recoverCancelled(ctx context.Context) error {
	list, err := l.list(ctx, waiting)
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.record.CancelBy != "" {
			if err := l.endWaiting(ctx, r, cancelled(r.record)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *records) list(ctx context.Context, which func(store.Reader) ([]row, error)) (list []row, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		list, err = which(v)
		return err
	})
	return list, err
}

// resolve handles a dispatch without a worker. One that never began is started,
// as the log admitted it; any other has the outcome that its directory says.
func (l *lifecycle) resolve(ctx context.Context, r row) error {
	m, err := l.manifest(ctx, r.record.Manifest)
	if err != nil {
		return err
	}
	// Until a key is bound no worker proceeds, so nothing can have happened yet.
	if r.key != "" || r.record.CancelBy != "" || m.Check(l.cfg.Now()) != nil {
		if err := l.logRecovered(ctx, r, "ended"); err != nil {
			return err
		}
		err := l.collect(ctx, r)
		if durable.IsFault(err) && !errors.Is(err, store.ErrPoisoned) {
			l.work.Go(func() { l.settle(r) }) // the service must start on a full disk, for gc
			return nil
		}
		return err
	}
	kind := admissionKind(m.Attempt)
	entries, err := l.cfg.Ledger.List(ctx, audit.Query{Dispatch: m.ID, Kind: kind, Limit: 1, Newest: true})
	if err != nil || len(entries) == 0 {
		return errors.Join(err, errors.New("the log has no entry that admits it"))
	}
	admission, err := l.cfg.Ledger.Readmit(ctx, kind, entries[0].Seq)
	if err != nil {
		return err
	}
	if err := l.logRecovered(ctx, r, "absent"); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverRefire, string(r.record.ID))
	// A worker that never proceeded may have left files.
	if err := os.RemoveAll(l.files.dir(&r)); err != nil {
		return err
	}
	l.launch(admission, r, m)
	return nil
}

// logRecovered logs in which state a restarted service found a worker.
func (l *lifecycle) logRecovered(ctx context.Context, r row, worker string) error {
	_, err := l.cfg.Ledger.Record(ctx, lifeEntry(record.KindDispatchRecovered, r, record.DispatchRecovery{State: string(r.record.State), Worker: worker}), nil)
	failpoint.Hit(failpoint.RecoverFound, string(r.record.ID))
	if err == nil {
		l.observeRecovered(ctx, r, worker)
	}
	return err
}

// admissionKind is the kind of entry that admits an attempt: the request admits
// the first attempt, and an answer every later one.
func admissionKind(attempt int) record.Kind {
	if attempt == 1 {
		return record.KindDispatchAccepted
	}
	return record.KindDispatchAnswered
}
