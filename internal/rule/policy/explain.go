package policy

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// maxReasons is about how many reasons a denial gives.
const maxReasons = 100

// explain returns the reasons why r is denied. They name what the caller's own
// grants lack and never what exists, so a name that is not granted and one that
// does not exist give the same reason (R-B6).
func (e *Engine) explain(r Request) []string {
	if r.Action == ActionRunAppend && !r.Steers && r.Principal == r.Owner {
		return []string{fmt.Sprintf("no grant lets %s append tasks to its runs: it needs append: true in a grant", r.Principal)}
	}
	if r.Action != ActionDispatch {
		return []string{fmt.Sprintf("%s may not %s %s", r.Principal, r.Action, r.Resource)}
	}
	candidates := slices.DeleteFunc(slices.Clone(e.of[r.Principal]), func(g *Grant) bool { return !g.has(api.KindSubagent, api.Name(r.Resource)) })
	if len(candidates) == 0 {
		return []string{fmt.Sprintf("no grant lets %s dispatch subagent %q", r.Principal, r.Resource)}
	}
	var reasons []string
	for _, g := range candidates {
		missing := lacks(g, r)
		if len(missing) == 0 { // this grant covers it, so something else forbids it
			return e.forbidding(r)
		}
		if len(reasons) < maxReasons {
			reasons = append(reasons, missing...)
		}
	}
	return reasons
}

// forbidding returns what forbids r although a grant covers it, and what people
// can do about it.
func (e *Engine) forbidding(r Request) (reasons []string) {
	for _, id := range r.Stops {
		reasons = append(reasons, fmt.Sprintf("emergency stop %s is engaged; only an operator can lift it: bailiwick stop lift %s", id, id))
	}
	if m, ok := e.modes[r.Target]; ok && r.Tier > m.ceiling {
		reasons = append(reasons, fmt.Sprintf("target %q admits up to tier %s, but subagent %q is %s", r.Target, m.ceiling, r.Resource, r.Tier))
	}
	if r.Tier > r.Consent {
		reasons = append(reasons, fmt.Sprintf("the ceiling of %s is %s, but subagent %q is %s; an operator can raise it: bailiwick ceiling set %s %s",
			r.Principal, r.Consent, r.Resource, r.Tier, r.Principal, r.Tier))
	}
	if r.Tier > r.Session {
		reasons = append(reasons, fmt.Sprintf("this session declared the ceiling %s, but subagent %q is %s; a session cannot raise its own ceiling", r.Session, r.Resource, r.Tier))
	}
	return append(reasons, r.Spent...)
}

// lacks lists what r needs and g does not grant.
func lacks(g *Grant, r Request) []string {
	var out []string
	need := func(kind api.Kind, names ...api.Name) {
		for _, n := range names {
			if !g.has(kind, n) && len(out) < maxReasons {
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
		out = append(out, fmt.Sprintf("grant %q has the ceiling %s, but subagent %q is %s", g.Name, g.Ceiling, r.Resource, r.Tier))
	}
	return out
}
