package deploy

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

var (
	currencyText = regexp.MustCompile(`^[a-z]{3}$`)
	// modelID is a provider's id of a model, such as anthropic/claude-3.5:beta.
	modelID  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$`)
	toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

func (r *reader) model(d *decl, what string) {
	var v api.Model
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"api":         d.in("api", func(n *yaml.Node) { v.API = api.ModelAPI(r.Line(n, "api")) }),
		"endpoint":    d.in("endpoint", func(n *yaml.Node) { v.Endpoint = r.Line(n, "endpoint") }),
		"credential":  d.in("credential", func(n *yaml.Node) { v.Credential = r.credential(d, n) }),
		"levels":      d.in("levels", func(n *yaml.Node) { v.Levels = r.levels(n) }),
		"prices":      d.in("prices", func(n *yaml.Node) { v.Prices = r.prices(d, n) }),
		"currency":    d.in("currency", func(n *yaml.Node) { v.Currency = r.Line(n, "currency") }),
		"serverTools": d.in("serverTools", func(n *yaml.Node) { v.ServerTools = r.Texts(n, "serverTools") }),
	})
	if d.node.Kind == yaml.MappingNode {
		checkModel(&r.parser, d, &v, what)
	}
	r.declare(d, api.KindModel, v.Name, v.Description, v)
}

func checkModel(r *parser, d *decl, v *api.Model, what string) {
	for _, field := range []string{"api", "endpoint", "levels"} {
		if d.pos[field] == nil {
			r.At(d.node, "%s: the key %q is missing", what, field)
		}
	}
	if v.API != "" && !slices.Contains(api.ModelAPIs(), v.API) {
		r.At(d.at("api"), "api: unknown API %q; want one of %s", strictyaml.Clip(string(v.API)), api.OneOf(api.ModelAPIs()))
	}
	if v.Endpoint != "" {
		u, local, err := egress.ParseEndpoint(v.Endpoint)
		switch {
		case err != nil: // the URL may contain a key, so it is not quoted
			r.At(d.at("endpoint"), "endpoint: %v", err)
		case v.Credential == nil && !local.IsValid():
			r.At(d.at("endpoint"), "%s: the key \"credential\" is missing: %s is not on this machine; want {header: x-api-key, secret: NAME}", what, u.Host)
		}
		v.Endpoint = strings.TrimRight(v.Endpoint, "/")
	}
	ids := slices.Collect(maps.Values(v.Levels))
	for _, id := range slices.Sorted(maps.Keys(v.Prices)) {
		if !slices.Contains(ids, id) {
			r.At(d.at("prices."+id), "prices: no level has the model %q; the levels have %s", id, strings.Join(slices.Compact(slices.Sorted(slices.Values(ids))), ", "))
		}
	}
	if v.API == api.Gemini {
		for level, id := range v.Levels {
			if strings.ContainsAny(id, "/:") {
				r.At(d.at("levels"), "levels.%s: %q: want the id of the model alone, such as gemini-2.5-pro", level, id)
			}
		}
	}
	if v.Currency != "" && !currencyText.MatchString(v.Currency) {
		r.At(d.at("currency"), "currency: want three lower-case letters, such as usd")
	}
	for i, t := range v.ServerTools {
		if !toolName.MatchString(t) {
			r.At(d.at("serverTools"), "serverTools[%d]: %q: want the type of a tool of the provider, such as web_search_20250305", i, strictyaml.Clip(t))
		}
	}
}

func (r *parser) credential(d *decl, n *yaml.Node) *api.Credential {
	v := &api.Credential{}
	if r.pasted(n, "credential", "{header: NAME, secret: NAME}") {
		return v
	}
	r.Fields(n, "credential", map[string]func(*yaml.Node){
		"header": func(n *yaml.Node) { v.Header = r.header(n, "credential.header") },
		"prefix": func(n *yaml.Node) { v.Prefix = r.prefix(n, "credential.prefix") },
		"secret": d.in("credential.secret", func(n *yaml.Node) { v.Secret = r.Name(n, "credential.secret") }),
	})
	if n.Kind == yaml.MappingNode && d.pos["credential.secret"] == nil {
		r.At(n, "credential: the key \"secret\" is missing")
	}
	if n.Kind == yaml.MappingNode && !hasKey(n, "header") {
		r.At(n, "credential: the key \"header\" is missing, such as x-api-key, or authorization with prefix: \"Bearer \"")
	}
	return v
}

func (r *reader) levels(n *yaml.Node) map[api.Name]string {
	v := map[api.Name]string{}
	r.mapping(n, "levels", "levels to ids of models", func(key, value *yaml.Node, at string) {
		name, id := r.Name(key, "levels"), r.Line(value, at)
		if id != "" && !modelID.MatchString(id) {
			r.At(value, "%s: %q is not the id of a model", at, strictyaml.Clip(id))
		}
		v[name] = id
	})
	if n.Kind == yaml.MappingNode && len(v) == 0 {
		r.At(n, "levels: is empty; want at least one, such as {large: ID}")
	}
	return v
}

// prices reads prices per million tokens. Tokens of the cache cost as much as others
// unless the author says less, so that no token is free by omission.
func (r *reader) prices(d *decl, n *yaml.Node) map[string]api.Price {
	all := map[string]api.Price{}
	r.mapping(n, "prices", "ids of models to prices", func(key, value *yaml.Node, at string) {
		var v api.Price
		price := func(name string, into *api.Cost) func(*yaml.Node) {
			return func(n *yaml.Node) { r.Scalar(n, at+"."+name, into) }
		}
		r.Fields(value, at, map[string]func(*yaml.Node){
			"input": price("input", &v.Input), "output": price("output", &v.Output),
			"cacheRead": price("cacheRead", &v.CacheRead), "cacheWrite": price("cacheWrite", &v.CacheWrite),
		})
		if value.Kind == yaml.MappingNode {
			for _, name := range []string{"input", "output"} {
				if !hasKey(value, name) {
					r.At(value, "%s: the key %q is missing", at, name)
				}
			}
			if !hasKey(value, "cacheRead") {
				v.CacheRead = v.Input
			}
			if !hasKey(value, "cacheWrite") {
				v.CacheWrite = v.Input
			}
		}
		d.pos["prices."+key.Value] = key
		all[key.Value] = v
	})
	return all
}
