package catalogdiff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// widenings lists every widening of authority between two sets. In doubt it lists
// the change: nothing here can tell what a changed command or script does.
func widenings(before, after *catalog.Set) []api.AuthorityChange {
	w := &widening{between(before, after)}
	before, after = w.before, w.after
	compare(api.KindCapability, before.Capabilities, after.Capabilities, w.capability)
	compare(api.KindSubagent, before.Subagents, after.Subagents, w.subagent)
	compare(api.KindModel, before.Models, after.Models, w.model)
	compare(api.KindEnv, before.Envs, after.Envs, w.env)
	compare(api.KindSecret, before.Secrets, after.Secrets, w.secret)
	compare(api.KindSource, before.Sources, after.Sources, w.source)
	compare(api.KindTarget, before.Targets, after.Targets, w.target)
	compare(api.KindTool, before.Tools, after.Tools, w.tool)
	compare(api.KindGrant, before.Grants, after.Grants, w.grant)
	compare(api.KindSchedule, before.Schedules, after.Schedules, w.schedule)
	compare(api.KindIdentity, before.Identities, after.Identities, w.identity)
	w.lostBudgets()
	w.writes()
	w.taintedWrites()
	return w.sorted()
}

// compare calls report for each artifact of after, with the one before.
func compare[T any](kind api.Kind, before, after map[api.Name]T, report func(ref api.Ref, old, now T, had bool)) {
	for name, now := range after {
		old, had := before[name]
		report(api.RefTo(kind, name), old, now, had)
	}
}

// authority collects how authority changes between two sets.
type authority struct {
	all           []api.AuthorityChange
	before, after *catalog.Set
}

// between returns an authority without lines. A nil set is empty.
func between(before, after *catalog.Set) authority {
	if before == nil {
		before = catalog.NewSet()
	}
	if after == nil {
		after = catalog.NewSet()
	}
	return authority{[]api.AuthorityChange{}, before, after}
}

func (a *authority) add(ref api.Ref, format string, args ...any) {
	a.all = append(a.all, api.AuthorityChange{Ref: ref, What: fmt.Sprintf(format, args...)})
}

// sorted returns the lines in the order of their artifacts.
func (a *authority) sorted() []api.AuthorityChange {
	slices.SortStableFunc(a.all, func(x, y api.AuthorityChange) int { return api.CompareRefs(x.Ref, y.Ref) })
	return a.all
}

type widening struct{ authority }

func (w *widening) capability(ref api.Ref, old, v api.Capability, had bool) {
	script := func(c api.Capability) api.Digest {
		for _, f := range c.Files {
			if f.Path == c.Setup {
				return f.Digest
			}
		}
		return ""
	}
	switch {
	case v.Setup == "":
	case !had || old.Setup == "":
		w.add(ref, "new setup script: %s runs in the jail before the agent", v.Setup)
	case script(old) != script(v) || old.Setup != v.Setup:
		w.add(ref, "changed setup script: %s", v.Setup)
	}
	w.ranFiles(ref, old, v)
}

func (w *widening) subagent(ref api.Ref, old, v api.Subagent, had bool) {
	if !had {
		w.add(ref, "new subagent: runs %s in role %s, tier %s", agentText(v), v.Role, v.Tier)
		if v.Effect == api.EffectPure {
			w.add(ref, "%s", pureText)
		}
		return
	}
	switch {
	case old.Agent != v.Agent || old.Model != v.Model:
		w.add(ref, "new agent: %s, was %s", agentText(v), agentText(old))
	case !slices.Equal(old.Command, v.Command):
		w.add(ref, "new command: %s, was %s", commandText(v.Command), commandText(old.Command))
	}
	if v.Tier > old.Tier {
		w.add(ref, "higher tier: %s, was %s", v.Tier, old.Tier)
	}
	if v.Role != old.Role {
		w.add(ref, "new role: %s, was %s", v.Role, old.Role)
	}
	w.gained(ref, "capability", old.Capabilities, v.Capabilities)
	w.lostFiles(ref, old, v)
	if v.Effect != old.Effect && v.Effect == api.EffectPure {
		w.add(ref, "%s", pureText)
	}
	if old.Effect == api.EffectWrite && v.Effect != old.Effect {
		w.add(ref, "no longer declared to write: nobody approves its tasks before they start")
	}
	w.limits(ref, inEffect(old.Limits), inEffect(v.Limits))
	w.checks(ref, old, v)
}

