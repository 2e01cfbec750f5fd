package deploy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// maxDerived is how long the name of a project is that is derived from a directory,
// so that names which begin with it fit.
const maxDerived = 32

// ProjectOf returns the project of a manifest that names none: the name of its
// directory in the characters of a name. It is empty if nothing is left.
func ProjectOf(dir string) api.Name {
	s := spell(filepath.Base(dir))
	return api.Name(strings.Trim(s[:min(maxDerived, len(s))], "-._"))
}

// spell replaces what a name cannot contain. The result may still begin or end
// with a character that a name does not.
func spell(s string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' {
			return c
		}
		return '-'
	}, strings.ToLower(s)), "-._")
}

// project reads the project of the manifest, or derives it.
func (r *reader) project(n *yaml.Node) {
	if n != nil {
		r.m.project = r.Name(n, "project")
		return
	}
	r.m.derived = true
	if r.m.project = ProjectOf(r.m.dir); r.m.project == "" {
		r.Add(1, 1, "manifest: the directory %q gives no name for the project; add \"project: NAME\"", strictyaml.Clip(filepath.Base(r.m.dir)))
	}
}

// grantName is the name of a grant that has none: project and principal, as in
// words-agent-claude. Two projects thus grant to one principal side by side.
func grantName(project api.Name, p api.Principal) api.Name {
	s := string(project) + "-" + spell(string(p))
	if len(s) > 64 {
		s = fmt.Sprintf("%s-%.6x", strings.TrimRight(s[:51], "-._"), sha256.Sum256([]byte(s)))
	}
	return api.Name(s)
}

// named returns the declarations for a catalog. Before there were projects, a grant
// without a name was named after its principal alone: it keeps that name if the
// catalog has it, so that the manifest still governs it.
func (m *Manifest) named(head *Revision) (map[api.Ref]*decl, error) {
	all := map[api.Ref]*decl{}
	for _, d := range m.decls {
		all[d.ref] = d
	}
	for ref, d := range maps.Clone(all) {
		if d.unnamed == nil || head == nil {
			continue
		}
		g := *d.unnamed
		g.Name = api.Name(spell(string(g.Principal)))
		old := api.RefTo(api.KindGrant, g.Name)
		if all[old] != nil || !m.governs(head, g.Name, g.Principal) || head.Set().Document(ref) != nil {
			continue
		}
		doc, err := canon.Marshal(g)
		if err != nil {
			return nil, err
		}
		kept := *d
		kept.ref, kept.doc = old, doc
		delete(all, ref)
		all[old] = &kept
	}
	return all, nil
}

// governs reports whether a grant of the catalog is one that this manifest made: it
// is of its project, or of none and admits only subagents that the manifest declares.
func (m *Manifest) governs(head *Revision, name api.Name, p api.Principal) bool {
	g, ok := head.Set().Grants[name]
	if !ok || g.Principal != p {
		return false
	}
	if owner := head.Set().Project(api.RefTo(api.KindGrant, name)); owner != "" {
		return owner == m.project
	}
	return !slices.ContainsFunc(g.Subagents, func(s api.Name) bool {
		return !slices.ContainsFunc(m.decls, func(d *decl) bool { return d.ref == api.RefTo(api.KindSubagent, s) })
	})
}

// owned refuses declarations of names that belong to other projects.
func (p *Plan) owned(m *Manifest, declared map[api.Ref]*decl) error {
	l := &strictyaml.List{File: m.shown}
	other := api.Name("")
	for _, ref := range slices.Sorted(maps.Keys(declared)) {
		if owner := p.before.Project(ref); owner != "" && owner != m.project {
			n := declared[ref].at("name")
			l.Add(n.Line, n.Column, "%s: belongs to project %s, and this is the manifest of project %s", ref, owner, m.project)
			other = cmp.Or(other, owner)
		}
	}
	if l.Len() == 0 {
		return nil
	}
	hint := fmt.Sprintf("declare another name, or only refer to it: what other projects declare can be used; or take it over with: bailiwick catalog move KIND/NAME --to %s", m.project)
	if m.derived {
		hint = fmt.Sprintf("if this manifest belongs to project %s, add to it: project: %[1]s; else %s", other, hint)
	}
	err := l.Err()
	return &notOwned{api.Errorf(api.CodeConflict, "%w", err).WithHint("%s", hint), err}
}

// notOwned is a conflict about the ownership of names, with their places.
type notOwned struct {
	conflict *api.Error
	problems error
}

func (e *notOwned) Error() string   { return e.conflict.Error() }
func (e *notOwned) Unwrap() []error { return []error{e.conflict, e.problems} }

// Move plans to give artifacts to a project. Nothing but their owner changes.
func (c *Catalog) Move(ctx context.Context, refs []api.Ref, to api.Name) (*Plan, error) {
	if _, err := api.ParseName(string(to)); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "project: %w", err)
	}
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	p := newPlan(head)
	p.Project = to
	for _, ref := range refs {
		kind, name, err := ref.Split()
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "%w", err)
		}
		if p.before.Document(ref) == nil {
			return nil, api.Errorf(api.CodeNotFound, "%s %q: not in the catalog", kind, string(name)).WithHint("see: bailiwick catalog list")
		}
	}
	for _, ref := range p.before.Refs() {
		owner := p.before.Project(ref)
		if slices.Contains(refs, ref) {
			owner = to
		}
		if err := p.put(ref, p.before.Document(ref), head.Document().Artifacts[ref].Description, owner); err != nil {
			return nil, err
		}
	}
	p.Changes = catalogdiff.Changes(p.before, p.set)
	return p, nil
}
