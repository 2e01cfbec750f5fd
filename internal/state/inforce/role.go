package inforce

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// Roles returns the subagents of each role that q selects, sorted: those that the
// principal may dispatch, or with q.All those of every role.
func (s Snapshot) Roles(q Query) (map[api.Name][]api.Name, error) {
	if !q.All {
		all, _, err := s.usable(q.Principal, q.Ceiling)
		return all.roles(), err
	}
	found := map[api.Name][]api.Name{}
	for _, role := range s.Revision.Names(api.KindRole) {
		found[role] = nil
	}
	for _, name := range s.Revision.Names(api.KindSubagent) {
		role := s.Revision.Set().Subagents[name].Role
		found[role] = append(found[role], name)
	}
	return found, nil
}

// roles returns the subagents of each role, sorted.
func (all reach) roles() map[api.Name][]api.Name {
	found := map[api.Name][]api.Name{}
	for name, u := range all {
		found[u.subagent.Role] = append(found[u.subagent.Role], name)
	}
	for _, list := range found {
		slices.Sort(list)
	}
	return found
}

// RoleTools returns everything that a role may call; with schemas, as agents see it.
// The snapshot has a revision.
func (s Snapshot) RoleTools(role api.Name, schemas bool) (api.RoleTools, error) {
	list := api.RoleTools{Role: role, Revision: s.Revision.Number(), Tools: []api.RoleTool{}}
	for _, t := range s.Revision.Tools(role) {
		doc, err := canon.Marshal(t.Definition)
		if err != nil {
			return list, err
		}
		item := api.RoleTool{
			Tool: t.ID, Name: t.Name, Server: t.Server, Tier: t.Tier, Approval: t.Approval, Trusted: t.Trusted,
			Title: t.Definition.Title, Description: t.Definition.Description, Definition: api.DigestOf(doc),
		}
		if t.Tier >= api.Stateful {
			item.Tainted, item.Approvers = t.Tainted, policy.ToolApprovers(t.Tier)
			if t.Tainted == "" {
				item.Tainted = api.TaintedAsk
			}
		}
		if t.Approval != nil {
			item.Approvers = policy.ToolApprovers(t.Tier)
		}
		if schemas {
			item.InputSchema, item.OutputSchema = t.Definition.InputSchema, t.Definition.OutputSchema
		}
		list.Tools = append(list.Tools, item)
	}
	return list, nil
}
