package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *operatorVerbs) principalNoun() *cobra.Command {
	return console.Noun("principal", "Add, list and remove the callers of the service",
		console.Group{Title: "Look:", Commands: []*cobra.Command{t.principalListCommand(), t.principalShowCommand()}},
		console.Group{Title: "Change:", Commands: []*cobra.Command{t.principalAddCommand(), t.principalRemoveCommand()}})
}

func (t *operatorVerbs) principalAddCommand() *cobra.Command {
	var oauth api.OAuthSubject
	cmd := &cobra.Command{
		Use: "add PRINCIPAL", Short: "Add a principal; signed with the operator's key",
		Long: `Add a principal: agent:NAME, ci:NAME or human:NAME. This gives it no token and no rights:
see bailiwick token create, the grants of bailiwick.yaml, and bailiwick ceiling set.
Principals named local:NAME are the accounts of the operating system and are not added.`,
		Example: console.Examples("bailiwick principal add agent:claude", "bailiwick principal add agent:nightly --oauth-issuer https://idp.example --oauth-subject 0a1b2c"),
	}
	t.principalVerb(cmd, 1, func(p api.Principal, _ []string) (api.OperatorRecord, string, error) {
		r := api.OperatorRecord{Verb: api.VerbPrincipalAdd}
		// Also if both are empty, as from unset variables: that is refused.
		if cmd.Flags().Changed("oauth-issuer") || cmd.Flags().Changed("oauth-subject") {
			r.OAuth = &oauth
		}
		return r, fmt.Sprintf("%s was added. Next: bailiwick token create %[1]s, and bailiwick ceiling set %[1]s TIER", p), nil
	})
	cmd.Flags().StringVar(&oauth.Issuer, "oauth-issuer", "", "it authenticates with tokens of this issuer, which the service's configuration must have")
	cmd.Flags().StringVar(&oauth.Subject, "oauth-subject", "", "the subject of those tokens")
	return cmd
}

func (t *operatorVerbs) principalRemoveCommand() *cobra.Command {
	return t.principalVerb(&cobra.Command{
		Use: "remove PRINCIPAL", Short: "Remove a principal with its tokens and ceiling; signed with the operator's key",
		Long: `Remove a principal: its tokens are revoked at once, tokens of another issuer no longer
authenticate it, and its ceiling is observe. Its running dispatches continue; bailiwick
stop --principal cancels them. Its grants are part of the catalog and stay there. It may be
added again, also with another subject. A principal with an operator key in force is not
removed: first retire the key, with bailiwick operators retire ID.`,
		Example: console.Examples("bailiwick principal remove agent:claude", "bailiwick principal remove agent:nightly --reason 'left the team'"),
	}, 1, func(p api.Principal, _ []string) (api.OperatorRecord, string, error) {
		return api.OperatorRecord{Verb: api.VerbPrincipalRemove}, fmt.Sprintf("%s was removed: its tokens are revoked, its ceiling is observe. %s", p, continues(p)), nil
	})
}

func (t *operatorVerbs) principalListCommand() *cobra.Command {
	return listVerb(t.tree, &cobra.Command{
		Use: "list", Short: "List principals that were added or have grants", Example: console.Examples("bailiwick principal list", "bailiwick principal list -o name"),
	}, func(ctx context.Context, c *client.Conn) ([]api.PrincipalInfo, error) {
		return c.Operator().Principals(ctx)
	},
		func(p api.PrincipalInfo) string { return string(p.Principal) }, "PRINCIPAL\tKNOWN\tCEILING\tTOKENS\tGRANTS\tSTOPS", principalRow)
}

func principalRow(p api.PrincipalInfo) string {
	active := 0
	for _, token := range p.Tokens {
		if token.State == api.TokenActive {
			active++
		}
	}
	known := "yes"
	switch {
	case local(p.Principal):
		known = "system"
	case !p.Known:
		known = "no"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s", p.Principal, known, p.Ceiling, active, console.Joined(p.Grants, ",", "-"), console.Joined(p.Stops, ",", "-"))
}

func (t *operatorVerbs) principalShowCommand() *cobra.Command {
	return t.operatorCommand(&cobra.Command{
		Use: "show PRINCIPAL", Short: "Show the ceiling, grants, tokens and stops of a principal", Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick principal show agent:claude", "bailiwick principal show local:ann -o json"),
	}, func(ctx context.Context, o client.Operator, args []string) error {
		var a console.Args
		principal := console.Parse(&a, args[0], api.ParsePrincipal)
		if a.Err != nil {
			return a.Err
		}
		info, err := o.Principal(ctx, principal)
		if err != nil {
			return err
		}
		return t.Emit(info, string(info.Principal), func() { t.printPrincipal(info) })
	})
}

func (t *operatorVerbs) printPrincipal(p api.PrincipalInfo) {
	known := "added by an operator"
	if !p.Known {
		known = "not added by an operator; it comes from the operating system or from a grant"
	}
	t.Row("principal", "%s", p.Principal)
	t.Row("known", "%s", known)
	t.Row("ceiling", "%s; change it with: bailiwick ceiling set %s TIER", p.Ceiling, p.Principal)
	t.Row("grants", "%s", console.Joined(p.Grants, ",", "-"))
	if p.OAuth != nil {
		t.Row("oauth", "tokens of %s\nwith subject %s", console.Quoted(p.OAuth.Issuer), console.Quoted(p.OAuth.Subject))
	}
	t.Rows("tokens", len(p.Tokens), func(i int) string { return t.tokenText(p.Tokens[i]) })
	if len(p.Tokens) == 0 {
		t.Row("tokens", "none")
	}
	if len(p.Stops) > 0 {
		t.Row("STOPPED BY", "%s; see: bailiwick stop list", strings.Join(p.Stops, ", "))
	}
}
