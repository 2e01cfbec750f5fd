package cli

import (
	"context"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// catalogCommand delegates to bailiwick-deploy, which does not talk to the service:
// for the line that says what to type next, it is told the caller's ceiling.
func (t *tree) catalogCommand(v *console.Verb) {
	t.delegate(deployProgram, "catalog")(v)
	run := v.RunE
	v.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && (args[0] == "plan" || args[0] == "apply") {
			if ceiling, ok := t.ownCeiling(cmd.Context()); ok {
				args = slices.Insert(slices.Clone(args), 1, "--caller-ceiling="+ceiling.String())
			}
		}
		return run(cmd, args)
	}
}

// ceilingWait is how long a service may take to answer: the line is not worth more.
const ceilingWait = 2 * time.Second

// ownCeiling asks a running service for the ceiling of this account.
func (t *tree) ownCeiling(ctx context.Context) (api.Tier, bool) {
	ctx, stop := context.WithTimeout(ctx, ceilingWait)
	defer stop()
	login := ""
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	c := t.connect(false)
	defer c.Close()
	info, err := c.Operator().Principal(ctx, api.Principal("local:"+api.LocalLogin(login, os.Getuid())))
	return info.Ceiling, err == nil
}
