package mcpserve

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Whatever a client does, the log that a person reads has nothing of it; who
// debugs sees it. The control: the same, without being made quiet.
func TestAClientDoesNotFillTheLog(t *testing.T) {
	says := func(level slog.Level, quieten bool) string {
		var out bytes.Buffer
		server := newStandIn(t).server(t)
		server.cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
		if !quieten {
			server.cfg.Logger.ErrorContext(t.Context(), "duplicate initialize request")
		}
		const greet = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
		const greeted = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
		if err := server.Stdio(t.Context(), strings.NewReader(greet+greet+greeted+greeted), new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := says(slog.LevelWarn, true); got != "" {
		t.Errorf("it has %q", got)
	}
	if got := says(slog.LevelDebug, true); !strings.Contains(got, "duplicate") || strings.Contains(got, "level=ERROR") {
		t.Errorf("for debugging it has %q", got)
	}
	if got := says(slog.LevelWarn, false); !strings.Contains(got, "duplicate") {
		t.Errorf("the control has %q", got)
	}
}
