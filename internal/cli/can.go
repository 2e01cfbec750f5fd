package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

func (t *serviceVerbs) canCommand() *cobra.Command {
	var req api.CanRequest
	var target, source string
	var envs, capabilities []string
	cmd := &cobra.Command{
		Use: "can PRINCIPAL dispatch SUBAGENT", Short: "Check whether policy would allow a dispatch, and why", Args: cobra.ExactArgs(3),
		Example: console.Examples("bailiwick can agent:claude dispatch code-edit", "bailiwick can agent:claude dispatch code-edit --target local --source service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] != "dispatch" {
				return api.Errorf(api.CodeInvalid, "action %q: want dispatch", args[1])
			}
			var p console.Args
			req.Principal, req.Subagent = console.Parse(&p, args[0], api.ParsePrincipal), p.Name("subagent", args[2])
			req.Target, req.Source = p.Name("target", target), p.Name("source", source)
			req.Envs, req.Capabilities = names(&p, "env", envs), names(&p, "capability", capabilities)
			if p.Err != nil {
				return p.Err
			}
			return t.withConn(func(c *client.Conn) error {
				answer, err := c.Runtime().Can(cmd.Context(), req)
				if err != nil {
					return err
				}
				return t.printCan(req, answer)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&target, "target", "", "target of the dispatch (default: the subagent's own)")
	f.StringVar(&source, "source", "", "source of its workspace")
	f.StringArrayVar(&envs, "env", nil, "an env for it; may be repeated")
	f.StringArrayVar(&capabilities, "capability", nil, "an extra capability; may be repeated")
	return cmd
}

func (t *serviceVerbs) printCan(req api.CanRequest, a api.CanAnswer) error {
	switch {
	case t.Format != "text":
		if err := t.JSON(a); err != nil {
			return err
		}
	case a.Allowed:
		fmt.Fprintf(t.Stdout, "yes: %s may dispatch %s, by %s (catalog revision %d)\n", req.Principal, req.Subagent, strings.Join(a.Policies, ", "), a.Revision)
	default:
		by := ""
		if len(a.Policies) > 0 {
			by = ", by " + strings.Join(a.Policies, ", ")
		}
		fmt.Fprintf(t.Stdout, "no: %s may not dispatch %s%s (catalog revision %d)\n", req.Principal, req.Subagent, by, a.Revision)
		for _, r := range a.Reasons {
			fmt.Fprintf(t.Stdout, "  %s\n", console.Plain(r))
		}
	}
	if !a.Allowed {
		return console.ExitFor(api.CodeDenied)
	}
	return nil
}
