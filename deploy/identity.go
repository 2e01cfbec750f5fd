package deploy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

func (r *reader) identity(d *decl, what string) {
	var v api.Identity
	nodes := []*yaml.Node{}
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"issuer":      d.in("issuer", func(n *yaml.Node) { v.Issuer = r.Line(n, "issuer") }),
		"client":      d.in("client", func(n *yaml.Node) { v.Client = r.Line(n, "client") }),
		"groups": d.in("groups", func(n *yaml.Node) {
			v.Groups = map[api.Name]string{}
			r.mapping(n, "groups", "names to what the provider calls them", func(key, value *yaml.Node, at string) {
				v.Groups[r.Name(key, "groups")] = r.Line(value, at)
			})
		}),
		"people": d.in("people", func(n *yaml.Node) {
			r.Items(n, "people", func(i int, item *yaml.Node) {
				nodes = append(nodes, item)
				v.People = append(v.People, r.person(item, fmt.Sprintf("people[%d]", i)))
			})
		}),
	})
	if d.node.Kind != yaml.MappingNode {
		return
	}
	for _, key := range []string{"issuer", "client", "people"} {
		if d.pos[key] == nil {
			r.At(d.node, "%s: the key %q is missing", what, key)
		}
	}
	if u, err := url.Parse(v.Issuer); v.Issuer != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.String() != v.Issuer) {
		r.At(d.at("issuer"), "issuer: %q: want https://HOST[:PORT]/PATH without query or fragment, as the provider writes it in iss", v.Issuer)
	}
	for _, p := range v.Check() {
		at := d.at(p.Field)
		var i int
		if n, err := fmt.Sscanf(p.Field, "people[%d]", &i); err == nil && n == 1 && i < len(nodes) {
			at = nodes[i]
		}
		r.At(at, "%s: %s", p.Field, p.Message)
	}
	r.persons = append(r.persons, v.People...)
	for g := range v.Groups {
		r.groups = append(r.groups, g)
	}
	r.declare(d, api.KindIdentity, v.Name, v.Description, v)
}

func (r *reader) person(n *yaml.Node, what string) (p api.IdentityPerson) {
	d := &decl{node: n, pos: map[string]*yaml.Node{}}
	r.Fields(n, what, map[string]func(*yaml.Node){
		"principal": d.in("principal", func(n *yaml.Node) { r.Scalar(n, what+".principal", &p.Principal) }),
		"subject":   d.in("subject", func(n *yaml.Node) { p.Subject = r.Line(n, what+".subject") }),
		"groups":    r.names(d, "groups", &p.Groups),
	})
	for _, key := range []string{"principal", "subject"} {
		if n.Kind == yaml.MappingNode && d.pos[key] == nil {
			r.At(n, "%s: the key %q is missing", what, key)
		}
	}
	return p
}

// grouped is a grant for the people of a group.
type grouped struct {
	decl  *decl
	grant api.Grant
	group api.Name
}

// expand writes out the grant of a group for each of its people, so that what is signed
// names each of them.
func (r *reader) expand(g grouped) {
	if !slices.Contains(r.groups, g.group) {
		r.At(g.decl.at("group"), "group: no such group %q in the identities of this manifest%s", g.group, strictyaml.Suggestion(string(g.group), texts(r.groups)))
		return
	}
	for _, p := range r.persons {
		if !slices.Contains(p.Groups, g.group) {
			continue
		}
		one, grant := *g.decl, g.grant
		grant.Principal = p.Principal
		base := string(g.grant.Name)
		if base == "" {
			base = string(r.m.project) + "-" + string(g.group)
		}
		grant.Name = grantName(api.Name(base), api.Principal(strings.TrimPrefix(string(p.Principal), "human:")))
		r.declare(&one, api.KindGrant, grant.Name, "", grant)
	}
}

func texts(names []api.Name) (list []string) {
	for _, n := range names {
		list = append(list, string(n))
	}
	return list
}
