package deploy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Bounds of the jail of a server.
const (
	maxConnect    = 64
	maxSocketPath = 107 // bytes, of Linux
)

// command reads a declared command: a tool whose definition the manifest has.
func (r *toolReader) command(keys map[string]func(*yaml.Node), what string) {
	r.v.Run = &api.ToolCommand{}
	var allow api.ToolAllow
	var credential *yaml.Node
	def := api.ToolDefinition{InputSchema: []byte(`{"additionalProperties":false,"type":"object"}`)}
	maps.Copy(keys, r.hostKeys(&r.v.Run.ToolHost, ""))
	maps.Copy(keys, r.allowKeys(&allow, ""))
	keys["command"] = r.d.in("name", func(n *yaml.Node) { r.v.Name = r.Name(n, "command") })
	keys["run"] = r.d.in("run", func(n *yaml.Node) { r.v.Run.Command = r.Texts(n, "run") })
	keys["input"] = func(n *yaml.Node) { def.InputSchema = r.schemaOfObject(n, "input") }
	keys["output"] = func(n *yaml.Node) { def.OutputSchema = r.schemaOfObject(n, "output") }
	keys["credential"] = r.d.in("credential", func(n *yaml.Node) { credential = n })
	r.Fields(r.d.node, what, keys)
	r.program(r.d.node, what, "run", r.v.Run.Command, r.v.Run.Capability)
	r.checkAllow(r.d.node, &allow, what)
	r.allowPlaces("allow", r.d.node)
	if credential != nil {
		r.v.Run.Secrets = r.credentialEnv(credential, r.v.Run.Env)
	}
	if r.v.Name != "" {
		if _, err := catalog.ExposedName(r.v.Name, ""); err != nil {
			r.At(r.d.at("name"), "command: %v", err)
		}
	}
	if r.v.Description == "" {
		r.At(r.d.node, "%s: the key \"description\" is missing: agents see it, and choose by it", what)
	}
	def.Description = r.v.Description
	r.v.Allow, r.v.Definitions = []api.ToolAllow{allow}, []api.ToolDefinition{def}
}

// schemaOfObject reads a schema of a declared command, which describes an object.
func (r *toolReader) schemaOfObject(n *yaml.Node, what string) []byte {
	raw, before := r.JSON(n, what), r.Len()
	r.schema(n, what, raw, false)
	if r.Len() == before && raw != nil && !isObjectSchema(raw) {
		r.At(n, "%s: want type: object, which arguments and answers of tools have", what)
	}
	return raw
}

// hostKeys are the keys of the jail of a server or declared command.
func (r *toolReader) hostKeys(v *api.ToolHost, prefix string) map[string]func(*yaml.Node) {
	return map[string]func(*yaml.Node){
		"capability": r.d.in("capability", func(n *yaml.Node) { v.Capability = r.Name(n, prefix+"capability") }),
		"env": func(n *yaml.Node) {
			v.Env = map[string]string{}
			r.mapping(n, prefix+"env", "names to texts", func(key, value *yaml.Node, at string) {
				r.variable(key, prefix+"env")
				v.Env[key.Value] = r.Text(value, at)
			})
		},
		"readOnly": r.d.in("readOnly", func(n *yaml.Node) { v.ReadOnly = r.hostPaths(n, prefix+"readOnly") }),
		"path":     r.d.in("path", func(n *yaml.Node) { v.Path = r.hostPaths(n, prefix+"path") }),
		"egress":   r.d.in("egress", func(n *yaml.Node) { v.Egress = r.egress(n, prefix+"egress") }),
		"connect":  r.d.in("connect", func(n *yaml.Node) { v.Connect = r.connect(n, prefix+"connect") }),
		"limits":   r.d.in("limits", func(n *yaml.Node) { v.Limits = r.hostLimits(n, prefix+"limits") }),
	}
}

// hostLimits reads the limits of a jail that no dispatch has.
func (r *toolReader) hostLimits(n *yaml.Node, what string) (v api.Limits) {
	r.Fields(n, what, map[string]func(*yaml.Node){
		"memory":    func(n *yaml.Node) { r.Scalar(n, what+".memory", &v.Memory) },
		"processes": func(n *yaml.Node) { v.Processes = r.Count(n, what+".processes") },
		"disk":      func(n *yaml.Node) { r.Scalar(n, what+".disk", &v.Disk) },
		"files":     func(n *yaml.Node) { v.Files = r.Count(n, what+".files") },
		"cpu":       func(n *yaml.Node) { v.CPU = r.Positive(n, what+".cpu") },
	})
	if err := v.Check(); err != nil {
		r.At(n, "%s.%v", what, err)
	}
	return v
}

