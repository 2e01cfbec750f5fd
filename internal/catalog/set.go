package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// Set is the artifacts of a revision or plan.
type Set struct {
	Capabilities map[api.Name]api.Capability
	Subagents    map[api.Name]api.Subagent
	Envs         map[api.Name]api.Env
	Sources      map[api.Name]api.Source
	Targets      map[api.Name]api.Target
	Roles        map[api.Name]api.Role
	Grants       map[api.Name]api.Grant

	docs     map[api.Ref][]byte
	projects map[api.Ref]api.Name
}

// NewSet returns an empty set.
func NewSet() *Set {
	return &Set{
		Capabilities: map[api.Name]api.Capability{}, Subagents: map[api.Name]api.Subagent{},
		Envs: map[api.Name]api.Env{}, Sources: map[api.Name]api.Source{}, Targets: map[api.Name]api.Target{},
		Roles: map[api.Name]api.Role{}, Grants: map[api.Name]api.Grant{}, docs: map[api.Ref][]byte{}, projects: map[api.Ref]api.Name{},
	}
}

// Add adds an artifact document, which must be canonical and match the kind and name
// of ref. It refuses duplicates.
func (s *Set) Add(ref api.Ref, doc []byte) error {
	kind, name, err := ref.Split()
	if err != nil {
		return err
	}
	if _, twice := s.docs[ref]; twice {
		return fmt.Errorf("duplicate artifact %s", ref)
	}
	switch kind {
	case api.KindCapability:
		err = add(s.Capabilities, name, doc, func(v *api.Capability) api.Name { return v.Name })
		if err == nil {
			err = checkBundle(s.Capabilities[name])
		}
	case api.KindSubagent:
		err = add(s.Subagents, name, doc, func(v *api.Subagent) api.Name { return v.Name })
	case api.KindEnv:
		err = add(s.Envs, name, doc, func(v *api.Env) api.Name { return v.Name })
	case api.KindSource:
		err = add(s.Sources, name, doc, func(v *api.Source) api.Name { return v.Name })
	case api.KindTarget:
		err = add(s.Targets, name, doc, func(v *api.Target) api.Name { return v.Name })
	case api.KindRole:
		err = add(s.Roles, name, doc, func(v *api.Role) api.Name { return v.Name })
	case api.KindGrant:
		err = add(s.Grants, name, doc, func(v *api.Grant) api.Name { return v.Name })
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	s.docs[ref] = bytes.Clone(doc)
	return nil
}

func add[T any](into map[api.Name]T, want api.Name, doc []byte, nameOf func(*T) api.Name) error {
	var v T
	if err := canon.DecodeExact(doc, &v); err != nil {
		return err
	}
	if got := nameOf(&v); got != want {
		return fmt.Errorf("the document has the name %q", string(got))
	}
	into[want] = v
	return nil
}

// Document returns the document of an artifact, or nil.
func (s *Set) Document(ref api.Ref) []byte { return bytes.Clone(s.docs[ref]) }

// Own records the project that an artifact belongs to.
func (s *Set) Own(ref api.Ref, project api.Name) { s.projects[ref] = project }

// Project returns the project that an artifact belongs to; empty if to none.
func (s *Set) Project(ref api.Ref) api.Name { return s.projects[ref] }

// Refs returns all refs in bytewise order.
func (s *Set) Refs() []api.Ref { return slices.Sorted(maps.Keys(s.docs)) }

// Files returns the files of all capabilities, by capability and path.
func (s *Set) Files() []api.File {
	var files []api.File
	for _, name := range slices.Sorted(maps.Keys(s.Capabilities)) {
		files = append(files, s.Capabilities[name].Files...)
	}
	return files
}

// Problem is an unresolved or duplicate reference in a set.
type Problem struct {
	Ref     api.Ref
	Field   string // as in the document: "capabilities[1]"
	Message string
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Ref, p.Field, p.Message) }

// Problems returns the unresolved and duplicate references of the set.
func (s *Set) Problems() []Problem {
	var all []Problem
	for name, v := range s.Subagents {
		w := &references{ref: api.RefTo(api.KindSubagent, name), set: s}
		w.list("capabilities", api.KindCapability, v.Capabilities)
		w.one("role", api.KindRole, v.Role)
		if v.Target != "" {
			w.one("target", api.KindTarget, v.Target)
		}
		all = append(all, w.problems...)
	}
	for name, v := range s.Grants {
		w := &references{ref: api.RefTo(api.KindGrant, name), set: s}
		w.list("subagents", api.KindSubagent, v.Subagents)
		w.list("envs", api.KindEnv, v.Envs)
		w.list("sources", api.KindSource, v.Sources)
		w.list("capabilities", api.KindCapability, v.Capabilities)
		w.list("targets", api.KindTarget, v.Targets)
		all = append(all, w.problems...)
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Field, b.Field))
	})
	return all
}

type references struct {
	ref      api.Ref
	set      *Set
	problems []Problem
}

func (w *references) one(field string, kind api.Kind, name api.Name) {
	if _, ok := w.set.docs[api.RefTo(kind, name)]; !ok {
		w.problems = append(w.problems, Problem{w.ref, field, fmt.Sprintf("no such %s %q", kind, string(name))})
	}
}

func (w *references) list(field string, kind api.Kind, names []api.Name) {
	seen := make(map[api.Name]bool, len(names))
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", field, i)
		w.one(at, kind, n)
		twice := seen[n]
		if seen[n] = true; twice {
			w.problems = append(w.problems, Problem{w.ref, at, fmt.Sprintf("duplicate %s %q", kind, string(n))})
		}
	}
}
