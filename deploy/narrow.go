package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
)

// Narrowing is one way in which a plan takes authority from a principal or a worker.
type Narrowing struct {
	Ref  api.Ref `json:"ref"`
	What string  `json:"what"`
}

// Narrowings lists what principals and workers lose between two sets. It is the
// counterpart of Widenings, over the whole catalog: what another grant still gives a
// principal is not lost.
func Narrowings(before, after *catalog.Set) []Narrowing {
	if before == nil {
		before = catalog.NewSet()
	}
	n := &narrowing{all: []Narrowing{}, before: before, after: after}
	losses(api.KindSubagent, before.Subagents, after.Subagents, n.subagent)
	losses(api.KindSource, before.Sources, after.Sources, n.source)
	losses(api.KindTarget, before.Targets, after.Targets, n.target)
	losses(api.KindGrant, before.Grants, after.Grants, n.grant)
	slices.SortStableFunc(n.all, func(a, b Narrowing) int { return byKind(a.Ref, b.Ref) })
	return n.all
}

// losses calls report for each artifact of before, with the one after.
func losses[T any](kind api.Kind, before, after map[api.Name]T, report func(ref api.Ref, old, now T, has bool)) {
	for name, old := range before {
		now, has := after[name]
		report(api.RefTo(kind, name), old, now, has)
	}
}

type narrowing struct {
	all           []Narrowing
	before, after *catalog.Set
}

func (n *narrowing) add(ref api.Ref, format string, args ...any) {
	n.all = append(n.all, Narrowing{ref, fmt.Sprintf(format, args...)})
}

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
	n.limits(ref, old.Limits.Or(api.DefaultLimits()), v.Limits.Or(api.DefaultLimits()))
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
	n.limits(ref, old.Limits, v.Limits)
}

func (n *narrowing) grant(ref api.Ref, old, v api.Grant, has bool) {
	if _, covered := coveredBy(n.after, old); covered {
		return // the principal keeps all of it
	}
	if !has || v.Principal != old.Principal {
		what := "removed grant"
		if has {
			what = "grant given to " + string(v.Principal)
		}
		n.add(ref, "%s: %s could dispatch %s, up to %s", what, old.Principal, nameList(old.Subagents), old.Ceiling)
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

// coveredBy returns a grant of the set that gives g's principal all that g gives.
func coveredBy(set *catalog.Set, g api.Grant) (api.Name, bool) {
	for _, name := range slices.Sorted(maps.Keys(set.Grants)) {
		if covers(set.Grants[name], g) {
			return name, true
		}
	}
	return "", false
}

func covers(o, g api.Grant) bool {
	return o.Principal == g.Principal && o.Ceiling >= g.Ceiling && len(missing(g.Subagents, o.Subagents)) == 0 && len(missing(g.Envs, o.Envs)) == 0 &&
		len(missing(g.Sources, o.Sources)) == 0 && len(missing(g.Capabilities, o.Capabilities)) == 0 && len(missing(g.Targets, o.Targets)) == 0
}