// connect reads what connections to ports of the jail reach.
func (r *toolReader) connect(n *yaml.Node, what string) map[int]string {
	all := map[int]string{}
	r.mapping(n, what, "ports to IP:PORT or unix:PATH", func(key, value *yaml.Node, at string) {
		port, err := strconv.Atoi(key.Value)
		if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != key.Value {
			r.At(key, "%s: %q: want a port from 1 to 65535", what, strictyaml.Clip(key.Value))
			return
		}
		to := r.Line(value, at)
		if to == "" {
			return
		}
		if err := checkConnect(to); err != nil {
			r.At(value, "%s: %v", at, err)
			return
		}
		r.d.pos["connect."+key.Value] = value
		all[port] = to
	})
	if len(all) > maxConnect {
		r.At(n, "%s: %d ports, want at most %d", what, len(all), maxConnect)
	}
	return all
}

func checkConnect(to string) error {
	file, socket := strings.CutPrefix(to, "unix:")
	switch {
	case !socket:
		return checkAddress(to)
	case !path.IsAbs(file) || path.Clean(file) != file || file == "/" || len(file) > maxSocketPath:
		return fmt.Errorf("%q: want unix: and the absolute, clean path of a socket of at most %d bytes", strictyaml.Clip(to), maxSocketPath)
	}
	return nil
}

// checkAddress accepts one spelling of an address with a port.
func checkAddress(text string) error {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" || a.Addr().Is4In6() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.String() != text {
		return errors.New("want IP:PORT, such as 127.0.0.1:5432 or [fd00::1]:443; names are not looked up")
	}
	return nil
}

// allowKeys are the keys that say who may call a tool.
func (r *toolReader) allowKeys(a *api.ToolAllow, prefix string) map[string]func(*yaml.Node) {
	return map[string]func(*yaml.Node){
		"roles": func(n *yaml.Node) {
			r.Items(n, prefix+"roles", func(i int, item *yaml.Node) {
				at := fmt.Sprintf("%sroles[%d]", prefix, i)
				role := r.Name(item, at)
				if role != "" && slices.Contains(a.Roles, role) {
					r.At(item, "%s: duplicate role %q", at, role)
				}
				a.Roles = append(a.Roles, role)
			})
			slices.Sort(a.Roles)
		},
		"tier":     func(n *yaml.Node) { r.Scalar(n, prefix+"tier", &a.Tier) },
		"approval": func(n *yaml.Node) { a.Approval = r.approval(n, prefix+"approval") },
		"tainted": func(n *yaml.Node) {
			if r.oneOf(n, prefix+"tainted", string(api.TaintedAsk), string(api.TaintedForbid)) == string(api.TaintedForbid) {
				a.Tainted = api.TaintedForbid
			}
		},
	}
}

// approval reads true, or how long a call and a request wait.
func (r *toolReader) approval(n *yaml.Node, what string) *api.ToolApproval {
	v := &api.ToolApproval{}
	if n.Kind != yaml.MappingNode {
		if n.ShortTag() != "!!bool" {
			r.At(n, "%s: want true or {wait: 45s, expires: 24h}, got %s", what, strictyaml.KindOf(n))
			return nil
		}
		if !r.Bool(n, what) {
			return nil
		}
		return v
	}
	r.Fields(n, what, map[string]func(*yaml.Node){
		"wait":    func(n *yaml.Node) { r.Scalar(n, what+".wait", &v.Wait) },
		"expires": func(n *yaml.Node) { r.Scalar(n, what+".expires", &v.Expires) },
	})
	expires := v.Expires
	if expires == 0 {
		expires = api.DefaultApprovalExpiry
	}
	if v.Wait > expires {
		r.At(n, "%s: a call waits %s, but the request expires after %s", what, time.Duration(v.Wait), time.Duration(expires))
	}
	return v
}

// checkAllow reports what is missing and what has no effect.
func (r *toolReader) checkAllow(n *yaml.Node, a *api.ToolAllow, what string) {
	if n.Kind != yaml.MappingNode {
		return
	}
	if len(a.Roles) == 0 {
		r.At(n, "%s: want roles: [ROLE], at least one; a tool without a role does not exist", what)
	}
	if !hasKey(n, "tier") {
		r.At(n, "%s: the key \"tier\" is missing: observe, reversible, stateful or irreversible", what)
	}
	if hasKey(n, "tainted") && hasKey(n, "tier") && a.Tier < api.Stateful {
		r.At(n, "%s: tainted has no effect at tier %s; it is for stateful and irreversible", what, a.Tier)
	}
}

// allowPlaces records where an allow says what, by the fields of catalog.Problem.
func (r *toolReader) allowPlaces(field string, n *yaml.Node) {
	r.d.pos[field] = n
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; key == "roles" || key == "tier" || key == "tool" {
			r.d.pos[field+"."+key] = n.Content[i+1]
		}
	}
}
