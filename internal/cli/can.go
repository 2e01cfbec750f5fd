package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

type canFlags struct {
	target, source     string
	envs, capabilities []string
}

func (t *findVerbs) canCommand() *cobra.Command {
	var f canFlags
	cmd := &cobra.Command{
		Use: "can [[PRINCIPAL] dispatch SUBAGENT]", Short: "Check whether policy would allow a dispatch, and why", Args: cobra.ArbitraryArgs,
		Long: `Check whether policy would allow a dispatch, and say why. PRINCIPAL is you, if it is not
given. Without arguments: check what you need for your first dispatch, with a command for
each thing that is missing. The exit status is 3 if the answer is no.`,
		Example: console.Examples("bailiwick can", "bailiwick can dispatch code-edit", "bailiwick can agent:claude dispatch code-edit --target local --source service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCan(args); err != nil {
				return err
			}
			if len(args) == 0 {
				return t.printReady(t.ready(cmd.Context()))
			}
			return t.can(cmd.Context(), args, f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.target, "target", "", "target of the dispatch (default: the subagent's own)")
	fl.StringVar(&f.source, "source", "", "source of its workspace")
	fl.StringArrayVar(&f.envs, "env", nil, "an env for it; may be repeated")
	fl.StringArrayVar(&f.capabilities, "capability", nil, "an extra capability; may be repeated")
	return cmd
}

func checkCan(args []string) error {
	switch {
	case len(args) == 0, len(args) == 2 && args[0] == "dispatch", len(args) == 3 && args[1] == "dispatch":
		return nil
	case len(args) == 3:
		return api.Errorf(api.CodeInvalid, "action %q: want dispatch", args[1])
	}
	return api.Errorf(api.CodeInvalid, "can %s: want no arguments, or dispatch SUBAGENT, or PRINCIPAL dispatch SUBAGENT", strings.Join(args, " ")).WithHint("see: bailiwick can --help")
}

func (t *findVerbs) can(ctx context.Context, args []string, f canFlags) error {
	var a console.Args
	req := api.CanRequest{
		Subagent: a.Name("subagent", args[len(args)-1]), Target: a.Name("target", f.target), Source: a.Name("source", f.source),
		Envs: names(&a, "env", f.envs), Capabilities: names(&a, "capability", f.capabilities),
	}
	if len(args) == 3 {
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

func (t *findVerbs) printCan(req api.CanRequest, a api.CanAnswer) error {
	by := fmt.Sprintf("catalog revision %d", a.Revision)
	if len(a.Policies) > 0 {
		by = "policy " + strings.Join(a.Policies, ", ") + "; " + by
	}
	switch {
	case t.Format != "text":
		if err := t.JSON(a); err != nil {
			return err
		}
	case a.Allowed:
		fmt.Fprintf(t.Stdout, "yes: %s may dispatch %s (%s)\n", req.Principal, req.Subagent, by)
	default:
		fmt.Fprintf(t.Stdout, "no: %s may not dispatch %s (%s)\n", req.Principal, req.Subagent, by)
		for _, r := range a.Reasons {
			fmt.Fprintf(t.Stdout, "  %s\n", console.Plain(r))
		}
	}
	if !a.Allowed {
		return console.ExitFor(api.CodeDenied)
	}
	return nil
}
