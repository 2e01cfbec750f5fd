package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

type canFlags struct {
	target, source      string
	envs, capabilities  []string
	subagent, principal string
	tainted             bool
}

func (t *findVerbs) canCommand(v *console.Verb) {
	var f canFlags
	v.Args = cobra.ArbitraryArgs
	v.Do(func(ctx context.Context, args []string) error {
		if err := checkCan(args); err != nil {
			return err
		}
		if len(args) == 3 && args[1] == "call" {
			return t.canCall(ctx, args[0], args[2], f)
		}
		if len(args) == 0 {
			return t.canAnything(ctx)
		}
		return t.can(ctx, args, f)
	})
	v.Flag(&f.target, "target")
	v.Flag(&f.source, "source")
	v.Flag(&f.envs, "env")
	v.Flag(&f.capabilities, "capability")
	v.Flag(&f.subagent, "subagent")
	v.Flag(&f.principal, "principal")
	v.Flag(&f.tainted, "tainted")
}

func checkCan(args []string) error {
	switch {
	case len(args) == 0, appends(args), len(args) == 2 && args[0] == "dispatch", len(args) == 3 && args[1] == "dispatch", len(args) == 3 && args[1] == "call":
		return nil
	case len(args) == 3:
		return api.Errorf(api.CodeInvalid, "action %q: want dispatch or call", args[1])
	}
	return api.Errorf(api.CodeInvalid, "can %s: want no arguments, dispatch SUBAGENT, PRINCIPAL dispatch SUBAGENT, role:ROLE call TOOL, or PRINCIPAL append", strings.Join(args, " ")).WithHint("see: bailiwick can --help")
}

// appends reports whether the arguments are [PRINCIPAL] append.
func appends(args []string) bool {
	return len(args) == 1 && args[0] == "append" || len(args) == 2 && args[0] != "dispatch" && args[1] == "append"
}

func (t *findVerbs) can(ctx context.Context, args []string, f canFlags) error {
	var a console.Args
	req := api.CanRequest{
		Target: a.Name("target", f.target), Source: a.Name("source", f.source),
		Envs: names(&a, "env", f.envs), Capabilities: names(&a, "capability", f.capabilities),
	}
	if req.Append = appends(args); !req.Append {
		req.Subagent = a.Name("subagent", args[len(args)-1])
	}
	if len(args) == 3 || req.Append && len(args) == 2 {
		req.Principal = console.Parse(&a, args[0], api.ParsePrincipal)
	}
	if a.Err != nil {
		return a.Err
	}
	return t.withConn(func(c *client.Conn) error {
		if req.Principal == "" {
			who, err := c.Runtime().Who(ctx)
			if err != nil {
				return err
			}
			req.Principal = who.Principal
		}
		answer, err := c.Runtime().Can(ctx, req)
		if err != nil {
			return err
		}
		return t.printCan(req, answer)
	})
}

// printReach prints what a dispatch reaches outside its jail, if anything.
func (t *findVerbs) printReach(a api.CanAnswer) {
	if a.Endpoint == nil && len(a.Egress)+len(a.Secrets) == 0 {
		return
	}
	if a.Endpoint != nil {
		t.Row("model", "%s", modelText(*a.Endpoint))
	}
	t.Row("network", "%s", cmp.Or(strings.Join(a.Egress, ", "), "nothing but the model"))
	t.Rows("secrets", len(a.Secrets), func(i int) string { return secretText(a.Secrets[i]) })
}

func (t *findVerbs) printCan(req api.CanRequest, a api.CanAnswer) error {
	by := fmt.Sprintf("catalog revision %d", a.Revision)
	if len(a.Policies) > 0 {
		by = "policy " + strings.Join(a.Policies, ", ") + "; " + by
	}
	what := fmt.Sprintf("dispatch %s", req.Subagent)
	if req.Append {
		what = "append tasks to its runs"
	}
	switch {
	case t.Format != "text":
		if err := t.JSON(a); err != nil {
			return err
		}
	case a.Allowed:
		fmt.Fprintf(t.Stdout, "yes: %s may %s (%s)\n", req.Principal, what, by)
		t.printReach(a)
	default:
		fmt.Fprintf(t.Stdout, "no: %s may not %s (%s)\n", req.Principal, what, by)
		for _, r := range a.Reasons {
			fmt.Fprintf(t.Stdout, "  %s\n", console.Plain(r))
		}
	}
	if !a.Allowed {
		return console.ExitFor(api.CodeDenied)
	}
	return nil
}
