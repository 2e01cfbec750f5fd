// Command bailiwick-mcp gives an AI client the nine tools. It is a client of
// the service and holds no power of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/mcpserve"
)

func main() {
	// The SDK and the schema package read these before main begins, and change
	// what they check by them.
	if env := slices.DeleteFunc(os.Environ(), debugging); len(env) != len(os.Environ()) {
		fail(syscall.Exec("/proc/self/exe", os.Args, env)) //nolint:gosec // G204: this program again
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := mcpserve.Run(ctx, mcpserve.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Dirs: api.DirsFrom(os.Getenv, os.Getuid()), UID: os.Getuid(), Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
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
	fmt.Fprintf(os.Stderr, "bailiwick-mcp: %s\n", err)
	os.Exit(api.ExitStatus(err))
}
