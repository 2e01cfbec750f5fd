// Command bailiwick-worker supervises one dispatch. bailiwickd starts it with
// the directory of the attempt, with the socket to listen on as descriptor 3
// and the lock of the attempt as descriptor 4.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failure"
	"github.com/bailiwick-dev/bailiwick/internal/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker"
)

func main() {
	jail.Main() // the worker is also the first process of its jail
	if err := run(); err != nil {
		failure.Print(os.Stderr, "bailiwick-worker", "text", err, func(s string) string { return s })
		os.Exit(1)
	}
}

func run() error {
	flags := flag.NewFlagSet("bailiwick-worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("attempt", "", "directory of the attempt")
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return failure.OfFlag(err, "bailiwickd --help; it starts this program")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-worker version %s\n", api.Version())
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return fmt.Errorf("bailiwickd starts this program; do not run it by hand")
	}
	// Child processes must not inherit them.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	listener, err := net.FileListener(os.NewFile(3, "control"))
	if err != nil {
		return fmt.Errorf("descriptor 3 is not the socket of the attempt: %w", err)
	}
	return worker.Run(context.Background(), worker.Config{
		Dir: *dir, Dirs: api.DirsFrom(os.Getenv, os.Getuid()), Listener: listener, Lock: os.NewFile(4, "lock"), Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}
