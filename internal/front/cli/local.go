package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// localVerbs are the verbs that act on the machine they run on alone, each with the reason.
// Every other verb works at a service on another machine. Help shows the reason, and
// --server is refused with it.
func localVerbs() map[string]string {
	const files = "it writes files of your account, and no service takes them from a client"
	return map[string]string{
		"init":        files,
		"key":         "deploy keys stay on the device of their person",
		"operator":    "operator keys stay on the device of their person; bailiwick decision sign signs what waits at a server",
		"catalog":     "the catalog is a folder, and no service may change it; sign a proposal here, and take it to the machine of the service",
		"agent":       files,
		"web serve":   "the page that it serves is for a browser on this machine; the page of a team has an address of its own",
		"web open":    "it asks the page that this account serves",
		"up":          "a service is started on its own machine",
		"doctor":      "it examines this machine; bailiwick status shows the service on another one",
		"anchor show": "it reads the state of a service that does not start",
		"anchor lost": "it changes the state of a service that does not start",
	}
}

// markLocal says of the verbs that act on this machine alone why they do.
func markLocal(root *cobra.Command) {
	for name, reason := range localVerbs() {
		cmd, _, err := root.Find(strings.Fields(name))
		if err != nil || cmd.CommandPath() != root.Name()+" "+name {
			panic("localVerbs: no verb " + name)
		}
		if cmd.Long == "" {
			cmd.Long = cmd.Short + "."
		}
		cmd.Long += "\n\nIt acts on this machine alone: " + reason + "."
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if namesServer(cmd, args) {
				return api.Errorf(api.CodeInvalid, "--server: %s acts on this machine alone: %s", name, reason).WithHint("run it without --server")
			}
			return run(cmd, args)
		}
	}
}

// namesServer reports whether a command line has --server. The flags of a verb that another
// program carries out are still among its arguments.
func namesServer(cmd *cobra.Command, args []string) bool {
	if !cmd.DisableFlagParsing {
		return cmd.Flags().Changed("server")
	}
	return slices.ContainsFunc(args, func(a string) bool { return a == "--server" || strings.HasPrefix(a, "--server=") })
}
