package snapshot

import (
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
)

// Bounds of a page of a list.
const (
	listItems = 50
	listBytes = 32 << 10 // of input schemas and descriptions; a single item may be longer
)

// List returns the artifacts of a kind that p may name up to the tier ceiling,
// after a name, sorted: metadata only, never content (R-B6). Artifacts that p
// may not use are left out. The snapshot has a revision.
func (s Snapshot) List(p api.Principal, ceiling api.Tier, kind api.Kind, after api.Name, origins catalog.Origins) (page api.ListingPage, err error) {
	page.Items = []api.Listing{}
	usable, above, err := s.usable(p, ceiling)
	if err != nil {
		return page, err
	}
	page.AboveCeiling = above
	bytes := 0
	for _, name := range usable.names(kind) {
		if name <= after {
			continue
		}
		item, err := usable.item(s.Revision, kind, name)
		if err != nil {
			return page, err
		}
		bytes += len(item.Input) + len(item.Description)
		if n := len(page.Items); n == listItems || n > 0 && bytes > listBytes {
			page.Next = string(page.Items[n-1].Name)
			return page, nil
		}
		item.RegisteredAt = origins.Time(api.RefTo(kind, name))
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// reach is each subagent that a caller may use, with what it may name beside
// it.
type reach map[api.Name]policy.Reach

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
			all[name] = r
		case ok:
			above++
		}
	}
	return all, above, nil
}

// names returns the names of a kind, sorted.
func (all reach) names(kind api.Kind) []api.Name {
	found := map[api.Name]bool{}
	for name, r := range all {
		var list []api.Name
		switch kind { //nolint:exhaustive // only these are listed
		case api.KindSubagent:
			list = []api.Name{name}
		case api.KindEnv:
			list = r.Envs
		case api.KindCapability:
			list = r.Capabilities
		}
		for _, n := range list {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (all reach) item(rev *catalog.Revision, kind api.Kind, name api.Name) (api.Listing, error) {
	entry, err := rev.Entry(kind, name)
	if err != nil {
		return api.Listing{}, err
	}
	item := api.Listing{Name: name, Kind: kind, Description: entry.Description, Revision: rev.Number(), Digest: entry.Digest}
	if kind != api.KindSubagent {
		return item, nil
	}
	sub, _, err := rev.Subagent(name)
	if err != nil {
		return item, err
	}
	r := all[name]
	item.Input, item.Role, item.Tier = sub.Input, sub.Role, &sub.Tier
	item.Targets, item.Sources, item.Envs, item.Capabilities = r.Targets, r.Sources, r.Envs, r.Capabilities
	if slices.Contains(r.Targets, sub.Target) {
		item.Target = sub.Target
	}
	return item, nil
}
