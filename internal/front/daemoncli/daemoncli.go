// Package daemoncli is the command tree of bailiwickd: serve, start, doctor, key
// and anchor.
//
// The service is the only owner of its state; a second one on the same state
// refuses to start (R-O1). It links no catalog writer and has no deploy key.
package daemoncli

import (
	"context"
	_ "embed"
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
	UIDs           []int // accounts whose service is trusted
	UID            int
	Login          func(uid uint32) (string, error)
	Supervisor     Supervisor
	Self           string // path of this executable; the other programs are beside it
	Version        string
}

type tree struct {
	Config
	system       bool // serve in mode system
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

// manual is the text about the verbs.
//
//go:embed verbs.md
var manual string

func (t *tree) root() *cobra.Command {
	key, anchors := &keyVerbs{t}, &anchorVerbs{t}
	return console.ParseManual(manual).Command(console.Verbs{
		"":              t.programFlags,
		"serve":         t.serveCommand,
		"start":         (&starter{t}).startCommand,
		"doctor":        (&doctor{t}).command,
		"key show":      key.showCommand,
		"key rotate":    key.rotateCommand,
		"key create":    key.createCommand,
		"anchor show":   anchors.showCommand,
		"anchor record": anchors.recordCommand,
		"man": func(v *console.Verb) {
			v.Hidden = true // bailiwick man runs it
			console.Man(nil)(v)
		},
	})
}

func (t *tree) programFlags(v *console.Verb) {
	v.Version = t.Version
	v.FlagBelow(&t.socket, "socket")
	v.FlagBelow(&t.config, "config")
	v.FlagBelow(&t.UTC, "utc")
	v.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(t.Dirs.Check(), t.absolute()) }
}

// outputFlag adds the flag for the format of a verb's answer.
func (t *tree) outputFlag(v *console.Verb) {
	t.Format = "text"
	v.Flag(&t.Format, "output")
	v.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"text", "json", "jsonl", "name"}, t.Format) {
			return console.BadFormat(cmd, t.Format, "text, json, jsonl or name")
		}
		return nil
	}
}
