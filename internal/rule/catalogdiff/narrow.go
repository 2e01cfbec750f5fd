package catalogdiff

import (
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// narrowings lists what principals and workers lose between two sets. It is the
// counterpart of widenings, over the whole catalog: what another grant still gives a
// principal is not lost.
func narrowings(before, after *catalog.Set) []api.AuthorityChange {
	n := &narrowing{between(before, after)}
	before, after = n.before, n.after
	losses(api.KindSubagent, before.Subagents, after.Subagents, n.subagent)
	losses(api.KindModel, before.Models, after.Models, n.model)
	losses(api.KindEnv, before.Envs, after.Envs, n.env)
	losses(api.KindSource, before.Sources, after.Sources, n.source)
	losses(api.KindTarget, before.Targets, after.Targets, n.target)
	losses(api.KindTool, before.Tools, after.Tools, n.tool)
	losses(api.KindGrant, before.Grants, after.Grants, n.grant)
	losses(api.KindSchedule, before.Schedules, after.Schedules, n.schedule)
	losses(api.KindIdentity, before.Identities, after.Identities, n.identity)
	n.writes()
	return n.sorted()
}

// losses calls report for each earlier artifact, with the later one.
func losses[T any](kind api.Kind, before, after map[api.Name]T, report func(ref api.Ref, old, now T, has bool)) {
	for name, old := range before {
		now, has := after[name]
		report(api.RefTo(kind, name), old, now, has)
	}
}

type narrowing struct{ authority }

func (n *narrowing) subagent(ref api.Ref, old, v api.Subagent, has bool) {
	if !has {
		n.add(ref, "removed subagent: %s", n.users(func(g api.Grant) []api.Name { return g.Subagents }, old.Name, "could dispatch it"))
		return
	}
	if v.Tier < old.Tier {
		n.add(ref, "lower tier: %s, was %s", v.Tier, old.Tier)
	}
	for _, name := range missing(old.Capabilities, v.Capabilities) {
		n.add(ref, "loses capability %s", name)
	}
	if v.Effect == api.EffectWrite && v.Effect != old.Effect {
		n.add(ref, "declared to write: people approve its tasks where a grant of their principal has writes")
	}
	n.limits(ref, inEffect(old.Limits), inEffect(v.Limits))
}

func (n *narrowing) model(ref api.Ref, old, v api.Model, has bool) {
	if !has {
		return // no subagent had it
	}
	for _, t := range missing(old.ServerTools, v.ServerTools) {
		n.add(ref, "the provider no longer runs %s", t)
	}
}

func (n *narrowing) env(ref api.Ref, old, v api.Env, has bool) {
	if !has {
		return // the grants that listed it say so
	}
	n.egress(ref, old.Egress, v.Egress)
	for _, name := range slices.Sorted(maps.Keys(old.Secrets)) {
		if now, ok := v.Secrets[name]; !ok || now.Secret != old.Secrets[name].Secret {
			n.add(ref, "agents no longer have secret %s in %s", old.Secrets[name].Secret, name)
		} else if b := old.Secrets[name].Brokered; b != nil && now.Brokered != nil {
			for _, h := range missing(b.Hosts, now.Brokered.Hosts) {
				n.add(ref, "agents can no longer use secret %s at %s", now.Secret, h)
			}
		}
	}
}

func (n *narrowing) egress(ref api.Ref, old, now []string) {
	for _, h := range missing(old, now) {
		n.add(ref, "agents can no longer reach %s", h)
	}
}

func (n *narrowing) source(ref api.Ref, old, _ api.Source, has bool) {
	if !has {
		n.add(ref, "removed source: %s", n.users(func(g api.Grant) []api.Name { return g.Sources }, old.Name, "could start from it"))
	}
}

func (n *narrowing) target(ref api.Ref, old, v api.Target, has bool) {
	if !has {
		n.add(ref, "removed target: %s", n.users(func(g api.Grant) []api.Name { return g.Targets }, old.Name, "could run there"))
		return
	}
	was, errOld := old.Mode.Ceiling()
	is, errNew := v.Mode.Ceiling()
	if errOld == nil && errNew == nil && is < was {
		n.add(ref, "narrower mode: %s, was %s: refuses tiers above %s", v.Mode, old.Mode, is)
	}
	for _, p := range missing(old.ReadOnly, v.ReadOnly) {
		n.add(ref, "jails can no longer read %s of the host", p)
	}
	for _, p := range missing(old.Path, v.Path) {
		n.add(ref, "directory no longer on PATH: %s", p)
	}
	n.egress(ref, old.Egress, v.Egress)
	n.limits(ref, old.Limits, v.Limits)
}

func (n *narrowing) grant(ref api.Ref, old, v api.Grant, has bool) {
	if has && v.Budget != nil {
		switch text := budgetText(v.Budget, old.Budget); { // the way back
		case old.Budget == nil:
			n.add(ref, "new budget of %s", v.Principal)
		case text != "":
			n.add(ref, "smaller budget of %s", v.Principal)
		}
	}
	if _, covered := CoveredBy(n.after, old); covered {
		return // the principal keeps all of it
	}
	if !has || v.Principal != old.Principal {
		what := "removed grant"
		if has {
			what = "grant given to " + string(v.Principal)
		}
		n.add(ref, "%s: %s", what, grantText(old, "could"))
		return
	}
	if v.Ceiling < old.Ceiling {
		n.add(ref, "lower ceiling of %s: %s, was %s", old.Principal, v.Ceiling, old.Ceiling)
	}
	for _, l := range []struct {
		what     string
		old, now []api.Name
	}{
		{"subagent", old.Subagents, v.Subagents},
		{"env", old.Envs, v.Envs},
		{"source", old.Sources, v.Sources},
		{"extra capability", old.Capabilities, v.Capabilities},
		{"target", old.Targets, v.Targets},
	} {
		for _, name := range missing(l.old, l.now) {
			n.add(ref, "%s loses %s %s", old.Principal, l.what, name)
		}
	}
	for _, role := range missing(old.Approve, v.Approve) {
		n.add(ref, "%s can no longer approve calls of tools of role %s", old.Principal, role)
	}
	if old.ApproveOwn && !v.ApproveOwn {
		n.add(ref, "%s can no longer approve calls of its own dispatches", old.Principal)
	}
	if old.Append && !v.Append {
		n.add(ref, "%s can no longer append tasks to its open runs as an AI", old.Principal)
	}
	for _, p := range missing(old.Reuse, v.Reuse) {
		n.add(ref, "%s can no longer reuse results of %s", old.Principal, p)
	}
}

// limits lists lowered limits: a worker that needs more fails.
func (n *narrowing) limits(ref api.Ref, old, now api.Limits) {
	for _, r := range raisedLimits(now, old) { // the way back
		if r.to == "" {
			n.add(ref, "new limit: %s %s", r.field, r.from)
		} else {
			n.add(ref, "lowered %s: %s, was %s", r.field, r.from, r.to)
		}
	}
}

// users names the principals whose grants had a name.
func (n *narrowing) users(list func(api.Grant) []api.Name, name api.Name, could string) string {
	who := map[string]bool{}
	for _, g := range n.before.Grants {
		if slices.Contains(list(g), name) {
			who[string(g.Principal)] = true
		}
	}
	if len(who) == 0 {
		return "nobody " + could
	}
	return strings.Join(slices.Sorted(maps.Keys(who)), ", ") + " " + could
}

// missing returns what now lacks of old.
func missing[T comparable](old, now []T) []T {
	return slices.DeleteFunc(slices.Clone(old), func(v T) bool { return slices.Contains(now, v) })
}

// CoveredBy returns a grant of the set that gives g's principal all that g gives.
func CoveredBy(set *catalog.Set, g api.Grant) (api.Name, bool) {
	for _, name := range slices.Sorted(maps.Keys(set.Grants)) {
		if Covers(set.Grants[name], g) {
			return name, true
		}
	}
	return "", false
}

// Covers reports whether o gives the principal of g all that g gives.
func Covers(o, g api.Grant) bool {
	return o.Principal == g.Principal && o.Ceiling >= g.Ceiling && len(missing(g.Subagents, o.Subagents)) == 0 && len(missing(g.Envs, o.Envs)) == 0 &&
		len(missing(g.Sources, o.Sources)) == 0 && len(missing(g.Capabilities, o.Capabilities)) == 0 && len(missing(g.Targets, o.Targets)) == 0 &&
		len(missing(g.Approve, o.Approve)) == 0 && (o.ApproveOwn || !g.ApproveOwn) && (o.Append || !g.Append) && len(missing(g.Reuse, o.Reuse)) == 0
}
