package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// agentChecks are doctor's checks of the agent programs of the subagents that this
// account may dispatch. A target can also have a program on its PATH, which no file
// outside a jail tells: an absent one is no error.
func (t *doctor) agentChecks(ctx context.Context, conn *client.Conn) []check {
	by, cursor := map[string][]string{}, ""
	for {
		page, err := conn.Runtime().Artifacts(ctx, api.KindSubagent, "", cursor)
		if err != nil {
			return []check{{name: "agents", found: err.Error()}}
		}
		for i := range page.Items {
			if a := &page.Items[i]; agent.Known(a.Agent) {
				by[a.Agent] = append(by[a.Agent], string(a.Name))
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	var out []check
	for _, name := range slices.Sorted(maps.Keys(by)) {
		c := check{name: "agent " + name, ok: true}
		dir, stamp, err := agent.Installed(t.Dirs.Agents(), name)
		switch {
		case errors.Is(err, agent.ErrNotInstalled):
			c = check{
				name: c.name, advice: true, found: fmt.Sprintf("not installed; %s for it, such as %s", record.Plural(len(by[name]), "subagent"), by[name][0]),
				fix: "unless the target has the program on its path, run: bailiwick agent install " + name,
			}
		case err != nil:
			c = check{name: c.name, found: err.Error(), fix: "run: bailiwick agent install " + name}
		default:
			c.found = stamp.Version + " in " + dir
		}
		out = append(out, c)
	}
	return out
}
