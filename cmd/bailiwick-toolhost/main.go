// Command bailiwick-toolhost has the credential of one tool server and makes its calls: of
// a program or declared command in a jail of its own, or of a server over HTTP. bailiwickd
// starts it for calls, and bailiwick-deploy for the definitions of tools.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker/toolhost"
)

func main() {
	jail.Main() // this program is also the first process of its jail
	if err := run(); err != nil {
		usererror.Print(os.Stderr, "bailiwick-toolhost", "text", err, func(s string) string { return s })
		os.Exit(1)
	}
}

// Descriptors of the starter. The launcher knows by the lock that this process lives.
const (
	startDescriptor = 3 // has the record.ToolStart
	lockDescriptor  = 4 // not of every starter
)

func run() error {
	flags := flag.NewFlagSet("bailiwick-toolhost", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return usererror.OfFlag(err, "bailiwickd --help; it starts this program")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-toolhost version %s\n", api.Version())
		return err
	}
	if len(os.Args) > 1 {
		return errors.New("bailiwickd starts this program; do not run it by hand")
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a starter that is gone fails, and does not kill
	syscall.CloseOnExec(lockDescriptor)                     // no program in a jail has it
	start := os.NewFile(startDescriptor, "start")
	if start == nil {
		return errors.New("bailiwickd starts this program; do not run it by hand: descriptor 3 is not open")
	}
	return toolhost.Run(context.Background(), toolhost.Config{Start: start, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Certificates: os.Getenv("SSL_CERT_FILE"), Now: time.Now})
}
