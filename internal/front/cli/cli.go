// Package cli is the command tree of bailiwick, the front door.
//
// The text about the verbs is in verbs.md, and verbs.go lists what each does. Run-time
// verbs are calls to the service through package client; package runverbs has those
// about runs. Deploy verbs, and verbs that start or inspect a service,
// are passed to the program that has that privilege. It must lie in the folder of
// this executable and is never searched for on PATH. This package links neither
// the catalog writer nor the state (R-O1).
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

// Config is what the command tree needs of the process that it runs in.
type Config struct {
	console.Output
	Args    []string // without the program's name
	Stdin   io.Reader
	Dirs    api.Dirs
	UIDs    []int  // accounts whose service is trusted
	Beside  string // folder of this executable
	Version string
}

// tree runs the commands. The types for single nouns embed it.
type tree struct {
	Config
	socket string
	server string // URL
	idle   time.Duration
}

// Run executes one command line and returns the exit status.
func Run(ctx context.Context, cfg Config) int {
	t := &tree{Config: cfg}
	return console.Run(ctx, t.root(), &t.Output, cfg.Args)
}

// runConfig is what the verbs about runs and patches need.
func (t *tree) runConfig() runverbs.Config {
	return runverbs.Config{
		Output: &t.Output, Stdin: t.Stdin,
		Connect: func() *client.Conn { return t.connect(false) }, Start: func() *client.Conn { return t.connect(true) },
	}
}

// The programs of an installation that this one executes. They lie in the same
// folder.
const (
	deployProgram = "bailiwick-deploy"
	daemonProgram = "bailiwickd"
	verifyProgram = "bailiwick-verify"
	mcpProgram    = "bailiwick-mcp"
	webProgram    = "bailiwick-web"
)

// sibling returns the path of another program of the installation.
func (t *tree) sibling(program string) string { return filepath.Join(t.Beside, program) }

// missing is the error of a program that could not be started.
func missing(path string, err error) error {
	return api.Errorf(api.CodeUnavailable, "%s: %w", path, err).WithHint("the programs of an installation must be in the same folder")
}

// delegate makes a verb that another program of the installation carries out.
func (t *tree) delegate(program, verb string) func(*console.Verb) {
	return func(v *console.Verb) {
		v.Long = v.Short + ".\n\n" + program + " " + verb + " carries it out; see its help."
		v.DisableFlagParsing, v.Args, v.ValidArgsFunction = true, nil, (&completion{t}).completeDelegated(program, verb)
		v.Do(func(ctx context.Context, args []string) error {
			return t.execute(ctx, program, slices.Concat([]string{verb}, args), t.Stdin, t.File())
		})
	}
}

// execute runs another program of the installation. Its exit status becomes the
// one of this command.
func (t *tree) execute(ctx context.Context, program string, args []string, stdin io.Reader, stdout io.Writer) error {
	return t.executeTo(ctx, program, args, stdin, stdout, t.Stderr)
}

func (t *tree) executeTo(ctx context.Context, program string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return t.executePath(ctx, t.sibling(program), args, stdin, stdout, stderr)
}

// executePath is executeTo for a program by its path.
func (t *tree) executePath(ctx context.Context, path string, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	child := exec.CommandContext(ctx, path, args...) //nolint:gosec // G204: a program in the folder of this one
	child.Stdin, child.Stdout, child.Stderr = stdin, stdout, stderr
	// The terminal interrupts the child too, which then exits and restores the
	// terminal if it was asking for a passphrase. SIGTERM comes to this process alone.
	child.Cancel = func() error { return os.ErrProcessDone }
	err := child.Start()
	if err == nil {
		stop := forward(child.Process)
		err = child.Wait()
		stop()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return console.Exit{Status: max(exit.ExitCode(), 1)} // -1: killed by a signal
	}
	if err != nil {
		return missing(path, err)
	}
	return nil
}

// forward sends p each SIGTERM that this process gets, until stop is called.
func forward(p *os.Process) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		for {
			select {
			case s := <-signals:
				_ = p.Signal(s) // it fails once p has exited
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(signals); close(done) }
}

// connect connects to the service. If none answers and --socket is not given, it
// starts one, if start is set.
func (t *tree) connect(start bool) *client.Conn {
	cfg := client.Config{Socket: t.socket, Dirs: t.Dirs, UIDs: t.UIDs, Trace: t.trace()}
	url, err := t.remote()
	if err == nil && url != "" {
		cfg.Remote, err = t.logins().Remote(url)
	}
	if err != nil { // each call that needs a login says it
		cfg.Remote = &client.Remote{URL: url, Session: func(context.Context, *client.Conn, string) (string, error) { return "", err }}
	}
	if start && t.starts() {
		cfg.Spawn = t.spawn
	}
	return client.New(cfg)
}

// starts reports whether a command may start a service. That of the machine is started
// by its unit.
func (t *tree) starts() bool {
	url, err := t.remote()
	return canSpawn && t.socket == "" && !t.Dirs.System() && err == nil && url == ""
}

// withConn calls do with a connection to a service, which it starts if none is
// running.
func (t *tree) withConn(do func(*client.Conn) error) error {
	c := t.connect(true)
	defer c.Close()
	return do(c)
}

// withOperator is withConn for the operator's part of the API.
func (t *tree) withOperator(do func(client.Operator) error) error {
	return t.withConn(func(c *client.Conn) error { return do(c.Operator()) })
}

// connVerb is a verb that calls the service.
func (t *tree) connVerb(v *console.Verb, do func(ctx context.Context, c *client.Conn, args []string) error) {
	v.Do(func(ctx context.Context, args []string) error {
		return t.withConn(func(c *client.Conn) error { return do(ctx, c, args) })
	})
}

// operatorVerb is a verb that calls the operator's part of the API.
func (t *tree) operatorVerb(v *console.Verb, do func(ctx context.Context, o client.Operator, args []string) error) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, args []string) error { return do(ctx, c.Operator(), args) })
}

// listVerb is a verb that prints a list of the service.
func listVerb[T any](t *tree, v *console.Verb, fetch func(context.Context, *client.Conn) ([]T, error), name func(T) string, head string, row func(T) string) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, _ []string) error {
		list, err := fetch(ctx, c)
		if err != nil {
			return err
		}
		return console.List(&t.Output, list, name, head, row)
	})
}

// trace is the parent span from the environment, or nothing if the variable is
// not a valid traceparent.
func (t *tree) trace() api.Trace {
	value, _ := t.Lookup(api.TraceVariable)
	parent, _ := api.ParseTrace(value)
	return parent
}

func (t *tree) versionCommand(v *console.Verb) {
	v.Do(func(context.Context, []string) error {
		name := "bailiwick " + t.Version
		return t.Emit(map[string]string{"version": t.Version}, name, func() { fmt.Fprintln(t.Stdout, name) })
	})
}

// writePages writes the man pages of the other programs that have commands, and of the
// offline verifier.
func (t *tree) writePages(ctx context.Context, dir string) error {
	for _, program := range []string{deployProgram, daemonProgram} {
		if err := t.execute(ctx, program, []string{"man", dir}, t.Stdin, t.Stdout); err != nil {
			return err
		}
	}
	var help bytes.Buffer
	if err := t.execute(ctx, verifyProgram, []string{"--help"}, nil, &help); err != nil {
		return err
	}
	return console.WriteHelpPage(dir, verifyProgram, t.Version, "Verify the evidence about a run or a dispatch offline", help.String())
}
