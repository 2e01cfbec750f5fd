package deploy

import (
	"cmp"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// budget reads the budget of a grant, which is per day unless it says otherwise.
func (r *reader) budget(n *yaml.Node, what string) *api.Budget {
	v, before := &api.Budget{Per: api.PerDay}, r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"cost":       func(n *yaml.Node) { r.Scalar(n, what+".cost", &v.Cost) },
		"tokens":     func(n *yaml.Node) { r.Scalar(n, what+".tokens", &v.Tokens) },
		"wall":       func(n *yaml.Node) { r.Scalar(n, what+".wall", &v.Wall) },
		"dispatches": func(n *yaml.Node) { r.Scalar(n, what+".dispatches", &v.Dispatches) },
		"per":        func(n *yaml.Node) { r.Scalar(n, what+".per", &v.Per) },
	})
	if err := v.Check(); err != nil && r.Len() == before {
		r.At(n, "%s: %v", what, err)
	}
	return v
}

// budgets refuses a budget of tokens or cost for a subagent whose use has no bound, or
// no count: none of its dispatches could begin.
func (p *Plan) budgets(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, name := range slices.Sorted(maps.Keys(p.set.Grants)) {
		g, ref := p.set.Grants[name], api.RefTo(api.KindGrant, name)
		if g.Budget == nil {
			continue
		}
		for _, s := range g.Subagents {
			why := p.uncounted(p.set.Subagents[s], g)
			switch d := declared[ref]; {
			case why == "":
			case d != nil:
				l.Add(d.at("budget").Line, d.at("budget").Column, "%s: budget: %s", ref, why)
			default:
				l.Add(0, 0, "%s of %s, which stays in the catalog: budget: %s", ref, projectText(p.set.Project(ref)), why)
			}
		}
	}
}

// uncounted returns why dispatches of s on a target of g cannot be budgeted.
func (p *Plan) uncounted(s api.Subagent, g api.Grant) string {
	m := record.Manifest{Subagent: s.Name, Model: s.Model}
	from, level, err := api.SplitModel(s.Model)
	model, ok := p.set.Models[from]
	if ok && err == nil {
		m.Endpoint = &api.ModelUse{Name: from, Level: level}
	}
	for _, t := range g.Targets {
		m.Target, m.Limits = t, s.Limits.Least(p.set.Targets[t].Limits)
		if why := record.Uncounted(&m, g.Budget.Limit(), cmp.Or(model.Currency, api.DefaultCurrency)); why != "" {
			return why
		}
	}
	return ""
}
