package deploy

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (r *reader) secret(d *decl, what string) {
	var v api.Secret
	if r.pasted(d.node, what, "{name: NAME, ref: file:NAME}") {
		return
	}
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"ref": d.in("ref", func(n *yaml.Node) {
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
				r.At(n, "ref: want text, such as file:NAME") // not quoted: it may be the value
				return
			}
			v.Ref = n.Value
			if _, err := api.ParseSecretRef(v.Ref); err != nil {
				r.At(n, "ref: %v", err)
			}
		}),
	})
	if d.node.Kind == yaml.MappingNode && d.pos["ref"] == nil {
		r.At(d.node, "%s: the key \"ref\" is missing, such as file:%s", what, cmp.Or(v.Name, "NAME"))
	}
	r.declare(d, api.KindSecret, v.Name, v.Description, v)
}

// secretUses reads the secrets of an env, by variable.
func (r *parser) secretUses(d *decl, n *yaml.Node) map[string]api.SecretUse {
	all := map[string]api.SecretUse{}
	r.mapping(n, "secrets", "variables to uses of secrets", func(key, value *yaml.Node, at string) {
		r.variable(key, "secrets")
		d.pos["secrets."+key.Value] = key
		all[key.Value] = r.secretUse(value, at)
	})
	return all
}

func (r *parser) secretUse(n *yaml.Node, what string) (v api.SecretUse) {
	if r.pasted(n, what, "{secret: NAME, exposed: true} or {secret: NAME, brokered: {hosts: [HOST:PORT], header: NAME}}") {
		return v
	}
	before := r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"secret":   func(n *yaml.Node) { v.Secret = r.Name(n, what+".secret") },
		"exposed":  func(n *yaml.Node) { v.Exposed = r.Bool(n, what+".exposed") },
		"brokered": func(n *yaml.Node) { v.Brokered = r.brokered(n, what+".brokered") },
	})
	switch {
	case r.Len() > before:
	case v.Secret == "":
		r.At(n, "%s: the key \"secret\" is missing", what)
	case v.Exposed == (v.Brokered != nil):
		r.At(n, "%s: want either exposed: true, or brokered: {hosts: [HOST:PORT], header: NAME}", what)
	}
	return v
}

func (r *parser) brokered(n *yaml.Node, what string) *api.Brokered {
	v := &api.Brokered{}
	before := r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"hosts": func(n *yaml.Node) {
			v.Hosts = r.egress(n, what+".hosts")
			for i, h := range v.Hosts {
				if strings.HasPrefix(h, "*.") {
					r.At(n.Content[i], "%s.hosts[%d]: %q: a secret goes to hosts that are named, without a wildcard", what, i, h)
				}
			}
		},
		"header": func(n *yaml.Node) { v.Header = r.header(n, what+".header") },
		"prefix": func(n *yaml.Node) { v.Prefix = r.prefix(n, what+".prefix") },
		"query":  func(n *yaml.Node) { v.Query = r.Line(n, what+".query") },
		"field":  func(n *yaml.Node) { v.Field = r.Line(n, what+".field") },
	})
	places := 0
	for _, s := range []string{v.Header, v.Query, v.Field} {
		if s != "" {
			places++
		}
	}
	switch {
	case r.Len() > before:
	case len(v.Hosts) == 0:
		r.At(n, "%s: the key \"hosts\" is missing or empty; want [HOST:PORT]", what)
	case places != 1:
		r.At(n, "%s: want one of header, query and field, which says where the secret goes", what)
	case v.Prefix != "" && v.Header == "":
		r.At(n, "%s: prefix is only for a header", what)
	case len(v.Query)+len(v.Field) > 128:
		r.At(n, "%s: the name is longer than 128 bytes", what)
	}
	return v
}
