package mcpserve

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/client"
)

// Client mistakes are logged at debug level only. The control: an error logged
// by the server itself appears.
func TestAClientDoesNotFillTheLog(t *testing.T) {
	logged := func(level slog.Level, control bool) string {
		var out bytes.Buffer
		conn := client.NewRuntime(client.Config{Socket: filepath.Join(t.TempDir(), "s"), UIDs: []int{os.Getuid()}})
		defer conn.Close()
		server, err := New(Config{Conn: conn, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))})
		if err != nil {
			t.Fatal(err)
		}
		if control {
			server.cfg.Logger.ErrorContext(t.Context(), "duplicate initialize request")
		}
		const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
		const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
		if err := server.Stdio(t.Context(), strings.NewReader(initialize+initialize+initialized+initialized), new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := logged(slog.LevelWarn, false); got != "" {
		t.Errorf("at level WARN: %q", got)
	}
	if got := logged(slog.LevelDebug, false); !strings.Contains(got, "duplicate") || strings.Contains(got, "level=ERROR") {
		t.Errorf("at level DEBUG: %q", got)
	}
	if got := logged(slog.LevelWarn, true); !strings.Contains(got, "duplicate") {
		t.Errorf("control: %q", got)
	}
}