// pureText is what a pure subagent changes for those who use its results.
const pureText = "declared pure: a task may have the result of an earlier dispatch with the same inputs"

// checks lists weakened or changed checks of results.
func (w *widening) checks(ref api.Ref, old, v api.Subagent) {
	switch {
	case old.Verify == nil:
	case v.Verify == nil:
		w.add(ref, "verify command removed: was %s", commandText(old.Verify.Command))
	default:
		if !slices.Equal(old.Verify.Command, v.Verify.Command) {
			w.add(ref, "changed verify command: %s, was %s", commandText(v.Verify.Command), commandText(old.Verify.Command))
		}
		if v.Verify.ReportOnly && !old.Verify.ReportOnly {
			w.add(ref, "a failed verify no longer fails the dispatch")
		}
		for _, pattern := range old.Verify.Protects {
			if !slices.Contains(v.Verify.Protects, pattern) {
				w.add(ref, "verify no longer protects %q", pattern)
			}
		}
	}
	if old.RequireModel && !v.RequireModel {
		w.add(ref, "an agent that makes no request to its model no longer fails")
	}
	if old.Input != nil && v.Input == nil {
		w.add(ref, "input schema removed: any input is accepted")
	}
	if old.Output != nil && v.Output == nil {
		w.add(ref, "output schema removed: any output is accepted")
	}
}

func (w *widening) env(ref api.Ref, old, v api.Env, had bool) {
	for _, name := range slices.Sorted(maps.Keys(v.Values)) {
		if was, ok := old.Values[name]; (!had || !ok || was != v.Values[name]) && steers(name) {
			w.add(ref, "%s=%s controls which code programs load", name, v.Values[name])
		}
	}
	w.uses(ref, old.Secrets, v.Secrets)
	w.egress(ref, old.Egress, v.Egress)
}

// steers reports whether a variable makes programs run other code.
func steers(name string) bool {
	switch name {
	case "PATH", "BASH_ENV", "ENV", "IFS", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT",
		"RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN", "SHELL", "EDITOR", "PAGER":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "DYLD_")
}

func (w *widening) target(ref api.Ref, old, v api.Target, had bool) {
	if !had {
		w.add(ref, "new target: executor %s, level %s, mode %s", v.Executor, v.Level, v.Mode)
	} else {
		was, errOld := old.Mode.Ceiling()
		is, errNew := v.Mode.Ceiling()
		if errOld != nil || errNew != nil || is > was {
			w.add(ref, "wider mode: %s, was %s", v.Mode, old.Mode)
		}
		if old.Level != v.Level || old.Executor != v.Executor {
			w.add(ref, "changed isolation: executor %s level %s, was %s %s", v.Executor, v.Level, old.Executor, old.Level)
		}
		w.limits(ref, old.Limits, v.Limits)
	}
	for _, p := range v.ReadOnly {
		if !slices.Contains(old.ReadOnly, p) {
			w.add(ref, "new read-only mount: jails can read %s of the host", p)
		}
	}
	for _, p := range v.Path {
		if !slices.Contains(old.Path, p) {
			w.add(ref, "new directory on PATH: %s", p)
		}
	}
	w.egress(ref, old.Egress, v.Egress)
}

func (w *widening) grant(ref api.Ref, old, v api.Grant, had bool) {
	if had {
		if text := budgetText(old.Budget, v.Budget); text != "" {
			w.add(ref, "%s", text)
		}
	}
	if _, covered := CoveredBy(w.before, v); covered {
		return // its principal had all of it
	}
	if !had {
		w.add(ref, "new grant: %s", grantText(v, "may"))
	} else {
		if v.Principal != old.Principal {
			w.add(ref, "new principal: %s, was %s", v.Principal, old.Principal)
		}
		if v.Ceiling > old.Ceiling {
			w.add(ref, "higher ceiling: %s, was %s", v.Ceiling, old.Ceiling)
		}
		w.gained(ref, "subagent", old.Subagents, v.Subagents)
	}
	w.gained(ref, "env", old.Envs, v.Envs)
	w.gained(ref, "source", old.Sources, v.Sources)
	w.gained(ref, "extra capability", old.Capabilities, v.Capabilities)
	w.gained(ref, "target", old.Targets, v.Targets)
	if !had {
		return
	}
	for _, role := range missing(v.Approve, old.Approve) {
		w.add(ref, "%s may approve calls of tools of role %s", v.Principal, role)
	}
	if v.ApproveOwn && !old.ApproveOwn {
		w.add(ref, "%s may approve calls of its own dispatches", v.Principal)
	}
	if v.Append && !old.Append {
		w.add(ref, "%s may append tasks to its open runs, also as an AI", v.Principal)
	}
	for _, p := range missing(v.Reuse, old.Reuse) {
		w.add(ref, "%s may reuse results of %s", v.Principal, p)
	}
}

