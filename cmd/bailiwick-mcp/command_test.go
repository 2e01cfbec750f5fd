package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestFlagsOfHTTPRequireIt(t *testing.T) {
	for _, args := range [][]string{{"--tls-cert", "x"}, {"--tls-key", "x"}, {"--allow-host", "x"}, {"--allow-origin", "x"}, {"--rate", "1"}, {"--resource", "x"}, {"--oauth-issuer", "x"}} {
		err := run(t.Context(), process{
			args: args, stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, now: time.Now, logger: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), args[0]+" requires --http") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestErrorsSteerNoTerminal(t *testing.T) {
	if got := visible("a\x1b[2J\u009b\r\u202e\nb"); got != "a\ufffd[2J\ufffd\ufffd\ufffd\nb" {
		t.Errorf("%q", got)
	}
}
