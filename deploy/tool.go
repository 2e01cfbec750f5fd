package deploy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Bounds of a registered server.
const (
	maxAllow        = 256 // tools of one server
	maxToolParallel = 1000
	maxToolTimeout  = api.Duration(24 * time.Hour)
)

// tool reads an MCP server or a declared command.
func (r *reader) tool(d *decl, what string) {
	t := &toolReader{&r.parser, d, api.ToolServer{Definitions: []api.ToolDefinition{}}}
	if t.read(what) {
		r.declare(d, api.KindTool, t.v.Name, t.v.Description, t.v)
	}
}

// toolReader reads one item of the section tools.
type toolReader struct {
	*parser
	d *decl
	v api.ToolServer // what was read of it so far
}

// read reports whether the item is one of the two kinds.
func (r *toolReader) read(what string) bool {
	server, command := hasKey(r.d.node, "server"), hasKey(r.d.node, "command")
	if r.d.node.Kind == yaml.MappingNode && server == command {
		r.At(r.d.node, "%s: want either server: NAME, an MCP server, or command: NAME, a declared command", what)
		return false
	}
	keys := map[string]func(*yaml.Node){
		"description": func(n *yaml.Node) { r.v.Description = r.Text(n, "description") },
		"trust":       r.d.in("trust", func(n *yaml.Node) { r.v.Trusted = r.oneOf(n, "trust", "untrusted", "trusted") == "trusted" }),
		"timeout":     r.d.in("timeout", func(n *yaml.Node) { r.Scalar(n, "timeout", &r.v.Timeout) }),
		"parallel":    r.d.in("parallel", func(n *yaml.Node) { r.v.Parallel = r.Count(n, "parallel") }),
	}
	if command {
		r.command(keys, what)
	} else {
		r.server(keys, what)
	}
	if r.v.Timeout > maxToolTimeout {
		r.At(r.d.at("timeout"), "timeout: want at most %s", time.Duration(maxToolTimeout))
	}
	if r.v.Parallel > maxToolParallel {
		r.At(r.d.at("parallel"), "parallel: want at most %d", maxToolParallel)
	}
	if len(r.v.Allow) > 0 {
		r.d.tool = &r.v
	}
	return true
}

// server reads an MCP server.
func (r *toolReader) server(keys map[string]func(*yaml.Node), what string) {
	var credential *yaml.Node
	keys["server"] = r.d.in("name", func(n *yaml.Node) { r.v.Name = r.Name(n, "server") })
	keys["stdio"] = r.d.in("stdio", func(n *yaml.Node) { r.v.Stdio = r.stdio(n) })
	keys["http"] = r.d.in("http", func(n *yaml.Node) { r.v.HTTP = r.http(n) })
	keys["credential"] = r.d.in("credential", func(n *yaml.Node) { credential = n })
	keys["oauth"] = r.d.in("oauth", func(*yaml.Node) {})
	keys["session"] = func(n *yaml.Node) {
		if r.oneOf(n, "session", string(api.SessionDispatch), string(api.SessionShared)) == string(api.SessionShared) {
			r.v.Session = api.SessionShared
		}
	}
	keys["pin"] = r.d.in("pin", func(n *yaml.Node) { r.d.pin = r.pin(n) })
	keys["allow"] = r.d.in("allow", func(n *yaml.Node) { r.v.Allow = r.allows(n) })
	r.Fields(r.d.node, what, keys)
	if r.d.node.Kind != yaml.MappingNode {
		return
	}
	if (r.d.pos["stdio"] == nil) == (r.d.pos["http"] == nil) {
		r.At(r.d.node, "%s: want either stdio: {command: [PROGRAM, ...]} or http: {url: URL}", what)
	}
	if r.d.pos["allow"] == nil {
		r.At(r.d.node, "%s: the key \"allow\" is missing, such as [{tool: NAME, roles: [ROLE], tier: observe}]; no role has a tool that it does not name", what)
	}
	r.credentials(credential)
	for _, a := range r.v.Allow {
		if _, err := catalog.ExposedName(r.v.Name, a.Tool); r.v.Name != "" && a.Tool != "" && err != nil {
			r.At(r.d.at("allow["+a.Tool+"]"), "allow: %v", err)
		}
	}
}

// credentials reads how the gateway or the server's process authenticates.
func (r *toolReader) credentials(n *yaml.Node) {
	oauth := r.d.pos["oauth"]
	switch {
	case r.v.HTTP != nil:
		if n != nil && oauth != nil {
			r.At(oauth, "oauth: a server has either a credential or oauth")
		}
		if n != nil {
			r.v.HTTP.Header = r.credential(r.d, n)
		}
		if oauth != nil {
			r.v.HTTP.OAuth = r.oauth(oauth)
		}
	case r.v.Stdio != nil:
		if oauth != nil {
			r.At(oauth, "oauth: only for a server with http")
		}
		if n != nil {
			r.v.Stdio.Secrets = r.credentialEnv(n, r.v.Stdio.Env)
		}
	}
}

func (r *toolReader) stdio(n *yaml.Node) *api.StdioServer {
	v := &api.StdioServer{}
	keys := r.hostKeys(&v.ToolHost, "stdio.")
	keys["command"] = func(n *yaml.Node) { v.Command = r.Texts(n, "stdio.command") }
	r.Fields(n, "stdio", keys)
	r.program(n, "stdio", "command", v.Command, v.Capability)
	return v
}

