package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (t *tree) ceilingCommand() *cobra.Command {
	cmd := group("ceiling", "How far a principal may go")
	cmd.AddCommand(t.ceilingSetCommand())
	return cmd
}

func (t *tree) ceilingSetCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "set PRINCIPAL TIER", Short: "Consent to a principal acting up to a tier; the operator's key signs it", Args: cobra.ExactArgs(2),
		Long: `Consent to a principal acting up to a tier: observe, reversible, stateful or irreversible.
It is observe until an operator says otherwise, for every principal, and holds until it is
set again. A dispatch also needs a grant, and a target whose mode admits its tier. A lower
one counts at once for what is asked for; what runs goes on, and bailiwick stop ends it.`,
		Example: "  bailiwick ceiling set local:ann reversible\n  bailiwick ceiling set agent:claude observe --reason 'after the incident'",
		RunE: func(cmd *cobra.Command, args []string) error {
			var p parser
			who := p.principal(args[0])
			tier, err := api.ParseTier(args[1])
			p.fail(err)
			if p.err != nil {
				return p.err
			}
			if err := t.known(cmd.Context(), who); err != nil {
				return err
			}
			d, err := t.decide(cmd.Context(), f, api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: who, Ceiling: &tier})
			if err != nil {
				return err
			}
			return t.printDecided(d, fmt.Sprintf("%s may act up to %s, where grants and targets allow it.", who, tier))
		},
	}
	f.add(cmd)
	return cmd
}
