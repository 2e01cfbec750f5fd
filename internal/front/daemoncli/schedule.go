package daemoncli

import (
	"context"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/schedule"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// openSchedules opens the schedules of the catalog. Without an orchestrator they are
// only shown. It needs the runs.
func (s *service) openSchedules(ctx context.Context) (err error) {
	cfg := schedule.Config{
		Store: s.store, Ledger: s.ledger, Rules: scheduleRules{s.inForce}, Stops: s.registry.StopsFor, RunState: s.archive.RunState, Logger: s.logger,
		Now: failpoint.Clock(s.t.Now), Observe: s.telemetry.Slot,
	}
	if s.runs != nil {
		cfg.Runs = s.runs
	}
	if s.schedules, err = schedule.Open(ctx, cfg); err == nil {
		s.settled.keeper.Store(s.schedules)
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

// settledRuns passes what happens to runs to telemetry, and wakes the schedules when a
// run has settled: a slot may wait for it.
type settledRuns struct {
	orchestrator.Observer
	keeper atomic.Pointer[schedule.Keeper]
}

// RunSettled implements orchestrator.Observer.
func (o *settledRuns) RunSettled(state api.RunState) {
	o.Observer.RunSettled(state)
	if k := o.keeper.Load(); k != nil {
		k.RunSettled()
	}
}
