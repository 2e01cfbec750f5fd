package inforce

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// Bounds of a page of a list.
const (
	listItems = 50
	listBytes = 32 << 10 // of input schemas and descriptions; a single item may be longer
)

// Query selects artifacts that a principal may use up to a ceiling.
type Query struct {
	Principal api.Principal
	Ceiling   api.Tier
	Kind      api.Kind
	After     api.Name // only names behind this one
	Name      api.Name // only this one; "" for all
	Repos     bool     // with the repositories of sources
	All       bool     // of roles: all of them, with all their subagents, for an operator
}

// List returns a page of the artifacts that q selects, sorted by name: metadata
// only, never content (R-B6). Artifacts that the principal may not use are left
// out. The snapshot has a revision.
func (s Snapshot) List(q Query, origins catalog.Origins) (page api.ArtifactPage, err error) {
	page.Items = []api.ArtifactInfo{}
	all, above, err := s.usable(q.Principal, q.Ceiling)
	if err != nil {
		return page, err
	}
	page.AboveCeiling = above
	names := all.names(s.Revision.Set(), q.Kind)
	var roles map[api.Name][]api.Name
	switch q.Kind { //nolint:exhaustive // the others are reached through a subagent
	case api.KindGrant:
		names = s.grants(q.Principal)
	case api.KindRole:
		if roles, err = s.Roles(q); err != nil {
			return page, err
		}
		names = slices.Sorted(maps.Keys(roles))
	}
	bytes := 0
	for _, name := range names {
		if name <= q.After || q.Name != "" && name != q.Name {
			continue
		}
		item, err := all.item(s.Revision, q, name)
		if err != nil {
			return page, err
		}
		if q.Kind == api.KindRole {
			item.Subagents, item.ToolCount = roles[name], len(s.Revision.Tools(name))
		}
		bytes += len(item.Input) + len(item.Output) + len(item.Description)
		if n := len(page.Items); n == listItems || n > 0 && bytes > listBytes {
			page.Next = string(page.Items[n-1].Name)
			return page, nil
		}
		item.RegisteredAt = origins.Time(api.RefTo(q.Kind, name))
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// Names returns, sorted, the names of the artifacts that q selects by principal, ceiling
// and kind: those that List shows. The snapshot has a revision.
func (s Snapshot) Names(q Query) ([]api.Name, error) {
	all, _, err := s.usable(q.Principal, q.Ceiling)
	if err != nil {
		return nil, err
	}
	return all.names(s.Revision.Set(), q.Kind), nil
}

// grants returns the names of the grants of p, sorted.
func (s Snapshot) grants(p api.Principal) (names []api.Name) {
	for _, g := range s.Revision.Grants() {
		if g.Principal == p {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return names
}

// reach is each subagent that a caller may use, with what it may name beside
// it.
type reach map[api.Name]usable

type usable struct {
	policy.Reach
	subagent api.Subagent
}

// usable returns what p may use up to ceiling, and how many more subagents a
// higher ceiling would allow.
func (s Snapshot) usable(p api.Principal, ceiling api.Tier) (reach, int, error) {
	all, above := reach{}, 0
	for _, name := range s.Engine.Usable(p, api.KindSubagent) {
		sub, _, err := s.Revision.Subagent(name)
		if err != nil {
			return nil, 0, err
		}
		r, ok := s.Engine.Reach(p, &sub)
		switch {
		case ok && sub.Tier <= ceiling:
			all[name] = usable{r, sub}
		case ok:
			above++
		}
	}
	return all, above, nil
}

// names returns the names of a kind, sorted.
func (all reach) names(set *catalog.Set, kind api.Kind) []api.Name {
	found := map[api.Name]bool{}
	for name, r := range all {
		var list []api.Name
		switch kind { //nolint:exhaustive // grants and roles have rules of their own
		case api.KindSubagent:
			list = []api.Name{name}
		case api.KindEnv:
			list = r.Envs
		case api.KindCapability:
			list = r.Capabilities
		case api.KindSource:
			list = r.Sources
		case api.KindTarget:
			list = r.Targets
		case api.KindModel, api.KindSecret:
			list = r.models(set, kind)
		}
		for _, n := range list {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// models returns the model of a subagent, or the secrets that it and the envs use.
func (u usable) models(set *catalog.Set, kind api.Kind) (list []api.Name) {
	name, _, err := api.SplitModel(u.subagent.Model)
	m, ok := set.Models[name]
	switch {
	case err != nil || !ok: // any text, in older revisions
	case kind == api.KindModel:
		return []api.Name{name}
	case m.Credential != nil:
		list = append(list, m.Credential.Secret)
	}
	if kind == api.KindModel {
		return nil
	}
	for _, env := range u.Envs {
		for _, use := range set.Envs[env].Secrets {
			list = append(list, use.Secret)
		}
	}
	return list
}

func (all reach) item(rev *catalog.Revision, q Query, name api.Name) (item api.ArtifactInfo, err error) {
	entry, err := rev.Entry(q.Kind, name)
	if err != nil {
		return item, err
	}
	item.Listing = api.Listing{Name: name, Kind: q.Kind, Description: entry.Description, Revision: rev.Number(), Digest: entry.Digest}
	set := rev.Set()
	switch q.Kind { //nolint:exhaustive // the others have nothing to add
	case api.KindSubagent:
		all[name].describe(&item, set)
	case api.KindTarget:
		t := set.Targets[name]
		item.Mode, item.Egress = t.Mode, t.Egress
		if t.Limits != (api.Limits{}) {
			item.Limits = &t.Limits
		}
	case api.KindSource:
		if q.Repos {
			item.Repo = set.Sources[name].Repo
		}
	case api.KindEnv:
		item.Egress, item.Secrets = set.Envs[name].Egress, secretsOf(set.Envs[name])
	case api.KindModel:
		m := set.Models[name]
		item.API, item.Levels, item.Prices, item.Currency = m.API, m.Levels, m.Prices, m.Currency
		if q.Repos {
			item.Endpoint = m.Endpoint
		}
	case api.KindGrant:
		describeGrant(&item, set.Grants[name])
	}
	return item, nil
}

// secretsOf returns the secrets of an env without their references.
func secretsOf(e api.Env) []api.SecretRef {
	refs, err := api.SecretsOf(nil, []api.Env{e}, func(n api.Name) (api.Secret, error) { return api.Secret{Name: n}, nil })
	if err != nil { // the lookup has none
		return nil
	}
	return refs
}

// describe fills in the description of a subagent, if the caller may use it.
func (u usable) describe(item *api.ArtifactInfo, set *catalog.Set) {
	sub := u.subagent
	item.Input, item.Output, item.Role, item.Tier = sub.Input, sub.Output, sub.Role, &sub.Tier
	item.Targets, item.Sources, item.Envs, item.Capabilities = u.Targets, u.Sources, u.Envs, u.Capabilities
	item.Agent = sub.Agent
	if name, level, err := api.SplitModel(sub.Model); err == nil && set.Models[name].Levels[level] != "" {
		item.Model = &api.ModelUse{Name: name, Level: level, ID: set.Models[name].Levels[level]}
	}
	if slices.Contains(u.Targets, sub.Target) {
		item.Target = sub.Target
	}
	limits := sub.Limits.Or(api.DefaultLimits()).Least(set.Targets[item.Target].Limits)
	item.Limits, item.Verify = &limits, sub.Verify != nil
	for _, c := range sub.Capabilities {
		item.NeedsSource = item.NeedsSource || slices.ContainsFunc(set.Capabilities[c].Requires, func(r api.Requirement) bool { return r.Git != "" })
	}
}

// describeGrant fills in what a grant lists.
func describeGrant(item *api.ArtifactInfo, g api.Grant) {
	item.Principal, item.Ceiling, item.Subagents = g.Principal, &g.Ceiling, g.Subagents
	item.Targets, item.Sources, item.Envs, item.Capabilities = g.Targets, g.Sources, g.Envs, g.Capabilities
}

// Grants returns all grants, sorted by name. The snapshot has a revision.
func (s Snapshot) Grants(origins catalog.Origins) ([]api.ArtifactInfo, error) {
	list := []api.ArtifactInfo{}
	for _, name := range s.Revision.Names(api.KindGrant) {
		item, err := reach{}.item(s.Revision, Query{Kind: api.KindGrant}, name)
		if err != nil {
			return nil, err
		}
		item.RegisteredAt = origins.Time(api.RefTo(api.KindGrant, name))
		list = append(list, item)
	}
	return list, nil
}
