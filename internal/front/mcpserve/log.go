package mcpserve

import (
	"context"
	"log/slog"
)

// DebugLogger returns a logger for the SDK that logs everything at debug level.
// The SDK logs client mistakes as errors, so a client could fill the log.
func DebugLogger(logger *slog.Logger) *slog.Logger {
	return slog.New(demoted{logger.Handler()}).With(slog.String("part", "mcp"))
}

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
