package mcpserve

import (
	"context"
	"log/slog"
)

// quiet is a logger for the SDK. To that an error is what a client does, too,
// who could fill the log and alarm whoever reads it; so all of it is for
// debugging.
func quiet(logger *slog.Logger) *slog.Logger {
	return slog.New(demoted{logger.Handler()}).With(slog.String("part", "mcp"))
}

// demoted logs everything at the level of debugging.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
