package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// suggestFor says which verb people mean by words of other tools. An unknown verb
// also suggests the verbs of all nouns that have its name.
func suggestFor(root *cobra.Command) {
	for path, words := range map[string]string{
		"run submit":      "submit start create exec",
		"run list":        "list ls ps jobs runs",
		"run show":        "show describe get inspect status",
		"run cancel":      "kill rm delete abort",
		"run watch":       "follow tail",
		"dispatch run":    "start exec create submit",
		"dispatch list":   "list ls ps jobs dispatches",
		"dispatch show":   "show describe get inspect status",
		"dispatch cancel": "kill rm delete abort",
		"dispatch logs":   "logs log tail output",
		"dispatch patch":  "diff",
		"status":          "info health ps",
		"up":              "start serve daemon",
		"down":            "shutdown kill",
		"whoami":          "me id who",
		"can":             "check allowed",
		"catalog":         "plan register apply deploy",
		"subagent list":   "agents subagents ls",
		"env list":        "envs",
		"role list":       "roles",
		"tool list":       "tools",
		"dispatch tools":  "calls",
		"target list":     "targets",
		"source list":     "sources repos repo",
		"grant list":      "grants permissions",
		"principal list":  "users principals",
		"principal add":   "adduser create",
		"login":           "signin auth",
		"audit list":      "log history events",
		"mcp config":      "client connect",
		"run":             "runs plan plans",
		"dispatch":        "dispatches job jobs",
	} {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			cmd.SuggestFor = strings.Fields(words)
		}
	}
}
