package policy

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Reach is what a principal's grants let it name in a dispatch of one subagent.
// It is for listings (R-B6); only Decide decides about a request.
type Reach struct {
	Targets, Envs, Sources, Capabilities []api.Name // sorted
}

// Reach joins the grants that let principal run sub on some target. It reports
// false if there is no such grant.
func (e *Engine) Reach(principal api.Principal, sub *api.Subagent) (r Reach, ok bool) {
	for _, g := range e.of[principal] {
		if g.Ceiling < sub.Tier || !g.has(api.KindSubagent, sub.Name) {
			continue
		}
		targets := slices.DeleteFunc(slices.Clone(g.Targets), func(t api.Name) bool {
			m, ok := e.modes[t]
			return !ok || m.ceiling < sub.Tier
		})
		if len(targets) == 0 {
			continue
		}
		ok = true
		r.Targets = append(r.Targets, targets...)
		r.Envs = append(r.Envs, g.Envs...)
		r.Sources = append(r.Sources, g.Sources...)
		r.Capabilities = append(r.Capabilities, g.Capabilities...)
	}
	for _, list := range []*[]api.Name{&r.Targets, &r.Envs, &r.Sources, &r.Capabilities} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return r, ok
}
