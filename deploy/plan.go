package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// Plan is what applying a manifest would do to the catalog.
type Plan struct {
	Manifest        string                `json:"manifest,omitempty"` // absolute path; empty when artifacts are only moved
	Project         api.Name              `json:"project"`            // which the manifest declares
	Derived         bool                  `json:"derived,omitempty"`  // Project is the name of the manifest's directory
	Base            Mark                  `json:"base"`               // the revision that it was compared with; zero if none
	Options                               // of the plan
	api.CatalogDiff                       // of the catalog before and after
	Stay            []api.Ref             `json:"stay"`   // artifacts of the project that the manifest omits and that are kept
	Others          map[api.Name]int      `json:"others"` // how many artifacts other projects have, which stay as they are; "" for those of none
	Notes           []string              `json:"notes"`  // allowed but probably unintended
	Artifacts       map[api.Ref]api.Entry `json:"artifacts"`
	set             *catalog.Set          // after
	before          *catalog.Set          // empty if there is no revision
	files           map[api.Digest]staged // of the manifest
}

// Options of a plan.
type Options struct {
	Prune bool `json:"prune"` // remove artifacts of the project that the manifest omits
	// SourcesElsewhere does not look for the sources, which are on another machine.
	SourcesElsewhere bool `json:"sourcesElsewhere,omitempty"`
	// Connect lets unsigned servers of tools use their egress and
	// connect while the plan asks them.
	Connect bool `json:"connect,omitempty"`
}

func newPlan(head *Revision) *Plan {
	p := &Plan{
		CatalogDiff: catalogdiff.Compare(nil, nil), Stay: []api.Ref{}, Others: map[api.Name]int{}, Notes: []string{},
		Artifacts: map[api.Ref]api.Entry{}, set: catalog.NewSet(), before: catalog.NewSet(),
	}
	if head != nil {
		p.Base, p.before = head.Mark(), head.Set()
	}
	return p
}

// After returns the artifacts of the catalog once the plan is applied. The caller must
// not modify it.
func (p *Plan) After() *catalog.Set { return p.set }

// Empty reports whether applying would change nothing.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Count returns how many artifacts are added, changed and removed.
func (p *Plan) Count() (added, changed, removed int) {
	for _, c := range p.Changes {
		switch c.Op {
		case api.OpAdd:
			added++
		case api.OpChange:
			changed++
		case api.OpRemove:
			removed++
		}
	}
	return added, changed, removed
}

// Plan compares a manifest with the current revision. The error is Problems if the
// manifest refers to artifacts that neither it nor the catalog has, or shows jails
// a private place.
func (c *Catalog) Plan(ctx context.Context, m *Manifest, opt Options) (*Plan, error) {
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	p := newPlan(head)
	p.Manifest, p.Project, p.Derived, p.Options, p.files = m.path, m.project, m.derived, opt, m.files
	declared, err := m.named(head)
	if err != nil {
		return nil, err
	}
	if m.derived && opt.Prune {
		return nil, api.Errorf(api.CodeInvalid, "--prune: %s has no project key, and a manifest in another directory of the same name would count as the same project", m.shown).
			WithHint("add to it: project: %s", m.project)
	}
	if err := p.owned(m, declared); err != nil {
		return nil, err
	}
	problems := &strictyaml.List{File: m.shown}
	unpinned, err := c.define(ctx, problems, p, m, declared)
	if err != nil {
		return nil, err
	}
	for ref, d := range declared {
		if err := p.put(ref, d.doc, d.about, m.project); err != nil {
			return nil, err
		}
	}
	if head != nil {
		if err := p.keep(head, declared); err != nil {
			return nil, err
		}
	}
	p.check(problems, declared, c.cfg.Private)
	if err := problems.Err(); err != nil && len(unpinned) > 0 {
		return nil, &UnpinnedError{unpinned, err}
	} else if err != nil {
		return nil, err
	}
	if n := len(p.Artifacts); n > catalog.MaxArtifacts {
		return nil, api.Errorf(api.CodeTooLarge, "the revision would have %d artifacts, want at most %d", n, catalog.MaxArtifacts)
	}
	p.CatalogDiff = catalogdiff.Compare(p.before, p.set)
	if err := c.showStaged(ctx, p); err != nil {
		return nil, err
	}
	p.note()
	p.noteSchedules()
	return p, nil
}

func (p *Plan) put(ref api.Ref, doc []byte, about string, project api.Name) error {
	if err := p.set.Add(ref, doc); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	p.set.Own(ref, project)
	p.Artifacts[ref] = api.Entry{Digest: api.DigestOf(doc), Description: about, Project: project}
	return nil
}

// keep keeps the artifacts that the manifest omits: those of other projects always,
// its own unless they are pruned.
func (p *Plan) keep(head *Revision, declared map[api.Ref]*decl) error {
	entries := head.Document().Artifacts
	for _, ref := range slices.SortedFunc(slices.Values(p.before.Refs()), api.CompareRefs) {
		entry, own := entries[ref], entries[ref].Project == p.Project
		switch {
		case declared[ref] != nil || own && p.Prune:
			continue
		case own:
			p.Stay = append(p.Stay, ref)
		default:
			p.Others[entry.Project]++
		}
		if err := p.put(ref, p.before.Document(ref), entry.Description, entry.Project); err != nil {
			return err
		}
	}
	return nil
}

// note adds notes on grants and targets that never admit what they name, and on
// grants that are removed without effect.
func (p *Plan) note() {
	for _, name := range slices.Sorted(maps.Keys(p.before.Grants)) {
		g := p.before.Grants[name]
		if other, covered := catalogdiff.CoveredBy(p.set, g); covered && !catalogdiff.Covers(p.set.Grants[name], g) {
			ref := api.RefTo(api.KindGrant, other)
			p.Notes = append(p.Notes, fmt.Sprintf("grant/%s: %s loses nothing, because %s of %s gives it the same", name, g.Principal, ref, projectText(p.set.Project(ref))))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.set.Grants)) {
		g := p.set.Grants[name]
		for _, s := range g.Subagents {
			if tier := p.set.Subagents[s].Tier; tier > g.Ceiling {
				p.Notes = append(p.Notes, fmt.Sprintf("grant/%s: its ceiling %s never admits subagent %s, whose tier is %s", name, g.Ceiling, s, tier))
			}
		}
		if len(g.Targets) == 0 && len(g.Subagents) > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("grant/%s: lists no targets, so nothing can be dispatched with it", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.set.Subagents)) {
		s := p.set.Subagents[name]
		if m, _, err := api.SplitModel(s.Model); err == nil && p.set.Models[m].Credential != nil && s.Limits.Tokens == 0 && s.Limits.Cost == 0 && s.Limits.Turns == 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("subagent/%s: nothing but its timeout limits what it spends on model %s; set limits.cost, tokens or turns", name, m))
		}
		if what := p.unprotected(s); what != "" {
			p.Notes = append(p.Notes, fmt.Sprintf("subagent/%s: verify runs %s; list the files of the check in verify.protects, or have them come from a capability", name, what))
		}
		if t, ok := p.set.Targets[s.Target]; ok {
			if ceiling, err := t.Mode.Ceiling(); err != nil || s.Tier > ceiling {
				p.Notes = append(p.Notes, fmt.Sprintf("subagent/%s: its tier %s is above the ceiling of its target %s in mode %s", name, s.Tier, s.Target, t.Mode))
			}
		}
	}
}
