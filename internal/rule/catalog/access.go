package catalog

import (
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Access is what a dispatch may reach outside its jail, all of it set by humans in
// one revision.
type Access struct {
	Endpoint *api.ModelUse // nil without a model
	Model    *api.Model    // of Endpoint
	Envs     []api.Env
	Egress   []string // see api.EgressOf
	Secrets  []api.SecretRef
}

// Lookup finds artifacts of one revision.
type Lookup struct {
	Models bool // it has some; in older revisions the model of a subagent is any text
	Model  func(api.Name) (api.Model, error)
	Env    func(api.Name) (api.Env, error)
	Secret func(api.Name) (api.Secret, error)
}

// Access returns what a dispatch of a subagent on a target with envs may reach. The
// service puts it into the manifest, and the worker derives it again.
func (r *Revision) Access(sub api.Subagent, target api.Target, envs []api.Name) (Access, error) {
	return AccessOf(Lookup{
		Models: len(r.set.Models) > 0,
		Model:  func(n api.Name) (api.Model, error) { m, _, err := r.Model(n); return m, err },
		Env:    func(n api.Name) (api.Env, error) { e, _, err := r.Env(n); return e, err },
		Secret: func(n api.Name) (api.Secret, error) { s, _, err := r.Secret(n); return s, err },
	}, sub, target, envs)
}

// AccessOf is Access for the artifacts that from finds. Verifiers have only some of a
// revision.
func AccessOf(from Lookup, sub api.Subagent, target api.Target, envs []api.Name) (Access, error) {
	var a Access
	if from.Models && sub.Model != "" {
		name, level, err := api.SplitModel(sub.Model)
		if err != nil {
			return a, fmt.Errorf("subagent %q: %w", sub.Name, err)
		}
		m, err := from.Model(name)
		if err != nil {
			return a, err
		}
		id, ok := m.Levels[level]
		if !ok {
			return a, fmt.Errorf("subagent %q: model %q has no level %q", sub.Name, name, level)
		}
		if _, priced := m.Prices[id]; !priced && sub.Limits.Least(target.Limits).Cost > 0 {
			return a, api.Errorf(api.CodeInvalid, "subagent %q on target %q: the cost is limited, and model %q has no prices for %s", sub.Name, target.Name, name, id)
		}
		a.Model, a.Endpoint = &m, &api.ModelUse{Name: name, Level: level, ID: id}
	}
	for _, n := range envs {
		e, err := from.Env(n)
		if err != nil {
			return a, err
		}
		a.Envs = append(a.Envs, e)
	}
	a.Egress = api.EgressOf(target, a.Envs)
	var err error
	a.Secrets, err = api.SecretsOf(a.Model, a.Envs, from.Secret)
	return a, err
}
