package daemoncli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// openTelemetry opens the telemetry that all other parts report to.
func (s *service) openTelemetry() (err error) {
	s.telemetry, err = telemetry.New(telemetry.Config{
		Version: s.t.Version, Collector: s.set.Tracing.OTLP, Routes: api.Calls(), Listen: httpguard.ListenUnix, Now: s.t.Now, Logger: s.logger,
	})
	return err
}

// serveMetrics serves metrics and health if configured. The service must own its
// state by then, so that a second service cannot take over the socket.
func (s *service) serveMetrics() (err error) {
	if s.set.Metrics.Listen.IsZero() {
		return nil
	}
	if s.metrics, err = s.telemetry.Serve(s.set.Metrics.Listen); err != nil {
		return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("change metrics.listen in %s", s.set.File)
	}
	return nil
}

// flushTimeout bounds how long the shutdown waits for a collector.
const flushTimeout = 2 * time.Second

func closeTelemetry(t *telemetry.Telemetry) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	return t.Close(ctx)
}

// condition is something that the service needs to be ready.
type condition struct {
	name string
	err  error // nil: it holds
}

// conditions returns the conditions of readiness, for status and health. A catalog
// that was never applied is not an error.
func (s *service) conditions(ctx context.Context) (list []condition, revision uint64) {
	rules, err := s.inForce.Current(ctx)
	worker := s.t.program("bailiwick-worker")
	executable := unix.Access(worker, unix.X_OK)
	if executable != nil {
		executable = fmt.Errorf("%s: %w", worker, executable)
	}
	disk := s.reserve.Err()
	if disk != nil {
		disk = fmt.Errorf("%w; %s", disk, store.Advice(disk))
	}
	list = []condition{{"disk", disk}, {"store", s.store.Poisoned()}, {"state", s.agree.Load().difference()}, {"log", treeError(s.log.Load())}, {"anchors", s.anchors.refusal()}, {"catalog", err}, {"worker", executable}}
	if s.runs != nil {
		list = append(list, condition{"orchestrator", s.runs.Err()})
	}
	return list, rules.Number()
}

// notReady lists the conditions that do not hold, one per line.
func notReady(list []condition) string {
	var failed []string
	for _, c := range list {
		if c.err != nil {
			failed = append(failed, c.name+": "+c.err.Error())
		}
	}
	return strings.Join(failed, "\n")
}

// state returns the current state for metrics and health.
func (s *service) state(ctx context.Context) telemetry.State {
	st := telemetry.State{Running: s.dispatch.Running(), Poisoned: s.store.Poisoned() != nil}
	list, revision := s.conditions(ctx)
	st.Revision = revision
	for _, c := range list {
		st.Checks = append(st.Checks, telemetry.Check{Name: c.name, OK: c.err == nil})
	}
	st.Queues = queueState(ctx, s.runs)
	st.Anchors = s.anchors.state(ctx)
	st.Receivers = notifyState(s.notify)
	st.Budgets = budgetState(ctx, s.dispatch)
	if tree := treeStatus(ctx, s.log.Load()); tree != nil {
		st.LogSize, st.LogCovered, st.LogLag = tree.Size, tree.Checkpoint, tree.LagSeconds
	}
	if s.gateway != nil {
		st.CallsOut, st.ApprovalsOpen, st.ToolSessions = s.gateway.Out(ctx), s.approvals.Open(ctx), s.servers.Sessions()
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.t.Dirs.State, &disk); err == nil {
		st.Free, st.Size = disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize) //nolint:gosec // G115: the size of a block
	}
	return st
}

// budgetState returns the budgets per day of grants for metrics.
func budgetState(ctx context.Context, d *dispatch.Service) (list []telemetry.Budget) {
	budgets, err := d.BudgetsOfToday(ctx, telemetry.MaxBudgets)
	if err != nil {
		return nil // a catalog that is not valid, or shutting down: a check says so
	}
	for i := range budgets {
		b := &budgets[i]
		limit := b.Budget.Limit()
		for _, of := range api.SpendNames() {
			if limit.Member(of) == 0 {
				continue
			}
			one := telemetry.Budget{Grant: string(b.Grant), Of: of, Limit: limit.Float(of), Spent: b.Spent.Float(of), Reserved: b.Reserved.Float(of)}
			if of == "cost" {
				one.Currency = limit.Currency
			}
			list = append(list, one)
		}
	}
	return list
}

// program returns the path of a program that the service starts.
func (t *tree) program(name string) string { return filepath.Join(filepath.Dir(t.Self), name) }

// metricsCheck is doctor's check of the address of the metrics.
func metricsCheck(s settings, err error) []check {
	if err != nil || s.Metrics.Listen.IsZero() {
		return nil
	}
	at := s.Metrics.Listen.String()
	c := check{name: "metrics", ok: true, found: at}
	if !strings.HasPrefix(at, "unix:") {
		c.ok, c.advice, c.fix = false, true, "serve them on a socket of this account only: unix:/absolute/path"
		c.found = at + " is readable by every account of this machine"
	}
	return []check{c}
}
