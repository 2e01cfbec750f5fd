package policy

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Reach is what a principal may name in a dispatch of one subagent, as far as
// its grants go. It is for lists (R-B6): Decide says whether a request may be.
type Reach struct {
	Targets, Envs, Sources, Capabilities []api.Name // sorted
}

// Reach joins the grants of principal that let it run sub somewhere. Without
// any such grant it reports false.
func (e *Engine) Reach(principal api.Principal, sub *api.Subagent) (r Reach, ok bool) {
	for _, g := range e.rules.Grants {
		if g.Principal != principal || g.Ceiling < sub.Tier || !slices.Contains(g.Subagents, sub.Name) {
			continue
		}
		targets := slices.DeleteFunc(slices.Clone(g.Targets), func(t api.Name) bool {
			mode, there := e.ceilings[t]
			return !there || mode < sub.Tier
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
