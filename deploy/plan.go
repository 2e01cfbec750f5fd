package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// Plan is what applying a manifest would do to the catalog.
type Plan struct {
	Manifest  string                `json:"manifest"` // absolute path
	Base      Mark                  `json:"base"`     // the revision that it was compared with; zero if none
	Prune     bool                  `json:"prune"`
	Changes   []ArtifactChange      `json:"changes"`
	Widens    []Widening            `json:"widens"`
	Stay      []api.Ref             `json:"stay"`  // artifacts of the catalog that the manifest omits and that are kept
	Notes     []string              `json:"notes"` // allowed but probably unintended
	Artifacts map[api.Ref]api.Entry `json:"artifacts"`
	set       *catalog.Set          // after
	before    *catalog.Set          // nil if none
	files     map[api.Digest]staged // of the manifest
}

// Options of a plan.
type Options struct {
	Prune bool // remove artifacts that the manifest omits
}

// Empty reports whether applying would change nothing.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Count returns how many artifacts are added, changed and removed.
func (p *Plan) Count() (added, changed, removed int) {
	for _, c := range p.Changes {
		switch c.Op {
		case Add:
			added++
		case Change:
			changed++
		case Remove:
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
	p := &Plan{
		Manifest: m.path, Prune: opt.Prune, Stay: []api.Ref{}, Notes: []string{},
		Artifacts: map[api.Ref]api.Entry{}, set: catalog.NewSet(), files: m.files,
	}
	declared := map[api.Ref]*decl{}
	for _, d := range m.decls {
		declared[d.ref] = d
		if err := p.put(d.ref, d.doc, d.about); err != nil {
			return nil, err
		}
	}
	if head != nil {
		p.Base, p.before = head.Mark(), head.Set()
		if err := p.keep(head, declared); err != nil {
			return nil, err
		}
	}
	if err := p.check(m, declared, c.cfg.Private); err != nil {
		return nil, err
	}
	if n := len(p.Artifacts); n > catalog.MaxArtifacts {
		return nil, api.Errorf(api.CodeTooLarge, "the revision would have %d artifacts, want at most %d", n, catalog.MaxArtifacts)
	}
	p.Changes = Diff(p.before, p.set)
	p.Widens = Widenings(p.before, p.set)
	p.note()
	return p, nil
}

func (p *Plan) put(ref api.Ref, doc []byte, about string) error {
	if err := p.set.Add(ref, doc); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	p.Artifacts[ref] = api.Entry{Digest: api.DigestOf(doc), Description: about}
	return nil
}

// keep keeps the artifacts that the manifest omits, unless they are pruned.
func (p *Plan) keep(head *Revision, declared map[api.Ref]*decl) error {
	for _, ref := range slices.SortedFunc(slices.Values(head.Set().Refs()), byKind) {
		if _, ok := declared[ref]; ok || p.Prune {
			continue
		}
		p.Stay = append(p.Stay, ref)
		kind, name, err := ref.Split()
		if err != nil {
			return err
		}
		entry, err := head.Entry(kind, name)
		if err != nil {
			return err
		}
		if err := p.put(ref, head.Set().Document(ref), entry.Description); err != nil {
			return err
		}
	}
	return nil
}

// check reports unresolved references, and paths that no jail is shown, at their
// place in the manifest.
func (p *Plan) check(m *Manifest, declared map[api.Ref]*decl, private api.Private) error {
	l := &strictyaml.List{File: m.shown}
	for _, problem := range p.set.Problems() {
		d, ok := declared[problem.Ref]
		if !ok {
			l.Add(0, 0, "%s (already in the catalog): %s: %s", problem.Ref, problem.Field, problem.Message)
			continue
		}
		n := d.at(problem.Field)
		l.Add(n.Line, n.Column, "%s: %s: %s", problem.Ref, problem.Field, problem.Message)
	}
	for name, t := range p.set.Targets {
		d := declared[api.RefTo(api.KindTarget, name)]
		for i, path := range t.ReadOnly {
			if err := private.CheckReadOnly(path); err != nil && d != nil {
				n := d.at("readOnly")
				if i < len(n.Content) {
					n = n.Content[i]
				}
				l.Add(n.Line, n.Column, "%s: readOnly[%d]: %v", d.ref, i, err)
			}
		}
	}
	return l.Err()
}

// note adds notes on grants and targets that never admit what they name.
func (p *Plan) note() {
	for _, name := range slices.Sorted(maps.Keys(p.set.Grants)) {
		g := p.set.Grants[name]
		for _, s := range g.Subagents {
			if tier := p.set.Subagents[s].Tier; tier > g.Ceiling {
				p.Notes = append(p.Notes, fmt.Sprintf("grant/%s: its ceiling %s never admits subagent %s, whose tier is %s", name, g.Ceiling, s, tier))
			}
		}
		if len(g.Targets) == 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("grant/%s: lists no targets, so nothing can be dispatched with it", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.set.Subagents)) {
		s := p.set.Subagents[name]
		if t, ok := p.set.Targets[s.Target]; ok {
			if ceiling, err := t.Mode.Ceiling(); err != nil || s.Tier > ceiling {
				p.Notes = append(p.Notes, fmt.Sprintf("subagent/%s: its tier %s is above the ceiling of its target %s in mode %s", name, s.Tier, s.Target, t.Mode))
			}
		}
	}
}
