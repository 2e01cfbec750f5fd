package daemoncli

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/approval"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// toolGate is what agents call tools through.
type toolGate struct {
	gateway   *gateway.Gateway
	pool      *toolcall.Pool
	approvals *approval.Approvals
	runs      atomic.Pointer[orchestrator.Orchestrator] // nil until it is open; it asks how requests stand when it opens
}

// decided tells the engine that people decided about a task.
func (g *toolGate) decided(run api.RunID, task api.TaskID) {
	if o := g.runs.Load(); o != nil {
		o.Decided(run, task)
	}
}

// openTools opens the gateway, and records that the outcome of calls that an earlier
// service left is unknown. Dispatches, whose ends follow in the log, are recovered later.
func (s *service) openTools(ctx context.Context) (err error) {
	g := &toolGate{pool: toolcall.New(toolcall.Config{
		Client:  toolclient.Config{Program: s.t.program("bailiwick-toolhost"), Env: workerEnv(s.t.Env), Now: s.t.Now, Killed: s.sweepJails},
		Catalog: catalogFiles(s.t.Dirs.Catalog()), Secrets: s.secrets, Logger: s.logger, Now: s.t.Now, Changed: s.toolsChanged, Failed: s.telemetry.ToolServerFailed,
		Listed: func(server api.Name, dispatch api.DispatchID) { s.tools.gateway.Listed(server, dispatch) },
	})}
	s.tools = g
	if g.approvals, err = approval.New(approval.Config{
		Store: s.store, Ledger: s.ledger, Votes: s.registry, InForce: s.inForce, Decided: g.decided, Now: s.t.Now, Steady: time.Now, Logger: s.logger, //nolint:forbidigo // the clock of the machine
	}); err != nil {
		return err
	}
	if g.gateway, err = gateway.New(gateway.Config{
		Store: s.store, Ledger: s.ledger, Blobs: s.blobs, Registry: s.registry, InForce: s.inForce, Upstream: g.pool, Approvals: g.approvals, Now: s.t.Now, Logger: s.logger, Observe: s.toolObserved,
	}); err != nil {
		return err
	}
	return g.gateway.Recover(ctx)
}

func (s *service) closeTools() {
	if s.tools != nil {
		s.tools.pool.Close()
		if s.tools.approvals != nil {
			s.tools.approvals.Close()
		}
	}
}

// toolObserved reports a call to the metrics and traces.
func (s *service) toolObserved(o gateway.Observed) {
	s.telemetry.ToolCalled(telemetry.ToolCall{
		Tool: o.Tool, Role: o.Manifest.Role, Allowed: o.Allowed, Failed: o.Failed, Start: o.At, Took: o.Took,
		Trace: o.Manifest.Trace, Dispatch: o.Manifest.ID, Number: o.Number,
	})
}

// toolsChanged records that a server defines tools otherwise than their pins.
func (s *service) toolsChanged(server api.Name, closed []toolcall.Change) {
	for _, c := range closed {
		_, err := s.ledger.Record(context.Background(), record.Entry{
			Kind: record.KindToolChanged, Resource: string(server), Tool: string(server) + "/" + c.Tool, Detail: record.ToolChange{Pinned: string(c.Pinned), Found: string(c.Found)},
		}, nil)
		if err != nil {
			s.logger.Error("a tool that its server changed is closed, but that is not logged", slog.String("server", string(server)), slog.String("tool", c.Tool), slog.Any("err", err)) //nolint:sloglint // there is no context
		}
	}
}

// catalogFiles is the directory of the catalog, which may not exist yet.
type catalogFiles string

// Get returns a file of the catalog.
func (c catalogFiles) Get(ctx context.Context, d api.Digest, limit int64) (b []byte, err error) {
	blobs, err := blob.Open(blob.Config{Dir: string(c)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	return blobs.Get(ctx, d, limit)
}
