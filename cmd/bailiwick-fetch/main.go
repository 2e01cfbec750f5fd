// Command bailiwick-fetch fetches one commit of a source by URL into the state.
// bailiwickd starts it, with the request and the value of the credential on standard
// input, and reads the result from standard output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker/sourcefetch"
)

func main() {
	jail.Main() // this program is also the first process of its jail
	if err := run(); err != nil {
		usererror.Print(os.Stderr, "bailiwick-fetch", "text", err, func(s string) string { return s })
		os.Exit(1)
	}
}

func run() error {
	flags := flag.NewFlagSet("bailiwick-fetch", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return usererror.OfFlag(err, "bailiwickd --help; it starts this program")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-fetch version %s\n", api.Version())
		return err
	}
	if len(os.Args) > 1 {
		return errors.New("bailiwickd starts this program; do not run it by hand")
	}
	return sourcefetch.Run(context.Background(), sourcefetch.Config{Dirs: api.DirsFrom(os.Getenv, os.Getuid()), In: os.Stdin, Out: os.Stdout})
}