// program refuses a program that is missing, or a file of a capability that is not
// there.
func (r *toolReader) program(n *yaml.Node, what, key string, c api.Command, capability api.Name) {
	switch {
	case n.Kind != yaml.MappingNode:
	case len(c) == 0:
		if !hasKey(n, key) || len(n.Content) == 0 {
			r.At(n, "%s: the key %q is missing, such as [./server]", what, key)
			return
		}
		r.At(n, "%s: %s is empty; want a program and its arguments", what, key)
	case capability == "" && strings.HasPrefix(c[0], "./"):
		r.At(n, "%s: %s: %s would be a file of a capability, and there is no capability: NAME", what, key, strictyaml.Clip(c[0]))
	}
}

func (r *toolReader) http(n *yaml.Node) *api.HTTPServer {
	v := &api.HTTPServer{}
	r.Fields(n, "http", map[string]func(*yaml.Node){
		"url": func(n *yaml.Node) {
			v.URL = r.Line(n, "http.url")
			if v.URL != "" {
				if _, _, err := egress.ParseEndpoint(v.URL); err != nil { // the URL may contain a key, so it is not quoted
					r.At(n, "http.url: %v", err)
				}
			}
		},
		"address": func(n *yaml.Node) {
			v.Address = r.Line(n, "http.address")
			if err := checkAddress(v.Address); v.Address != "" && err != nil {
				r.At(n, "http.address: %v", err)
			}
		},
	})
	if n.Kind == yaml.MappingNode && !hasKey(n, "url") {
		r.At(n, "http: the key \"url\" is missing, such as https://HOST/mcp")
	}
	if v.Address != "" && strings.HasPrefix(v.URL, "http:") {
		r.At(n, "http.address: only for an https URL; the URL of this machine has its address")
	}
	return v
}

func (r *toolReader) oauth(n *yaml.Node) *api.OAuthGrant {
	v := &api.OAuthGrant{}
	if r.pasted(n, "oauth", "{tokenURL: URL, clientID: ID, secret: NAME}") {
		return v
	}
	r.Fields(n, "oauth", map[string]func(*yaml.Node){
		"tokenURL": func(n *yaml.Node) {
			v.TokenURL = r.Line(n, "oauth.tokenURL")
			if _, _, err := egress.ParseEndpoint(v.TokenURL); v.TokenURL != "" && err != nil {
				r.At(n, "oauth.tokenURL: %v", err)
			} else if strings.HasPrefix(v.TokenURL, "http:") {
				r.At(n, "oauth.tokenURL: want https")
			}
		},
		"clientID": func(n *yaml.Node) { v.ClientID = r.Line(n, "oauth.clientID") },
		"secret":   r.d.in("oauth.secret", func(n *yaml.Node) { v.Secret = r.secretName(n, "oauth.secret") }),
		"scopes":   func(n *yaml.Node) { v.Scopes = r.Texts(n, "oauth.scopes") },
	})
	for _, key := range []string{"tokenURL", "clientID", "secret"} {
		if n.Kind == yaml.MappingNode && !hasKey(n, key) {
			r.At(n, "oauth: the key %q is missing", key)
		}
	}
	return v
}

// credentialEnv reads the secrets of a process, by variable.
func (r *toolReader) credentialEnv(n *yaml.Node, env map[string]string) map[string]api.Name {
	all := map[string]api.Name{}
	if r.pasted(n, "credential", "{env: {VARIABLE: SECRET}}") {
		return all
	}
	r.Fields(n, "credential", map[string]func(*yaml.Node){
		"env": func(n *yaml.Node) {
			r.mapping(n, "credential.env", "variables to names of secrets", func(key, value *yaml.Node, at string) {
				r.variable(key, "credential.env")
				if _, twice := env[key.Value]; twice {
					r.At(key, "credential.env: %s is in env, too; a variable has one value", strictyaml.Clip(key.Value))
				}
				r.d.pos["credential.env."+key.Value] = value
				all[key.Value] = r.secretName(value, at)
			})
		},
	})
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		r.At(n, "credential: the key \"env\" is missing, such as {env: {PGPASSWORD: SECRET}}")
	}
	return all
}

// pin reads the digest of a server's definitions.
func (r *toolReader) pin(n *yaml.Node) api.Digest {
	var d api.Digest
	r.Scalar(n, "pin", &d)
	return d
}

// allows reads which roles may call which tools of a server.
func (r *toolReader) allows(n *yaml.Node) []api.ToolAllow {
	var all []api.ToolAllow
	seen := map[string]bool{}
	r.Items(n, "allow", func(i int, item *yaml.Node) {
		at := fmt.Sprintf("allow[%d]", i)
		var a api.ToolAllow
		keys := r.allowKeys(&a, at+".")
		keys["tool"] = func(n *yaml.Node) {
			if a.Tool = r.Line(n, at+".tool"); a.Tool != "" && !toolName.MatchString(a.Tool) {
				r.At(n, "%s.tool: %q: want 1 to 64 of A-Z a-z 0-9 _ - .", at, strictyaml.Clip(a.Tool))
			}
		}
		r.Fields(item, at, keys)
		r.checkAllow(item, &a, at)
		switch {
		case item.Kind != yaml.MappingNode:
		case a.Tool == "":
			if !hasKey(item, "tool") {
				r.At(item, "%s: the key \"tool\" is missing: the name of a tool of the server", at)
			}
		case seen[a.Tool]:
			r.At(item, "%s: duplicate tool %q; name all of its roles in one place", at, a.Tool)
		default:
			seen[a.Tool] = true
			r.allowPlaces("allow["+a.Tool+"]", item)
			all = append(all, a)
		}
	})
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		r.At(n, "allow: is empty; no role has a tool that it does not name")
	case len(all) > maxAllow:
		r.At(n, "allow: %d tools, want at most %d", len(all), maxAllow)
	}
	slices.SortFunc(all, func(a, b api.ToolAllow) int { return cmp.Compare(a.Tool, b.Tool) })
	return all
}
