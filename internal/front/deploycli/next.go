package deploycli

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// next says what to type next, beside an answer for people.
func (p *program) next(command ...string) {
	if p.format == "" || p.format == "text" {
		p.print("next: %s", console.ShellText(command...))
	}
}

// nextAfterPlan is apply, or what follows a plan without changes.
func (p *catalogVerbs) nextAfterPlan(plan *deploy.Plan, f planFlags, file string) {
	if plan.Empty() {
		p.nextAfterApply(plan)
		return
	}
	command := []string{"bailiwick", "catalog", "apply"}
	if p.dataDir != "" {
		command = append(command, "--data-dir", p.dataDir)
	}
	for _, s := range f.secrets {
		command = append(command, "--secret", s)
	}
	if file != "" {
		p.next(append(command, file)...)
		return
	}
	if f.file != manifestName {
		command = append(command, "-f", f.file)
	}
	if f.opt.Prune {
		command = append(command, "--prune")
	}
	if f.opt.SourcesElsewhere {
		command = append(command, "--sources-elsewhere")
	}
	if f.opt.Connect {
		command = append(command, "--connect")
	}
	p.next(command...)
}

// nextAfterApply is a dispatch of the first new subagent that the user may dispatch,
// or what it lacks. Without a service that answers, the ceiling is unknown: policy
// then says what is lacking.
func (p *catalogVerbs) nextAfterApply(plan *deploy.Plan) {
	me := api.Principal("local:" + p.Login)
	g, s, ok := firstUse(plan, me)
	if !ok || plan.Manifest == "" {
		p.next("bailiwick", "catalog", "list", "--project", string(plan.Project))
		return
	}
	var with []string
	if len(g.Sources) > 0 {
		with = append(with, "--source", string(g.Sources[0]))
	}
	if s.Target == "" || !slices.Contains(g.Targets, s.Target) {
		for _, t := range g.Targets[:min(1, len(g.Targets))] {
			with = append(with, "--target", string(t))
		}
	}
	switch {
	case p.ceiling != nil && g.Principal == me && *p.ceiling >= s.Tier:
		p.next(slices.Concat([]string{"bailiwick", "dispatch", "run", string(s.Name)}, with, console.ExampleInput(s.Input))...)
	case p.ceiling != nil && g.Principal == me:
		p.next("bailiwick", "ceiling", "set", string(me), s.Tier.String())
	default:
		p.next(slices.Concat([]string{"bailiwick", "can", string(g.Principal), "dispatch", string(s.Name)}, with)...)
	}
}

// firstUse returns the first subagent of the plan that a grant names, and the grant:
// one that the plan adds before others, one for me before one for others.
func firstUse(plan *deploy.Plan, me api.Principal) (g api.Grant, s api.Subagent, ok bool) {
	set := plan.After()
	best := 0
	for _, ref := range set.Refs() {
		kind, name, err := ref.Split()
		if err != nil || kind != api.KindSubagent || set.Project(ref) != plan.Project {
			continue
		}
		worth := 1
		if slices.ContainsFunc(plan.Changes, func(c api.ArtifactChange) bool { return c.Ref == ref && c.Op == api.OpAdd }) {
			worth = 3
		}
		for _, candidate := range grantsOf(set, name) {
			w := worth
			if candidate.Principal == me {
				w++
			}
			if w > best {
				best, g, s, ok = w, candidate, set.Subagents[name], true
			}
		}
	}
	return g, s, ok
}

// grantsOf lists, by name, the grants that admit a subagent somewhere.
func grantsOf(set *catalog.Set, name api.Name) (all []api.Grant) {
	for _, ref := range set.Refs() {
		kind, grant, err := ref.Split()
		if err != nil || kind != api.KindGrant {
			continue
		}
		g := set.Grants[grant]
		if slices.Contains(g.Subagents, name) && len(g.Targets) > 0 && g.Ceiling >= set.Subagents[name].Tier {
			all = append(all, g)
		}
	}
	return all
}
