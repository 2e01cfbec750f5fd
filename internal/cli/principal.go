package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (t *tree) principalCommand() *cobra.Command {
	cmd := group("principal", "Who may call the service, and how far each may go")
	cmd.AddCommand(t.principalAddCommand(), t.principalRemoveCommand(), t.principalListCommand(), t.principalShowCommand())
	return cmd
}

func (t *tree) principalAddCommand() *cobra.Command {
	var f decideFlags
	var oauth api.OAuthSubject
	cmd := &cobra.Command{
		Use: "add PRINCIPAL", Short: "Make a principal known; the operator's key signs it", Args: cobra.ExactArgs(1),
		Long: `Make a principal known: agent:NAME, ci:NAME or human:NAME. It gets no token and no rights
by this: a token is for bailiwick token create, what it may dispatch is in the grants of
bailiwick.yaml, and how far for bailiwick ceiling set. Who is local: the operating system says.`,
		Example: "  bailiwick principal add agent:claude\n  bailiwick principal add agent:nightly --oauth-issuer https://idp.example --oauth-subject 0a1b2c",
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			r := api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: p.principal(args[0])}
			if p.err != nil {
				return p.err
			}
			// Also where both are empty, as from variables that are not set.
			if cmd.Flags().Changed("oauth-issuer") || cmd.Flags().Changed("oauth-subject") {
				r.OAuth = &oauth
			}
			d, err := t.decide(cmd.Context(), f, r)
			if err != nil {
				return err
			}
			return t.printDecided(d, fmt.Sprintf("%s is known. Next: bailiwick token create %[1]s, and bailiwick ceiling set %[1]s TIER", r.Principal))
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&oauth.Issuer, "oauth-issuer", "", "it comes with tokens of this issuer, which the service's configuration knows")
	cmd.Flags().StringVar(&oauth.Subject, "oauth-subject", "", "the subject of those tokens")
	return cmd
}

func (t *tree) principalRemoveCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "remove PRINCIPAL", Short: "Take back all that was decided for a principal; the operator's key signs it", Args: cobra.ExactArgs(1),
		Long: `Take back all that was decided for a principal: its tokens end at once, those of another
issuer stand for it no longer, its ceiling is observe. What it dispatched before goes on;
bailiwick stop --principal ends that. Its grants are the catalog's, and stay there. It may
be added again, with another subject too.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			who := p.principal(args[0])
			if p.err != nil {
				return p.err
			}
			if err := t.known(cmd.Context(), who); err != nil {
				return err
			}
			d, err := t.decide(cmd.Context(), f, api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: who})
			if err != nil {
				return err
			}
			return t.printDecided(d, fmt.Sprintf("%s is removed: its tokens have ended, its ceiling is observe. %s", who, goesOn(who)))
		},
	}
	f.add(cmd)
	return cmd
}

// goesOn says what less authority does not end.
func goesOn(p api.Principal) string {
	return fmt.Sprintf("What it dispatched before goes on; to end that: bailiwick stop --principal %s", p)
}

func local(p api.Principal) bool { return strings.HasPrefix(string(p), "local:") }

// known refuses a name that nobody added before anybody gives a passphrase for
// it. What the service does not say here it says when it gets the decision.
func (t *tree) known(ctx context.Context, p api.Principal) error {
	c := t.conn()
	defer c.Close()
	info, err := c.Operator().Principal(ctx, p)
	switch {
	case err != nil:
		return nil //nolint:nilerr // a catalog that cannot be read is in nobody's way
	case local(p):
		t.noteStranger(info)
		return nil
	case !info.Known:
		return api.Errorf(api.CodeInvalid, "principal %s is not known", p).WithHint("run: bailiwick principal add %s; see: bailiwick principal list", p)
	}
	return nil
}

// noteStranger says that a name may have a slip in it: an account is never
// added, so every name of one is taken.
func (t *tree) noteStranger(p api.PrincipalInfo) {
	if local(p.Principal) && len(p.Grants) == 0 {
		fmt.Fprintf(t.Stderr, "note: no grant is for %s; if that is a slip, see: bailiwick principal list\n", p.Principal)
	}
}

// printDecided answers a verb that an operator signed.
func (t *tree) printDecided(d decided, words string) error {
	switch t.output {
	case "text":
		fmt.Fprintf(t.Stdout, "%s (decision %d, log entry #%d)\n", plainLine(words), d.receipt.Number, d.receipt.AuditEntry)
		return nil
	case "name":
		fmt.Fprintln(t.Stdout, d.receipt.Number)
		return nil
	}
	return t.printJSON(d.receipt)
}

func (t *tree) principalListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the principals that are known or have grants", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.conn()
			defer c.Close()
			list, err := c.Operator().Principals(cmd.Context())
			if err != nil {
				return err
			}
			return printList(t, list, func(p api.PrincipalInfo) string { return string(p.Principal) },
				"PRINCIPAL\tKNOWN\tCEILING\tTOKENS\tGRANTS\tSTOPS", principalRow)
		},
	}
}

func principalRow(p api.PrincipalInfo) string {
	good := 0
	for _, token := range p.Tokens {
		if token.State == api.TokenActive {
			good++
		}
	}
	known := "yes"
	switch {
	case local(p.Principal):
		known = "system"
	case !p.Known:
		known = "no"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s", p.Principal, known, p.Ceiling, good, orNone(names(p.Grants)), orNone(p.Stops))
}

func names(list []api.Name) []string {
	var out []string
	for _, n := range list {
		out = append(out, string(n))
	}
	return out
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

// printList prints a list as -o says: each item as a row below head, as JSON,
// or by its name.
func printList[T any](t *tree, list []T, name func(T) string, head string, row func(T) string) error {
	switch t.output {
	case "json":
		return t.printJSON(list)
	case "jsonl", "name":
		for _, item := range list {
			if t.output == "name" {
				fmt.Fprintln(t.Stdout, name(item))
			} else if err := t.printJSON(item); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(t.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, item := range list {
		fmt.Fprintln(w, plainLine(row(item)))
	}
	return w.Flush()
}

func (t *tree) principalShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show PRINCIPAL", Short: "Say what the service knows of a principal", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			who := p.principal(args[0])
			if p.err != nil {
				return p.err
			}
			c := t.conn()
			defer c.Close()
			info, err := c.Operator().Principal(cmd.Context(), who)
			if err != nil {
				return err
			}
			return t.printPrincipal(info)
		},
	}
}

func (t *tree) printPrincipal(p api.PrincipalInfo) error {
	switch t.output {
	case "name":
		fmt.Fprintln(t.Stdout, p.Principal)
		return nil
	case "json", "jsonl":
		return t.printJSON(p)
	}
	known := "an operator added it"
	if !p.Known {
		known = "nobody added it; it comes from the operating system or from a grant"
	}
	t.row("principal", "%s", p.Principal)
	t.row("known", "%s", known)
	t.row("ceiling", "%s; to change it: bailiwick ceiling set %s TIER", p.Ceiling, p.Principal)
	t.row("grants", "%s", orNone(names(p.Grants)))
	if p.OAuth != nil {
		t.row("comes with", "tokens of %s\nabout %s", quoted(p.OAuth.Issuer), quoted(p.OAuth.Subject))
	}
	for i, token := range p.Tokens {
		label := "tokens"
		if i > 0 {
			label = ""
		}
		t.row(label, "%s", tokenText(token))
	}
	if len(p.Tokens) == 0 {
		t.row("tokens", "none")
	}
	if len(p.Stops) > 0 {
		t.row("HELD BY", "%s; see: bailiwick stop list", strings.Join(p.Stops, ", "))
	}
	return nil
}
