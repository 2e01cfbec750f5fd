package daemoncli

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// reportCall reports a call to the metrics and traces.
func reportCall(to *telemetry.Telemetry, o gateway.Observed) {
	to.ToolCalled(telemetry.ToolCall{
		Tool: o.Tool, Role: o.Manifest.Role, Allowed: o.Allowed, Failed: o.Failed, Start: o.At, Took: o.Took,
		Trace: o.Manifest.Trace, Dispatch: o.Manifest.ID, Number: o.Number,
	})
}

// logChanges records that definitions of a server's tools differ from their pins.
func logChanges(ledger *audit.Ledger, logger *slog.Logger, server api.Name, closed []toolcall.Change) {
	for _, c := range closed {
		_, err := ledger.Record(context.Background(), record.Entry{
			Kind: record.KindToolChanged, Resource: string(server), Tool: string(server) + "/" + c.Tool, Detail: record.ToolChange{Pinned: string(c.Pinned), Found: string(c.Found)},
		}, nil)
		if err != nil {
			logger.Error("a tool that its server changed is closed, but that is not logged", slog.String("server", string(server)), slog.String("tool", c.Tool), slog.Any("err", err)) //nolint:sloglint // there is no context
		}
	}
}

// toolGate returns what a tool host in the account of the service verifies approvals with.
func (s *service) toolGate(server api.Name, revision api.Digest) (*record.ToolGate, error) {
	g := &record.ToolGate{Revision: revision, Catalog: s.t.Dirs.Catalog(), Service: string(s.keys.history.First().ID), Kept: s.t.Dirs.ToolServer(server)}
	root, err := seal.LoadDeployKeys(s.t.Dirs)
	if err != nil {
		return nil, err
	}
	if g.Trust, err = root.Encode(); err != nil {
		return nil, err
	}
	if g.Operators, err = os.ReadFile(s.t.Dirs.OperatorRoot()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return g, os.MkdirAll(g.Kept, 0o700)
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
