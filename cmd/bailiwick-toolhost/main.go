// Command bailiwick-toolhost runs one tool server, or a declared command, in a jail of
// its own. bailiwickd starts it for calls, and bailiwick-deploy for the definitions of
// tools; its standard streams are those of the server.
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
	code, err := run()
	if err != nil {
		usererror.Print(os.Stderr, "bailiwick-toolhost", "text", err, func(s string) string { return s })
		code = 1
	}
	os.Exit(code)
}

// run returns the exit status.
func run() (int, error) {
	flags := flag.NewFlagSet("bailiwick-toolhost", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return 0, usererror.OfFlag(err, "bailiwickd --help; it starts this program")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-toolhost version %s\n", api.Version())
		return 0, err
	}
	if len(os.Args) > 1 {
		return 0, errors.New("bailiwickd starts this program; do not run it by hand")
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a write to a starter that is gone fails, and does not kill
	return toolhost.Run(context.Background(), toolhost.Config{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Certificates: os.Getenv("SSL_CERT_FILE"), Now: time.Now})
}
