// Command bailiwick-mcp gives an AI client the nine tools, over stdio or HTTP. It
// is a client of the service and holds no power of its own.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
)

func main() {
	// The SDK and the schema package read these variables before main begins, and
	// relax their checks by them: start again without.
	if env := slices.DeleteFunc(os.Environ(), debugging); len(env) != len(os.Environ()) {
		fail(syscall.Exec("/proc/self/exe", os.Args, env)) //nolint:gosec // G204: this program again
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, process{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
		place: installation.Find(os.Getenv, os.Getuid()), uid: os.Getuid(), now: time.Now,
		logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	stop()
	fail(err)
}

func debugging(entry string) bool {
	return strings.HasPrefix(entry, "MCPGODEBUG=") || strings.HasPrefix(entry, "JSONSCHEMAGODEBUG=")
}

func fail(err error) {
	if err == nil || err == flag.ErrHelp { //nolint:errorlint // as package flag returns it
		return
	}
	usererror.Print(os.Stderr, "bailiwick-mcp", "text", err, visible)
	os.Exit(api.ExitStatus(err))
}

// visible is s without characters that a terminal would obey.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
