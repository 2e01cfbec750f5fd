// Package dispatch turns a request into a running worker and a durable record.
//
// The order is fixed: policy decides, the log makes the decision durable and
// yields an Admission, and only an Admission starts a worker. Whether the
// service saw a worker end or finds its directory after a restart, the same
// code collects what it left. The package does not know the orchestrator.
//
// Carries R-D1, R-D2, R-D3, R-D4, R-D5, R-T10, R-B5 (the service's half), R-B7 and R-A8.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/executor"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/snapshot"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Config is what a Service is made of.
type Config struct {
	Dirs   api.Dirs
	Store  *store.Store
	Ledger *audit.Ledger
	Blobs  *blob.Store  // of the state, not of the catalog
	Key    seal.Signer  // of the service
	Keys   seal.History // every key that the service has had; the zero value: Key alone
	// Statements signs what was made of dispatches; nil: Key does.
	Statements seal.Signer
	Executor   *executor.Local
	Operator   api.Principal // may read everything; see policy.Rules
	Registry   Registry      // what operators decided
	Mode       string        // same-user or system
	Sweep      func() int    // removes what the jails of killed workers left on the machine, and returns how much is left
	Now        func() time.Time
	Logger     *slog.Logger
	Observer   Observer // nil: nobody is told
}

// Service dispatches. It is safe for concurrent use.
type Service struct {
	cfg       Config
	snapshots *snapshot.Reader

	// life ends when the service does; work in the background heeds it, and
	// workers do not.
	life context.Context //nolint:containedctx // the life of the service, not of a call
	stop context.CancelFunc
	work sync.WaitGroup

	asked      chan struct{} // has one when a question began to wait
	overs      chan struct{} // has one when a dispatch came to its end
	cancelTime time.Duration // see the constant; less in tests

	mu     sync.Mutex
	active map[api.DispatchID]*active // guarded by mu
	closed bool                       // guarded by mu
}

// Open takes up what an earlier service left: living workers are joined,
// ended ones collected, dead ones recorded as lost.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Registry == nil {
		return nil, errors.New("dispatch: nobody says what operators decided")
	}
	s := newService(ctx, cfg)
	if err := errors.Join(os.RemoveAll(cfg.Dirs.Scratch()), os.MkdirAll(cfg.Dirs.Scratch(), 0o700)); err != nil {
		return nil, err
	}
	var err error
	if s.snapshots, err = openSnapshots(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.work.Go(s.giveUp)
	s.work.Go(s.attestAlways)
	return s, nil
}

func newService(ctx context.Context, cfg Config) *Service {
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if len(cfg.Keys.Keys) == 0 {
		cfg.Keys = seal.NewHistory(seal.KeyOf(cfg.Key, ""))
	}
	if cfg.Statements == nil {
		cfg.Statements = cfg.Key
	}
	s := &Service{cfg: cfg, active: map[api.DispatchID]*active{}, asked: make(chan struct{}, 1), overs: make(chan struct{}, 1), cancelTime: cancelTime}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// Close ends the service's own work. Workers go on; the next Open takes them
// up.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.active {
		a.worker.Disconnect()
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
	failpoint.Hit(failpoint.RecoverBegin, "")
	for _, r := range open {
		failpoint.Hit(failpoint.RecoverOne, string(r.record.ID))
		w, err := s.cfg.Executor.Attach(ctx, s.attemptDir(r))
		switch {
		case err == nil:
			failpoint.Hit(failpoint.RecoverAttached, string(r.record.ID))
			err = s.found(ctx, r, "running")
			s.supervise(r, w)
		case errors.Is(err, executor.ErrNoWorker):
			err = s.resolve(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("dispatch %s: %w", r.record.ID, err)
		}
	}
	if err := s.recoverCancelled(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverSweep, "")
	if err := s.sweep(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverEnd, "")
	return nil
}

// recoverCancelled ends what was cancelled while it waited for an answer, where
// the service was ended between the two entries.
func (s *Service) recoverCancelled(ctx context.Context) error {
	var list []row
	if err := s.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		list, err = waiting(v)
		return err
	}); err != nil {
		return err
	}
	for _, r := range list {
		if r.record.CancelBy != "" {
			if err := s.endWaiting(ctx, r, cancelled(r.record)); err != nil {
				return err
			}
		}
	}
	return nil
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
	kind := admittedBy(m.Attempt)
	entries, err := s.cfg.Ledger.List(ctx, audit.Query{Dispatch: m.ID, Kind: kind, Limit: 1, Newest: true})
	if err != nil || len(entries) == 0 {
		return errors.Join(err, errors.New("the log has no entry that admits it"))
	}
	admission, err := s.cfg.Ledger.Readmit(ctx, kind, entries[0].Seq)
	if err != nil {
		return err
	}
	if err := s.found(ctx, r, "absent"); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverRefire, string(r.record.ID))
	// A worker that was never told to proceed may have left something there,
	// which is not the next one's.
	if err := os.RemoveAll(s.attemptDir(r)); err != nil {
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
	job := s.job(r, m)
	return &job, m, nil
}

// job is what a worker is handed.
func (s *Service) job(r row, m record.Manifest) executor.Job {
	files := map[string]executor.Content{record.WorkManifest: s.content(r.record.Manifest), record.WorkInput: s.content(m.Input)}
	if m.Resume != nil {
		files[record.WorkResume] = s.content(m.Resume.Answer)
		if m.Resume.Patch != "" {
			files[record.WorkPatch] = s.content(m.Resume.Patch)
		}
	}
	for _, n := range m.Needs {
		files[record.WorkNeed+string(n.Name)] = s.content(n.Digest)
	}
	return executor.Job{Dir: s.attemptDir(r), Files: files}
}

// content writes a blob.
func (s *Service) content(d api.Digest) executor.Content {
	return func(w io.Writer) error {
		r, err := s.cfg.Blobs.Open(s.life, d)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return errors.Join(err, r.Close())
	}
}

// admittedBy is the kind of entry that admits an attempt: the request admits
// the first, and every other one an answer.
func admittedBy(attempt int) record.Kind {
	if attempt == 1 {
		return record.KindDispatchAccepted
	}
	return record.KindDispatchAnswered
}

func (s *Service) attemptDir(r row) string { return s.cfg.Dirs.Dispatch(r.record.ID, r.record.Attempt) }

func openSnapshots(ctx context.Context, cfg Config) (*snapshot.Reader, error) {
	return snapshot.Open(ctx, snapshot.Config{Dirs: cfg.Dirs, Store: cfg.Store, Ledger: cfg.Ledger, Operator: cfg.Operator, Logger: cfg.Logger})
}
