// Command bailiwick-tool calls the tools of an agent's role from its jail, for agents
// and scripts that do not speak MCP.
//
// It has no authority: it sends one MCP message to the address that every process of the
// jail reaches. Beside the standard library it has only the version, so that it is small
// and runs in any jail.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
)

// usageText is what --help prints.
const usageText = `Call the tools of your role.

  bailiwick-tool list [-o json]                 what you may call
  bailiwick-tool call TOOL [JSON | -] [-o json] call one; - reads the arguments from standard input
  bailiwick-tool ask QUESTION [--option TEXT]…  ask a human; your attempt ends, and continues with the answer
  bailiwick-tool report TEXT                    one line of progress, for the humans who watch

TOOL is a name of the list, or SERVER/TOOL. JSON is an object, {} when absent.

Exit status: 0 done, 1 the tool failed or did not answer, 2 wrong usage, 3 refused,
4 waiting for a human: the same call again asks for the state.
`

// Exit statuses.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitWaiting = 4
)

// defaultURL is where every jail has its tools.
const defaultURL = "http://127.0.0.1:19514/mcp"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := os.Getenv("BAILIWICK_MCP_URL")
	if url == "" {
		url = defaultURL
	}
	p := program{client: newClient(url, os.Stderr), in: os.Stdin, out: os.Stdout, errs: os.Stderr}
	status := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// program is one invocation.
type program struct {
	client    *client
	in        io.Reader
	out, errs io.Writer
}

// exitError is a failure with its exit status.
type exitError struct {
	status int
	text   string
}

func (e *exitError) Error() string { return e.text }

func fail(status int, format string, args ...any) error {
	return &exitError{status, fmt.Sprintf(format, args...)}
}

// run carries out args and returns the exit status.
func (p program) run(ctx context.Context, args []string) int {
	err := p.command(ctx, args)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(p.errs, "bailiwick-tool: %s\n", clean(err.Error()))
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	return exitFailed
}

func (p program) command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		_, _ = io.WriteString(p.errs, usageText)
		return fail(exitUsage, "give a command")
	}
	a, err := parse(args[1:])
	if err != nil {
		return err
	}
	name := args[0]
	if a.help || name == "help" || name == "-h" || name == "--help" {
		_, err := io.WriteString(p.out, usageText)
		return err
	}
	switch {
	case name == "--version" && len(args) == 1:
		_, err := fmt.Fprintf(p.out, "bailiwick-tool version %s\n", api.Version())
		return err
	case name == "list" && len(a.rest) == 0 && a.options == nil:
		return p.list(ctx, a.json)
	case name == "call" && (len(a.rest) == 1 || len(a.rest) == 2) && a.options == nil:
		return p.call(ctx, a)
	case name == "ask" && len(a.rest) == 1 && !a.json:
		arguments := map[string]any{"question": a.rest[0]}
		if a.options != nil {
			arguments["options"] = a.options
		}
		return p.tell(ctx, name, arguments)
	case name == "report" && len(a.rest) == 1 && a.options == nil && !a.json:
		return p.tell(ctx, name, map[string]any{"text": a.rest[0]})
	}
	switch name {
	case "list", "call", "ask", "report":
		return fail(exitUsage, "wrong arguments for %s: see bailiwick-tool --help", name)
	}
	return fail(exitUsage, "no such command %q: see bailiwick-tool --help", name)
}

// arguments are those of a command.
type arguments struct {
	rest    []string
	options []string
	json    bool
	help    bool
}

// parse separates flags from the rest. Behind -- everything is the rest.
func parse(args []string) (a arguments, err error) {
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		takes := name == "--option" || name == "-o" || name == "--output"
		switch {
		case args[i] == "--":
			a.rest = append(a.rest, args[i+1:]...)
			return a, nil
		case args[i] == "-h" || args[i] == "--help":
			a.help = true
			continue
		case !takes && strings.HasPrefix(args[i], "-") && args[i] != "-":
			return a, fail(exitUsage, "no such flag %s: see bailiwick-tool --help; write -- before an argument that begins with -", name)
		case !takes:
			a.rest = append(a.rest, args[i])
			continue
		case !given:
			if i++; i == len(args) {
				return a, fail(exitUsage, "%s needs a value", name)
			}
			value = args[i]
		}
		switch {
		case name == "--option":
			a.options = append(a.options, value)
		case value == "json" || value == "text":
			a.json = value == "json"
		default:
			return a, fail(exitUsage, "%s %s: want json or text", name, value)
		}
	}
	return a, nil
}

// maxArguments bounds the arguments of a call, in bytes. The service has a lower bound.
const maxArguments = 1 << 20

// call calls a tool and prints what it answers.
func (p program) call(ctx context.Context, a arguments) error {
	text := []byte("{}")
	switch {
	case len(a.rest) == 1:
	case a.rest[1] == "-":
		var err error
		if text, err = io.ReadAll(io.LimitReader(p.in, maxArguments+1)); err != nil {
			return fail(exitUsage, "standard input: %v", err)
		}
	default:
		text = []byte(a.rest[1])
	}
	if len(text) > maxArguments {
		return fail(exitUsage, "the arguments are larger than %d bytes", maxArguments)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return fail(exitUsage, "the arguments are not a JSON object: %s", why(err))
	}
	r, err := p.client.call(ctx, strings.NewReplacer("/", "_", ".", "_").Replace(a.rest[0]), object)
	if err != nil {
		return err
	}
	return p.print(a.rest[0], r, a.json)
}

func why(err error) string {
	if err == nil {
		return "null"
	}
	return err.Error()
}

// tell calls a tool of Bailiwick itself.
func (p program) tell(ctx context.Context, tool string, arguments any) error {
	r, err := p.client.call(ctx, tool, arguments)
	if err != nil {
		return err
	}
	return p.print(tool, r, false)
}
