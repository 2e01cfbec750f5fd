package daemoncli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/schedule"
	"github.com/bailiwick-dev/bailiwick/internal/state/approval"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// wire opens what decides, dispatches and runs, each part with the parts that it calls.
// What calls back to a part that opens later does so through events.
func (s *service) wire(ctx context.Context) (err error) {
	if s.inForce, err = inforce.Open(ctx, inforce.Config{Dirs: s.t.Dirs, Store: s.store, Ledger: s.ledger, Operator: s.me, Operators: s.registry.HasKey, Logger: s.logger}); err != nil {
		return err
	}
	s.events = &events{Telemetry: s.telemetry}
	s.approvals, err = approval.New(approval.Config{
		Store: s.store, Ledger: s.ledger, Votes: s.registry, InForce: s.inForce, Tasks: s.events, Now: s.t.Now, Steady: time.Now, Logger: s.logger, //nolint:forbidigo // the clock of the machine
	})
	if err != nil {
		return err
	}
	sweep := func() { sweepJails(s.logger) }
	launcher, err := s.launcher(ctx)
	if err != nil {
		return err
	}
	var hosts toolclient.Starter = toolclient.Plain{Program: s.t.program("bailiwick-toolhost"), Env: s.t.workerEnv(), Killed: sweep, Gate: s.toolGate}
	if remote, ok := launcher.(*executor.Remote); ok {
		hosts, s.trial.ask, s.checkSecret, s.refused = executor.ToolHosts{Remote: remote}, remote.Probe, remote.CheckSecret, remote.Refused
	}
	s.servers = toolcall.New(toolcall.Config{
		Client:  toolclient.Config{Start: hosts, Records: s.registry.Chain.Since},
		Catalog: catalogFiles(s.t.Dirs.Catalog()), Secrets: s.secrets, Logger: s.logger, Now: s.t.Now, Changed: func(server api.Name, closed []toolcall.Change) { logChanges(s.ledger, s.logger, server, closed) }, Failed: s.telemetry.ToolServerFailed,
		Listed: func(server api.Name, dispatch api.DispatchID) { s.gateway.Listed(server, dispatch) },
	})
	s.gateway, err = gateway.New(gateway.Config{
		Store: s.store, Ledger: s.ledger, Blobs: s.blobs, Registry: s.registry, InForce: s.inForce, Upstream: s.servers, Approvals: s.approvals, Now: s.t.Now, Logger: s.logger,
		Observe: func(o gateway.Observed) { reportCall(s.telemetry, o) },
	})
	if err != nil {
		return err
	}
	if err := s.gateway.Recover(ctx); err != nil { // of earlier calls, before the ends of their dispatches
		return err
	}
	var values dispatch.Secrets // in mode system the launcher alone has them
	if !s.t.Dirs.System() {
		values = s.secrets
	}
	s.dispatch, err = dispatch.Open(ctx, dispatch.Config{
		Dirs: s.t.Dirs, Store: s.store, Ledger: s.ledger, Blobs: s.blobs, Key: s.keys.service, Keys: s.keys.history, Statements: s.keys.statements,
		Operator: s.me, Registry: s.registry, InForce: s.inForce, Secrets: values, Tools: s.gateway, People: s.approvals, Observer: s.events,
		Executor: &executor.Local{Launcher: launcher, Keys: s.keys.history, Logger: s.logger},
		Mode:     s.t.mode(), Sweep: sweep, Now: s.t.Now, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.approvals.Start(ctx)
	if err := s.wireRuns(ctx); err != nil {
		return err
	}
	return s.wireSchedules(ctx)
}

// launcher returns what starts workers: in mode system another process, which trusts this one in
// nothing.
func (s *service) launcher(ctx context.Context) (executor.Launcher, error) {
	dirs := s.t.Dirs
	if !dirs.System() {
		return launch.New(launch.Config{
			Dirs: dirs, Worker: s.t.program("bailiwick-worker"), Fetcher: s.t.program("bailiwick-fetch"), Env: s.t.workerEnv(), UID: os.Geteuid(), Now: s.t.Now, Logger: s.logger,
		})
	}
	if err := os.MkdirAll(dirs.Checkouts(), 0o700); err != nil { // which it shows to workers
		return nil, err
	}
	r := &executor.Remote{
		Path: dirs.LauncherSocket(), Keys: s.keys.history, Records: s.registry.Chain.Since, Now: s.t.Now, Logger: s.logger,
		Sealed: func(name api.Name) ([]byte, error) {
			d, ok := s.registry.Secret(name)
			if !ok {
				return nil, fmt.Errorf("not set: bailiwick secret set %s", name)
			}
			return s.files.Sealed(d)
		},
		Approval: func(ctx context.Context, m *record.Manifest) ([]byte, error) {
			asked, err := s.approvals.OfTask(ctx, m.Run, m.Task, m.ID)
			if api.CodeOf(err) == api.CodeNotFound {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			return canon.Marshal(asked.Action.Step)
		},
	}
	return r, nil
}

// wireRuns opens the orchestrator if one is configured, else the archive of its runs.
func (s *service) wireRuns(ctx context.Context) (err error) {
	if !s.t.wantsRuns(s.set) {
		s.events.runs.drop()
		s.archive = orchestrator.NewArchive(orchestrator.ArchiveConfig{Store: s.store, Ledger: s.ledger, Rules: s.inForce, Now: s.t.Now, Mode: s.t.Dirs.Mode, Approvals: s.approvals})
		return nil
	}
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	s.runs, err = orchestrator.Open(ctx, orchestrator.Config{
		Store: s.store, Ledger: s.ledger, Dispatch: s.dispatch, Queues: s.set.Orchestrator.all(), Weights: s.set.Orchestrator.Weights, Seed: binary.LittleEndian.Uint64(seed[:]),
		Now: s.t.Now, Logger: s.logger, Observer: s.events, Approvals: s.approvals,
	})
	if err == nil {
		s.archive = s.runs.Archive
		s.events.runs.open(s.runs)
	}
	return err
}

// wireSchedules opens the schedules of the catalog. Without an orchestrator they are only
// shown.
func (s *service) wireSchedules(ctx context.Context) (err error) {
	cfg := schedule.Config{
		Mode:  s.t.mode(),
		Store: s.store, Ledger: s.ledger, Rules: scheduleRules{s.inForce}, Stops: s.registry.StopsFor, RunState: s.archive.RunState, Logger: s.logger,
		Now: failpoint.Clock(s.t.Now), Observe: s.telemetry.Slot,
	}
	if s.runs != nil {
		cfg.Runs = s.runs
	}
	if s.schedules, err = schedule.Open(ctx, cfg); err == nil {
		s.events.schedules.open(s.schedules)
	}
	return err
}

// scheduleRules are the rules of the schedules.
type scheduleRules struct{ *inforce.Reader }

// Schedules implements schedule.Rules.
func (r scheduleRules) Schedules(ctx context.Context) (*schedule.Snapshot, error) {
	rules, err := r.Current(ctx)
	return schedule.SnapshotOf(rules.Revision), err
}

// events passes on what happens: to telemetry, ends of dispatches and decisions of people
// to the orchestrator, and ends of runs to the schedules, since one may wait for that.
type events struct {
	*telemetry.Telemetry
	runs      late[*orchestrator.Orchestrator]
	schedules late[*schedule.Keeper]
}

// Ended implements dispatch.Observer.
func (e *events) Ended(d api.Dispatch) {
	e.Telemetry.Ended(d)
	if d.Run != "" {
		e.runs.tell(func(o *orchestrator.Orchestrator) { o.Ended(d) })
	}
}

// Decided implements approval.Tasks.
func (e *events) Decided(run api.RunID, task api.TaskID) {
	e.runs.tell(func(o *orchestrator.Orchestrator) { o.Decided(run, task) })
}

// RunSettled implements orchestrator.Observer.
func (e *events) RunSettled(state api.RunState) {
	e.Telemetry.RunSettled(state)
	e.schedules.tell((*schedule.Keeper).RunSettled)
}

// late is a part that opens after those that tell it what happens. It is told in order,
// and by functions that do not block.
type late[T any] struct {
	mu      sync.Mutex
	to      T         // guarded by mu
	opened  bool      // guarded by mu
	dropped bool      // guarded by mu
	waiting []func(T) // until it is open; guarded by mu
}

// tell calls fn with the part, once it is open.
func (l *late[T]) tell(fn func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.opened:
		fn(l.to)
	case !l.dropped:
		l.waiting = append(l.waiting, fn)
	}
}

// open makes to the part, and tells it what has happened so far.
func (l *late[T]) open(to T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.opened = to, true
	for _, fn := range l.waiting {
		fn(to)
	}
	l.waiting = nil
}

// drop forgets what has happened: this service does not have the part.
func (l *late[T]) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped, l.waiting = true, nil
}
