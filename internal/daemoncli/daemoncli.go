// Package daemoncli is the command tree of bailiwickd: serve, start, doctor and
// key.
//
// The service is the only owner of its state; a second one on the same state
// refuses to start (R-O1). It links no catalog writer and has no deploy key.
package daemoncli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

// Config is the environment of the command tree.
type Config struct {
	Args    []string // without the program's name
	Stdout  io.Writer
	Stderr  io.Writer
	Dirs    api.Dirs
	Env     []string // of the process; a worker gets a few of these variables
	UID     int
	Login   func(uid uint32) (string, error)
	Self    string // path of this executable; the other programs are beside it
	Version string
	Now     func() time.Time
}

type tree struct {
	Config
	socket       string
	config       string
	idle         time.Duration // idle time before shutdown; 0: never
	orchestrator bool          // run plans, whatever the configuration says
	join         bool          // if another service owns the state, wait until it answers
}

// Run executes one command line and returns the exit status.
func Run(ctx context.Context, cfg Config) int {
	t := &tree{Config: cfg}
	o := console.Output{Stdout: cfg.Stdout, Stderr: cfg.Stderr, Now: cfg.Now}
	root := &cobra.Command{
		Use: "bailiwickd", Short: "The Bailiwick service", Version: cfg.Version,
	}
	root.PersistentFlags().StringVar(&t.socket, "socket", "", "listen on this unix socket")
	root.PersistentFlags().StringVar(&t.config, "config", "", "configuration file (default $XDG_CONFIG_HOME/bailiwick/service.yaml, if it exists)")
	o.AddTimeFlag(root)
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(t.Dirs.Check(), t.absolute()) }
	man := console.ManCommand(root, nil)
	man.Hidden = true // bailiwick man runs it
	root.AddCommand(t.serveCommand(), t.startCommand(), t.doctorCommand(), t.keyCommand(), man)
	return console.Run(ctx, root, &o, cfg.Args)
}
