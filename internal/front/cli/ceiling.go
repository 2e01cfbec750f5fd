package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *operatorVerbs) ceilingNoun() *cobra.Command {
	set := t.principalVerb(&cobra.Command{
		Use: "set PRINCIPAL TIER", Short: "Set the highest tier that a principal may use; signed with the operator's key",
		Long: `Consent to a principal acting up to a tier: observe, reversible, stateful or irreversible.
Without a consent the ceiling of every principal is observe. A dispatch also needs a grant,
and a target whose mode admits its tier. A lower ceiling applies to new requests at once;
running dispatches continue. To cancel them: bailiwick stop --principal PRINCIPAL.`,
		Example: console.Examples("bailiwick ceiling set local:ann reversible", "bailiwick ceiling set agent:claude observe --reason 'after the incident'"),
	}, 2, func(p api.Principal, args []string) (api.OperatorRecord, string, error) {
		tier, err := api.ParseTier(args[0])
		return api.OperatorRecord{Verb: api.VerbCeilingSet, Ceiling: &tier}, fmt.Sprintf("%s may act up to %s, where grants and targets allow it.", p, tier), err
	})
	return console.Noun("ceiling", "Set how far a principal may go", console.Group{Commands: []*cobra.Command{set}})
}
