package policy

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// explain says in words why r is denied. It speaks of what the caller's own
// grants lack and never of what exists, so a name that is not granted and a
// name that is not there read alike (R-B6).
func (e *Engine) explain(r Request) []string {
	if r.Action != ActionDispatch {
		return []string{fmt.Sprintf("%s may not %s %s", r.Principal, r.Action, r.Resource)}
	}
	var near []api.Grant
	for _, g := range e.rules.Grants {
		if g.Principal == r.Principal && slices.Contains(g.Subagents, api.Name(r.Resource)) {
			near = append(near, g)
		}
	}
	if len(near) == 0 {
		return []string{fmt.Sprintf("no grant lets %s dispatch subagent %q", r.Principal, r.Resource)}
	}
	var reasons []string
	for _, g := range near {
		missing := lacks(g, r)
		if len(missing) == 0 { // this one covers it, so it is not for want of a grant
			return e.above(r)
		}
		reasons = append(reasons, missing...)
	}
	return reasons
}

// above says what keeps r from running although a grant covers it, and what a
// person may do about each.
func (e *Engine) above(r Request) (reasons []string) {
	for _, id := range r.Stops {
		reasons = append(reasons, fmt.Sprintf("the emergency stop %s holds it; only an operator can lift that: bailiwick stop lift %s", id, id))
	}
	if ceiling, ok := e.ceilings[r.Target]; ok && r.Tier > ceiling {
		reasons = append(reasons, fmt.Sprintf("target %q admits up to tier %s, and subagent %q is %s", r.Target, ceiling, r.Resource, r.Tier))
	}
	if r.Tier > r.Consent {
		reasons = append(reasons, fmt.Sprintf("the operator has consented to tier %s for %s, and subagent %q is %s; an operator can raise that: bailiwick ceiling set %s %s",
			r.Consent, r.Principal, r.Resource, r.Tier, r.Principal, r.Tier))
	}
	if r.Tier > r.Session {
		reasons = append(reasons, fmt.Sprintf("this session has bound itself to tier %s, and subagent %q is %s; a session that declared that cannot raise it again", r.Session, r.Resource, r.Tier))
	}
	return reasons
}

// lacks lists what r needs and g does not give.
func lacks(g api.Grant, r Request) []string {
	var out []string
	need := func(kind api.Kind, names ...api.Name) {
		for _, n := range names {
			if !slices.Contains(granted(g, kind), n) {
				out = append(out, fmt.Sprintf("grant %q does not list %s %q", g.Name, kind, n))
			}
		}
	}
	if r.Target == "" {
		out = append(out, fmt.Sprintf("subagent %q has no default target and the request names none", r.Resource))
	} else {
		need(api.KindTarget, r.Target)
	}
	need(api.KindEnv, r.Envs...)
	if r.Source != "" {
		need(api.KindSource, r.Source)
	}
	need(api.KindCapability, r.Capabilities...)
	if r.Tier > g.Ceiling {
		out = append(out, fmt.Sprintf("grant %q has the ceiling %s, and subagent %q is %s", g.Name, g.Ceiling, r.Resource, r.Tier))
	}
	return out
}
