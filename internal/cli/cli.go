// Package cli is the command tree of bailiwick, the front door.
//
// Run-time verbs are calls to the service through package client. Deploy verbs
// and everything that starts or inspects a service are handed to the program
// that has that privilege and lies beside this one: this package links neither
// the catalog writer nor the state (R-O1), and it never looks for one of them on
// PATH. The only other program that it executes is the user's git, to merge the
// patches of a run, and that sees nothing of a patch but objects (mergerepo.go).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// Config is what the command tree needs of the process that it runs in.
type Config struct {
	Args     []string // without the program's name
	Stdin    io.Reader
	Stdout   io.Writer  // the answer
	Stderr   io.Writer  // everything else
	Screen   bool       // Stdout is a terminal
	Terminal bool       // Stderr is a terminal: progress may be redrawn
	Width    func() int // of that terminal now, in columns; 0 where that is not known
	Height   func() int // and in rows
	Env      []string   // of the process; a service that is started gets what says where things are
	Dirs     api.Dirs
	UIDs     []int  // accounts whose service is trusted
	Beside   string // folder of this executable
	Version  string
	Now      func() time.Time
}

type tree struct {
	Config
	socket string
	output string
	idle   time.Duration
}

// errSilent ends a command whose failure has been shown already.
type errSilent struct{ status int }

func (e errSilent) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// Run executes one command line and returns the exit status.
func Run(ctx context.Context, cfg Config) int {
	answer := &answerWriter{to: cfg.Stdout}
	cfg.Stdout = answer
	t := &tree{Config: cfg}
	root := t.root()
	explain(root)
	root.SetArgs(cfg.Args)
	root.SetIn(cfg.Stdin)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = answer.err
	}
	return t.status(ctx, err)
}

// answerWriter keeps the first error, so that an answer that did not arrive
// whole is a failure of the command.
type answerWriter struct {
	to  io.Writer
	err error
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

func (t *tree) status(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if silent, ok := errors.AsType[errSilent](err); ok {
		return silent.status
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 130
	}
	fmt.Fprintf(t.Stderr, "bailiwick: %s\n", plain(err.Error()))
	return api.ExitStatus(err)
}

func (t *tree) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "bailiwick",
		Short: "Run AI agent workers under authority that humans set beforehand",
		Long: `Bailiwick runs AI agent workers in jails, under a catalog that humans signed,
and keeps a record of every decision.

Start:    bailiwick init, bailiwick catalog plan, bailiwick catalog apply,
          bailiwick ceiling set PRINCIPAL TIER
Work:     bailiwick dispatch run SUBAGENT --source NAME --input JSON
Plans:    bailiwick up --orchestrator, bailiwick run submit PLAN.yaml --watch,
          bailiwick run show RUN, bailiwick run patch RUN --merge BRANCH
Look:     bailiwick dispatch show ID, bailiwick dispatch patch ID, bailiwick audit list
Stop:     bailiwick stop --all`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       t.Version,
	}
	root.PersistentFlags().StringVar(&t.socket, "socket", "", "unix socket of the service (default: the first of "+strings.Join(t.Dirs.Sockets(), ", ")+" that exists)")
	root.PersistentFlags().StringVarP(&t.output, "output", "o", "text", "text, json, jsonl or name")
	root.PersistentFlags().DurationVar(&t.idle, "idle", defaultIdle, "a service that this command has to start ends when nobody has needed it for so long")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"text", "json", "jsonl", "name"}, t.output) {
			return api.Errorf(api.CodeInvalid, "output %q: want text, json, jsonl or name", t.output)
		}
		if t.idle <= 0 {
			return api.Errorf(api.CodeInvalid, "--idle %s: want a positive time", t.idle)
		}
		return nil
	}
	root.AddCommand(
		t.elsewhere("init", "Make the keys, the files that list them, an empty catalog and a sample manifest", "bailiwick-deploy", "init"),
		t.elsewhere("key", "Deploy keys", "bailiwick-deploy", "key"),
		t.elsewhere("operator", "Operator keys, and the signature under a decision", "bailiwick-deploy", "operator"),
		t.elsewhere("catalog", "Plan, apply, sign, list, show and verify the catalog", "bailiwick-deploy", "catalog"),
		t.elsewhere("up", "Start a private service for this account that lasts", "bailiwickd", "start"),
		t.elsewhere("doctor", "Check this machine and say what to mend", "bailiwickd", "doctor"),
		t.downCommand(), t.statusCommand(), t.versionCommand(),
		t.dispatchCommand(), t.canCommand(), t.auditCommand(), t.gcCommand(),
		t.runsCommand(), t.queueCommand(),
		t.principalCommand(), t.tokenCommand(), t.ceilingCommand(), t.stopCommand(), t.mcpCommand(),
	)
	return root
}

// group is a noun, whose verbs are added to it. A verb that it does not have is
// an error: cobra by itself prints help and calls that a success.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}

// explain adds to the refusal of arguments how the verb is called.
func explain(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		explain(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case cmd.HasSubCommands():
			return api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: %s --help", cmd.CommandPath())
		}
		return api.Errorf(api.CodeInvalid, "%w", err).WithHint("want: %s; see: %s --help", cmd.UseLine(), cmd.CommandPath())
	}
}

// elsewhere is a verb that another program of the installation carries out.
func (t *tree) elsewhere(use, short, program, verb string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := filepath.Join(t.Beside, program)
			out := t.Stdout
			if a, ok := out.(*answerWriter); ok {
				out = a.to // the file itself, so that the child knows a terminal
			}
			child := exec.CommandContext(cmd.Context(), path, slices.Concat([]string{verb}, args)...) //nolint:gosec // G204: the program lies beside this one
			child.Stdin, child.Stdout, child.Stderr = t.Stdin, out, t.Stderr
			// The terminal sends an interrupt to the child as well; it ends by itself.
			child.Cancel = func() error { return nil }
			err := child.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				if exit.ExitCode() < 0 { // a signal ended it, and whoever sent that knows
					return errSilent{1}
				}
				return errSilent{exit.ExitCode()}
			}
			if err != nil {
				return api.Errorf(api.CodeUnavailable, "%s: %w", path, err).WithHint("the programs of one installation lie in one folder")
			}
			return nil
		},
	}
}

// conn is for a verb that wants a service: where none answers and the caller
// has not said which, it starts one.
func (t *tree) conn() *client.Conn {
	cfg := client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs, Trace: t.trace()}
	if canSpawn && t.socket == "" {
		cfg.Spawn = t.spawn
	}
	return client.New(cfg)
}

// connThere is for a verb about the service that is there.
func (t *tree) connThere() *client.Conn {
	return client.New(client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs, Trace: t.trace()})
}

func (t *tree) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if t.output == "json" || t.output == "jsonl" {
				return t.printJSON(map[string]string{"version": t.Version})
			}
			fmt.Fprintf(t.Stdout, "bailiwick %s\n", t.Version)
			return nil
		},
	}
}
