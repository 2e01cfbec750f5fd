package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
)

// Bounds of a page of a list.
const (
	listItems = 50
	listBytes = 32 << 10 // of input schemas and descriptions; one item may be longer
)

// Listing returns what a caller may use of a kind, behind a name, in the order
// of names: metadata of the revision in force and nothing of the content
// (R-B6). What it may not use is left out, so the answer says nothing of it.
func (s *Service) Listing(ctx context.Context, who Caller, kind api.Kind, after api.Name) (page api.ListingPage, err error) {
	p, err := s.book.current(ctx)
	if err != nil {
		return page, err
	}
	d := p.engine.Decide(policy.Request{Principal: who.Principal, Action: policy.ActionCatalogRead, Resource: string(who.Principal)})
	if !d.Allowed() {
		return page, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", string(policy.ActionCatalogRead)), nil)
	}
	page.Items = []api.Listing{}
	if p.revision == nil {
		return page, nil
	}
	origins, err := s.book.origins(ctx, p.revision)
	if err != nil {
		return page, err
	}
	usable, above, err := s.reach(p, who)
	if err != nil {
		return page, err
	}
	page.AboveCeiling = above
	bytes := 0
	for _, name := range usable.names(kind) {
		if name <= after {
			continue
		}
		item, err := usable.item(p.revision, kind, name)
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

// reached is what a caller may use: each subagent with what may be named with
// it.
type reached map[api.Name]policy.Reach

// reach returns what who may use now, and how many subagents it would be more
// with a higher ceiling.
func (s *Service) reach(p page, who Caller) (reached, int, error) {
	all, above := reached{}, 0
	ceiling := min(s.cfg.Registry.Consent(who.Principal), who.Ceiling)
	for _, name := range p.engine.Usable(who.Principal, api.KindSubagent) {
		sub, _, err := p.revision.Subagent(name)
		if err != nil {
			return nil, 0, err
		}
		r, ok := p.engine.Reach(who.Principal, &sub)
		switch {
		case ok && sub.Tier <= ceiling:
			all[name] = r
		case ok:
			above++
		}
	}
	return all, above, nil
}

// names lists, sorted, what of a kind may be named.
func (all reached) names(kind api.Kind) []api.Name {
	found := map[api.Name]bool{}
	for name, r := range all {
		var list []api.Name
		switch kind { //nolint:exhaustive // there are lists of these
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

// item is what is told of one.
func (all reached) item(rev *catalog.Revision, kind api.Kind, name api.Name) (api.Listing, error) {
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

// registry remembers when what is in the catalog came there.
type registry struct {
	mu    sync.Mutex
	known catalog.Origins // guarded by mu
}

// origins returns when the content that the names of rev mean came into the
// catalog. Going back through its history does not hold up a decision.
func (b *book) origins(ctx context.Context, rev *catalog.Revision) (catalog.Origins, error) {
	b.registry.mu.Lock()
	defer b.registry.mu.Unlock()
	if b.registry.known.Of() == rev.Mark() {
		return b.registry.known, nil
	}
	seen, err := b.openStore(ctx)
	defer seen.close()
	if err != nil {
		return catalog.Origins{}, err
	}
	found, err := seen.catalog.Origins(ctx, rev, b.registry.known)
	if err == nil {
		b.registry.known = found
	}
	return found, err
}
