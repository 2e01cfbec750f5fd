package cli

import (
	"context"
	"os"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// catalogCommand delegates to bailiwick-deploy, which does not talk to the service:
// for the line that says what to type next, it is told the caller's ceiling.
func (t *tree) catalogCommand() *cobra.Command {
	cmd := t.delegatedCommand("catalog", "Plan, apply, sign, list, show, move and verify the catalog", deployProgram, "catalog", "bailiwick catalog plan", "bailiwick catalog apply --reason 'new reviewer'")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if i := slices.IndexFunc(args, func(a string) bool { return a == "plan" || a == "apply" }); i >= 0 {
			if ceiling, ok := t.ownCeiling(cmd.Context()); ok {
				args = slices.Insert(slices.Clone(args), i+1, "--caller-ceiling="+ceiling.String())
			}
		}
		return run(cmd, args)
	}
	return cmd
}

// ownCeiling asks a running service for the ceiling of this account.
func (t *tree) ownCeiling(ctx context.Context) (api.Tier, bool) {
	login := ""
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	info, err := t.connect(false).Operator().Principal(ctx, api.Principal("local:"+api.LocalLogin(login, os.Getuid())))
	return info.Ceiling, err == nil
}
