// Package daemoncli is the command tree of bailiwickd: serve, start, doctor, key
// and anchor.
//
// The service is the only owner of its state; a second one on the same state
// refuses to start (R-O1). It links no catalog writer and has no deploy key.
package daemoncli

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Config is the environment of the command tree.
type Config struct {
	console.Output          // a worker gets a few variables of its environment
	Args           []string // without the program's name
	Stdin          io.Reader
	Dirs           api.Dirs
	UID            int
	Login          func(uid uint32) (string, error)
	Self           string // path of this executable; the other programs are beside it
	Version        string
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
	return console.Run(ctx, t.root(), &t.Output, cfg.Args)
}

func (t *tree) root() *cobra.Command {
	root := &cobra.Command{
		Use: "bailiwickd", Short: "The Bailiwick service", Version: t.Version,
	}
	root.PersistentFlags().StringVar(&t.socket, "socket", "", "listen on this unix socket")
	root.PersistentFlags().StringVar(&t.config, "config", "", "configuration file (default $XDG_CONFIG_HOME/bailiwick/service.yaml, if it exists)")
	t.AddTimeFlag(root)
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(t.Dirs.Check(), t.absolute()) }
	man := console.ManCommand(root, nil)
	man.Hidden = true // bailiwick man runs it
	root.AddCommand(t.serveCommand(), t.startCommand(), t.doctorCommand(), t.keyCommand(), t.anchorCommand(), man)
	return root
}

// outputFlag adds the flag for the format of a command's answer.
func (t *tree) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.Format, "output", "o", "text", "text, json, jsonl or name")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"text", "json", "jsonl", "name"}, t.Format) {
			return console.BadFormat(cmd, t.Format, "text, json, jsonl or name")
		}
		return nil
	}
}