// grantText says what a grant gives: may or could says when.
func grantText(g api.Grant, verb string) string {
	var parts []string
	if len(g.Subagents) > 0 {
		parts = append(parts, fmt.Sprintf("dispatch %s, up to %s", nameList(g.Subagents), g.Ceiling))
	}
	if g.Append {
		parts = append(parts, "append tasks to its open runs, also as an AI")
	}
	if len(g.Reuse) > 0 {
		parts = append(parts, "reuse results of "+nameList(g.Reuse))
	}
	if len(g.Approve) > 0 {
		own := ""
		if g.ApproveOwn {
			own = ", also in its own dispatches"
		}
		parts = append(parts, fmt.Sprintf("approve calls of tools of role %s%s", nameList(g.Approve), own))
	}
	return fmt.Sprintf("%s %s %s", g.Principal, verb, strings.Join(parts, ", and "))
}

func (w *widening) gained(ref api.Ref, what string, old, now []api.Name) {
	for _, n := range now {
		if !slices.Contains(old, n) {
			w.add(ref, "gains %s %s", what, n)
		}
	}
}

func (w *widening) limits(ref api.Ref, old, now api.Limits) {
	for _, r := range raisedLimits(old, now) {
		if r.to == "" {
			w.add(ref, "limit removed: %s, was %s", r.field, r.from)
		} else {
			w.add(ref, "raised %s: %s, was %s", r.field, r.to, r.from)
		}
	}
}

// inEffect returns the limits of a subagent or of the jail of a server.
func inEffect(l api.Limits) api.Limits {
	def := api.DefaultLimits()
	def.Calls = api.MaxToolCalls
	return l.Or(def)
}

// raised is a limit that allows more than before. An empty to means unlimited.
type raised struct{ field, from, to string }

// raisedLimits compares limits; 0 means unlimited.
func raisedLimits(old, now api.Limits) (all []raised) {
	all = raise(all, "timeout", old.Timeout, now.Timeout)
	all = raise(all, "memory", old.Memory, now.Memory)
	all = raise(all, "processes", old.Processes, now.Processes)
	all = raise(all, "disk", old.Disk, now.Disk)
	all = raise(all, "fileSize", old.FileSize, now.FileSize)
	all = raise(all, "files", old.Files, now.Files)
	all = raise(all, "cpu", old.CPU, now.CPU)
	all = raise(all, "log", old.Log, now.Log)
	all = raise(all, "answer", old.Answer, now.Answer)
	all = raise(all, "tokens", old.Tokens, now.Tokens)
	all = raise(all, "cost", old.Cost, now.Cost)
	all = raise(all, "turns", old.Turns, now.Turns)
	return raise(all, "calls", old.Calls, now.Calls)
}

func raise[T interface {
	~int | ~int64 | ~float64
}](all []raised, field string, old, now T) []raised {
	switch {
	case old == 0:
	case now == 0:
		all = append(all, raised{field, limitText(old), ""})
	case now > old:
		all = append(all, raised{field, limitText(old), limitText(now)})
	}
	return all
}

func limitText(v any) string {
	if d, ok := v.(api.Duration); ok {
		b, err := d.MarshalText()
		if err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}

func commandText(c api.Command) string {
	if len(c) == 0 {
		return "nothing"
	}
	parts := make([]string, 0, len(c))
	for _, a := range c {
		if a == "" || strings.ContainsAny(a, " \t\n\"'") {
			a = fmt.Sprintf("%q", a)
		}
		parts = append(parts, a)
	}
	return strings.Join(parts, " ")
}

func nameList[T ~string](names []T) string {
	parts := make([]string, 0, len(names))
	for _, n := range names {
		parts = append(parts, string(n))
	}
	return strings.Join(parts, ", ")
}
