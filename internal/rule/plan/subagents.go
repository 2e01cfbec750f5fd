package plan

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Subagents returns the subagents that tasks may be dispatched to, sorted:
// also those of gates and quorums.
func Subagents(tasks []api.PlanTask) []api.Name {
	seen := map[api.Name]bool{}
	add := func(n api.Name) {
		if n != "" {
			seen[n] = true
		}
	}
	for i := range tasks {
		t := &tasks[i]
		add(t.Subagent)
		if t.Gate != nil {
			add(t.Gate.Verify.Subagent)
			add(t.Gate.Fix.Subagent)
		}
		if t.Quorum != nil {
			for _, who := range t.Quorum.Of {
				if n, err := api.ParseName(who); err == nil { // not a person
					add(n)
				}
			}
		}
	}
	all := make([]api.Name, 0, len(seen))
	for n := range seen {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
