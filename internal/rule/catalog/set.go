package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Set is the artifacts of a revision or plan.
type Set struct {
	Capabilities map[api.Name]api.Capability
	Subagents    map[api.Name]api.Subagent
	Models       map[api.Name]api.Model
	Envs         map[api.Name]api.Env
	Secrets      map[api.Name]api.Secret
	Sources      map[api.Name]api.Source
	Targets      map[api.Name]api.Target
	Tools        map[api.Name]api.ToolServer
	Roles        map[api.Name]api.Role
	Grants       map[api.Name]api.Grant
	Schedules    map[api.Name]api.Schedule
	Identities   map[api.Name]api.Identity

	docs     map[api.Ref][]byte
	projects map[api.Ref]api.Name
}

// NewSet returns an empty set.
func NewSet() *Set {
	return &Set{
		Capabilities: map[api.Name]api.Capability{}, Subagents: map[api.Name]api.Subagent{}, Models: map[api.Name]api.Model{}, Secrets: map[api.Name]api.Secret{},
		Envs: map[api.Name]api.Env{}, Sources: map[api.Name]api.Source{}, Targets: map[api.Name]api.Target{},
		Tools: map[api.Name]api.ToolServer{}, Roles: map[api.Name]api.Role{}, Grants: map[api.Name]api.Grant{}, Schedules: map[api.Name]api.Schedule{}, Identities: map[api.Name]api.Identity{}, docs: map[api.Ref][]byte{}, projects: map[api.Ref]api.Name{},
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
	case api.KindModel:
		err = add(s.Models, name, doc, func(v *api.Model) api.Name { return v.Name })
	case api.KindEnv:
		err = add(s.Envs, name, doc, func(v *api.Env) api.Name { return v.Name })
	case api.KindSecret:
		err = add(s.Secrets, name, doc, func(v *api.Secret) api.Name { return v.Name })
	case api.KindSource:
		err = add(s.Sources, name, doc, func(v *api.Source) api.Name { return v.Name })
	case api.KindTarget:
		err = add(s.Targets, name, doc, func(v *api.Target) api.Name { return v.Name })
	case api.KindTool:
		err = add(s.Tools, name, doc, func(v *api.ToolServer) api.Name { return v.Name })
	case api.KindRole:
		err = add(s.Roles, name, doc, func(v *api.Role) api.Name { return v.Name })
	case api.KindGrant:
		err = add(s.Grants, name, doc, func(v *api.Grant) api.Name { return v.Name })
	case api.KindSchedule:
		err = add(s.Schedules, name, doc, func(v *api.Schedule) api.Name { return v.Name })
	case api.KindIdentity:
		err = add(s.Identities, name, doc, func(v *api.Identity) api.Name { return v.Name })
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
	Missing api.Ref // that the set does not have; "" for another problem
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
		w.model(v)
		all = append(all, w.problems...)
	}
	all = append(all, s.secretProblems()...)
	all = append(all, s.toolProblems()...)
	all = append(all, s.identityProblems()...)
	for name, v := range s.Grants {
		w := &references{ref: api.RefTo(api.KindGrant, name), set: s}
		w.list("subagents", api.KindSubagent, v.Subagents)
		w.list("envs", api.KindEnv, v.Envs)
		w.list("sources", api.KindSource, v.Sources)
		w.list("capabilities", api.KindCapability, v.Capabilities)
		w.list("targets", api.KindTarget, v.Targets)
		w.list("approve", api.KindRole, v.Approve)
		all = append(all, w.problems...)
	}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Ref, b.Ref), cmp.Compare(a.Field, b.Field))
	})
	return all
}

// secretProblems returns the unresolved references to secrets.
func (s *Set) secretProblems() (all []Problem) {
	one := func(kind api.Kind, name api.Name, field string, secret api.Name) {
		w := &references{ref: api.RefTo(kind, name), set: s}
		w.one(field, api.KindSecret, secret)
		all = append(all, w.problems...)
	}
	for name, v := range s.Models {
		if v.Credential != nil {
			one(api.KindModel, name, "credential.secret", v.Credential.Secret)
		}
	}
	for name, v := range s.Envs {
		for variable, use := range v.Secrets {
			one(api.KindEnv, name, "secrets."+variable, use.Secret)
		}
	}
	for name, v := range s.Sources {
		if v.Secret != "" {
			one(api.KindSource, name, "secret", v.Secret)
		}
	}
	return all
}

type references struct {
	ref      api.Ref
	set      *Set
	problems []Problem
}

func (w *references) one(field string, kind api.Kind, name api.Name) {
	if _, ok := w.set.docs[api.RefTo(kind, name)]; !ok {
		w.problems = append(w.problems, Problem{Ref: w.ref, Field: field, Message: fmt.Sprintf("no such %s %q", kind, string(name)), Missing: api.RefTo(kind, name)})
	}
}

// model checks the model of a subagent. In a catalog without models, it is any text.
func (w *references) model(v api.Subagent) {
	if v.Model == "" || len(w.set.Models) == 0 {
		return
	}
	name, level, err := api.SplitModel(v.Model)
	if err != nil {
		w.problems = append(w.problems, Problem{Ref: w.ref, Field: "model", Message: err.Error()})
		return
	}
	w.one("model", api.KindModel, name)
	if m, ok := w.set.Models[name]; ok && m.Levels[level] == "" {
		w.problems = append(w.problems, Problem{Ref: w.ref, Field: "model", Message: fmt.Sprintf("model %q has no level %q; it has %s", name, level, api.OneOf(slices.Sorted(maps.Keys(m.Levels))))})
	}
}

func (w *references) list(field string, kind api.Kind, names []api.Name) {
	seen := make(map[api.Name]bool, len(names))
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", field, i)
		w.one(at, kind, n)
		twice := seen[n]
		if seen[n] = true; twice {
			w.problems = append(w.problems, Problem{Ref: w.ref, Field: at, Message: fmt.Sprintf("duplicate %s %q", kind, string(n))})
		}
	}
}
