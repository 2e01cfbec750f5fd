// Package dispatch turns a request into a running worker and a durable record.
//
// The order is fixed: policy decides, the log makes the decision durable and
// yields an Admission, and only an Admission starts a worker. Whether the
// service saw a worker end or finds its directory after a restart, the same
// code collects what it left. The package does not know the orchestrator.
//
// Carries R-D1, R-D2, R-D3, R-D4, R-D5, R-B5 (the service's half) and R-B7.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/executor"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Config is what a Service is made of.
type Config struct {
	Dirs     api.Dirs
	Store    *store.Store
	Ledger   *audit.Ledger
	Blobs    *blob.Store // of the state, not of the catalog
	Key      seal.Signer // of the service
	Executor *executor.Local
	Operator api.Principal // may read everything; see policy.Rules
	Mode     string        // same-user or system
	Now      func() time.Time
	Logger   *slog.Logger
}

// Service dispatches. It is safe for concurrent use.
type Service struct {
	cfg  Config
	book *book

	// life ends when the service does; work in the background heeds it, and
	// workers do not.
	life context.Context //nolint:containedctx // the life of the service, not of a call
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	active map[api.DispatchID]*active // guarded by mu
	closed bool                       // guarded by mu
}

// Open takes up what an earlier service left: living workers are joined,
// ended ones collected, dead ones recorded as lost.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, active: map[api.DispatchID]*active{}}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := errors.Join(os.RemoveAll(cfg.Dirs.Scratch()), os.MkdirAll(cfg.Dirs.Scratch(), 0o700)); err != nil {
		return nil, err
	}
	s.book = &book{cfg: cfg}
	if err := s.book.open(ctx); err != nil {
		return nil, err
	}
	if err := s.recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the service's own work. Workers go on; the next Open takes them
// up.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.active {
		a.worker.Leave()
	}
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
	return nil
}

// Running returns how many dispatches have not ended.
func (s *Service) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// recover resolves every dispatch that has not ended in the records.
func (s *Service) recover(ctx context.Context) error {
	var open []row
	if err := s.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		open, err = unfinished(v)
		return err
	}); err != nil {
		return err
	}
	for _, r := range open {
		w, err := s.cfg.Executor.Attach(ctx, s.attemptDir(r))
		switch {
		case err == nil:
			err = s.found(ctx, r, "running")
			s.supervise(r, w)
		case errors.Is(err, executor.ErrGone):
			err = s.resolve(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("dispatch %s: %w", r.record.ID, err)
		}
	}
	return s.sweep(ctx)
}

// resolve deals with a dispatch that no worker has: one that never began is
// begun, as the log admitted it; any other has ended in whatever way its
// directory says.
func (s *Service) resolve(ctx context.Context, r row) error {
	job, m, err := s.unfired(ctx, r)
	if err != nil {
		return err
	}
	if job == nil {
		if err := s.found(ctx, r, "ended"); err != nil {
			return err
		}
		return s.collect(ctx, r)
	}
	entries, err := s.cfg.Ledger.List(ctx, audit.Query{Dispatch: m.ID, Kind: record.KindDispatchAccepted, Limit: 1})
	if err != nil || len(entries) == 0 {
		return errors.Join(err, errors.New("the log has no entry that admits it"))
	}
	admission, err := s.cfg.Ledger.Readmit(ctx, record.KindDispatchAccepted, entries[0].Seq)
	if err != nil {
		return err
	}
	if err := s.found(ctx, r, "absent"); err != nil {
		return err
	}
	s.start(admission, r, *job)
	return nil
}

// unfired returns the job of a dispatch of which nothing can have happened
// yet: no key is bound, so no worker was told to proceed, and its manifest is
// still good. Otherwise it returns nil.
func (s *Service) unfired(ctx context.Context, r row) (*executor.Job, record.Manifest, error) {
	m, err := s.manifest(ctx, r.record.Manifest)
	if err != nil || r.key != "" || r.record.CancelBy != "" || m.Check(s.cfg.Now()) != nil {
		return nil, m, err
	}
	envelope, err := s.cfg.Blobs.Get(ctx, r.record.Manifest, maxManifest)
	if err != nil {
		return nil, m, err
	}
	input, err := s.cfg.Blobs.Get(ctx, m.Input, maxInput)
	return &executor.Job{Dir: s.attemptDir(r), Manifest: envelope, Input: input}, m, err
}

func (s *Service) attemptDir(r row) string { return s.cfg.Dirs.Dispatch(r.record.ID, r.record.Attempt) }
