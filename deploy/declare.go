package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (r *reader) capability(d *decl, what string) {
	var v api.Capability
	from := ""
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"from":        d.in("from", func(n *yaml.Node) { from = r.Line(n, "from") }),
		"requires": func(n *yaml.Node) {
			r.Items(n, "requires", func(i int, item *yaml.Node) {
				v.Requires = append(v.Requires, r.requirement(item, fmt.Sprintf("requires[%d]", i)))
			})
		},
	})
	if from == "" {
		if d.node.Kind == yaml.MappingNode && d.pos["from"] == nil {
			r.At(d.node, "%s: the key \"from\" is missing; set it to the directory of the capability's files", what)
		}
		return
	}
	r.bundle(d, from, &v)
	r.declare(d, api.KindCapability, v.Name, v.Description, v)
}

func (r *reader) requirement(n *yaml.Node, what string) api.Requirement {
	var v api.Requirement
	before := r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"exec": func(n *yaml.Node) {
			v.Exec = r.Line(n, what+".exec")
			if strings.ContainsAny(v.Exec, "/ ") {
				r.At(n, "%s.exec: want the name of a program, without a path or arguments", what)
			}
		},
		"git": func(n *yaml.Node) {
			v.Git = r.Line(n, what+".git")
			if v.Git != "worktree" {
				r.At(n, "%s.git: want worktree", what)
			}
		},
	}, "env", "tool")
	if r.Len() == before && (v.Exec == "") == (v.Git == "") {
		r.At(n, "%s: want either exec or git", what)
	}
	return v
}

func (r *reader) subagent(d *decl, what string) {
	var v api.Subagent
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":         d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description":  func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"agent":        d.in("agent", func(n *yaml.Node) { v.Agent = r.Line(n, "agent") }),
		"command":      d.in("command", func(n *yaml.Node) { v.Command = r.Texts(n, "command") }),
		"model":        d.in("model", func(n *yaml.Node) { v.Model = r.Line(n, "model") }),
		"requireModel": d.in("requireModel", func(n *yaml.Node) { v.RequireModel = r.Bool(n, "requireModel") }),
		"system":       d.in("system", func(n *yaml.Node) { v.System = r.file(d, n, "system") }),
		"prompt":       d.in("prompt", func(n *yaml.Node) { v.Prompt = r.Text(n, "prompt") }),
		"input":        d.in("input", func(n *yaml.Node) { v.Input = r.JSON(n, "input") }),
		"output":       d.in("output", func(n *yaml.Node) { v.Output = r.JSON(n, "output") }),
		"role":         d.in("role", func(n *yaml.Node) { v.Role = r.Name(n, "role") }),
		"tier":         d.in("tier", func(n *yaml.Node) { r.Scalar(n, "tier", &v.Tier) }),
		"capabilities": r.names(d, "capabilities", &v.Capabilities),
		"verify":       d.in("verify", func(n *yaml.Node) { v.Verify = r.verify(n) }),
		"limits":       d.in("limits", func(n *yaml.Node) { v.Limits = r.limits(n) }),
		"target":       d.in("target", func(n *yaml.Node) { v.Target = r.Name(n, "target") }),
		"effect":       d.in("effect", func(n *yaml.Node) { r.Scalar(n, "effect", &v.Effect) }),
		"tools":        r.noTools,
	}, "egress", "secrets", "requires")
	if d.node.Kind == yaml.MappingNode {
		checkSubagent(&r.parser, d, v)
	}
	r.declare(d, api.KindSubagent, v.Name, v.Description, v)
}

func (r *reader) verify(n *yaml.Node) *api.Verify {
	v := &api.Verify{}
	r.Fields(n, "verify", map[string]func(*yaml.Node){
		"command":    func(n *yaml.Node) { v.Command = r.Texts(n, "verify.command") },
		"timeout":    func(n *yaml.Node) { r.Scalar(n, "verify.timeout", &v.Timeout) },
		"reportOnly": func(n *yaml.Node) { v.ReportOnly = r.Bool(n, "verify.reportOnly") },
		"protects":   func(n *yaml.Node) { v.Protects = r.patterns(n, "verify.protects") },
	})
	if len(v.Command) == 0 && n.Kind == yaml.MappingNode {
		r.At(n, "verify: the key \"command\" is missing or empty")
	}
	return v
}

func (r *parser) limits(n *yaml.Node) api.Limits {
	var v api.Limits
	r.Fields(n, "limits", map[string]func(*yaml.Node){
		"timeout":   func(n *yaml.Node) { r.Scalar(n, "limits.timeout", &v.Timeout) },
		"memory":    func(n *yaml.Node) { r.Scalar(n, "limits.memory", &v.Memory) },
		"processes": func(n *yaml.Node) { v.Processes = r.Count(n, "limits.processes") },
		"disk":      func(n *yaml.Node) { r.Scalar(n, "limits.disk", &v.Disk) },
		"fileSize":  func(n *yaml.Node) { r.Scalar(n, "limits.fileSize", &v.FileSize) },
		"files":     func(n *yaml.Node) { v.Files = r.Count(n, "limits.files") },
		"cpu":       func(n *yaml.Node) { v.CPU = r.Positive(n, "limits.cpu") },
		"log":       func(n *yaml.Node) { r.Scalar(n, "limits.log", &v.Log) },
		"answer":    func(n *yaml.Node) { r.Scalar(n, "limits.answer", &v.Answer) },
		"tokens":    func(n *yaml.Node) { v.Tokens = int64(r.Count(n, "limits.tokens")) },
		"cost":      func(n *yaml.Node) { r.Scalar(n, "limits.cost", &v.Cost) },
		"turns":     func(n *yaml.Node) { v.Turns = r.Count(n, "limits.turns") },
		"calls":     func(n *yaml.Node) { v.Calls = r.Count(n, "limits.calls") },
	})
	if err := v.Check(); err != nil {
		r.At(n, "limits.%v", err)
	}
	return v
}

func (r *reader) env(d *decl, what string) {
	v := api.Env{Values: map[string]string{}}
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"values": func(n *yaml.Node) {
			r.mapping(n, "values", "names to texts", func(key, value *yaml.Node, at string) {
				r.variable(key, "values")
				v.Values[key.Value] = r.Text(value, at)
			})
		},
		"secrets": func(n *yaml.Node) { v.Secrets = r.secretUses(d, n) },
		"egress":  func(n *yaml.Node) { v.Egress = r.egress(n, "egress") },
	})
	for _, name := range slices.Sorted(maps.Keys(v.Secrets)) {
		if _, twice := v.Values[name]; twice {
			r.At(d.at("secrets."+name), "secrets: %s is in values, too; a variable has one value", name)
		}
	}
	r.declare(d, api.KindEnv, v.Name, v.Description, v)
}

func (r *reader) target(d *decl, what string) {
	var v api.Target
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"executor":    d.in("executor", func(n *yaml.Node) { v.Executor = r.Line(n, "executor") }),
		"level":       d.in("level", func(n *yaml.Node) { v.Level = r.Line(n, "level") }),
		"mode":        d.in("mode", func(n *yaml.Node) { v.Mode = api.Mode(r.Line(n, "mode")) }),
		"readOnly":    d.in("readOnly", func(n *yaml.Node) { v.ReadOnly = r.hostPaths(n, "readOnly") }),
		"path":        d.in("path", func(n *yaml.Node) { v.Path = r.hostPaths(n, "path") }),
		"egress":      d.in("egress", func(n *yaml.Node) { v.Egress = r.egress(n, "egress") }),
		"limits":      d.in("limits", func(n *yaml.Node) { v.Limits = r.limits(n) }),
	}, "image", "namespace")
	if d.node.Kind == yaml.MappingNode {
		checkTarget(&r.parser, d, v)
	}
	r.declare(d, api.KindTarget, v.Name, v.Description, v)
}

// role accepts a bare name as well as a mapping.
func (r *reader) role(d *decl, what string) {
	var v api.Role
	if d.node.Kind == yaml.ScalarNode {
		v.Name = r.Name(d.node, what)
		d.pos["name"] = d.node
	} else {
		r.Fields(d.node, what, map[string]func(*yaml.Node){
			"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
			"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
			"tools":       r.noTools,
		})
	}
	r.declare(d, api.KindRole, v.Name, v.Description, v)
}

func (r *reader) grant(d *decl, what string) {
	var v api.Grant
	var group api.Name
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":         d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"principal":    d.in("principal", func(n *yaml.Node) { r.Scalar(n, "principal", &v.Principal) }),
		"group":        d.in("group", func(n *yaml.Node) { group = r.Name(n, "group") }),
		"subagents":    r.names(d, "subagents", &v.Subagents),
		"envs":         r.names(d, "envs", &v.Envs),
		"sources":      r.names(d, "sources", &v.Sources),
		"capabilities": r.names(d, "capabilities", &v.Capabilities),
		"targets":      r.names(d, "targets", &v.Targets),
		"ceiling":      d.in("ceiling", func(n *yaml.Node) { r.Scalar(n, "ceiling", &v.Ceiling) }),
		"approve":      r.names(d, "approve", &v.Approve),
		"approveOwn":   d.in("approveOwn", func(n *yaml.Node) { v.ApproveOwn = r.Bool(n, "approveOwn") }),
		"append":       d.in("append", func(n *yaml.Node) { v.Append = r.Bool(n, "append") }),
		"reuse":        d.in("reuse", func(n *yaml.Node) { v.Reuse = r.principals(n, "reuse") }),
		"budget":       d.in("budget", func(n *yaml.Node) { v.Budget = r.budget(n, "budget") }),
		"writes":       d.in("writes", func(n *yaml.Node) { v.Writes = r.writes(n, "writes") }),
	}, "pipelines")
	if d.node.Kind != yaml.MappingNode {
		return
	}
	switch {
	case d.pos["principal"] == nil && d.pos["group"] == nil:
		r.At(d.node, "%s: the key \"principal\" is missing", what)
	case d.pos["principal"] != nil && d.pos["group"] != nil:
		r.At(d.at("group"), "%s: write one of principal and group", what)
	}
	checkGrant(&r.parser, d, v, what)
	if group != "" {
		r.grouped = append(r.grouped, grouped{d, v, group})
		return
	}
	if d.pos["name"] == nil && v.Principal != "" {
		d.unnamed, d.pos["name"] = &v, d.at("principal")
		r.unnamed = append(r.unnamed, d)
		return
	}
	r.declare(d, api.KindGrant, v.Name, "", v)
}

// noTools refuses a second place that would say who has which tools.
func (r *reader) noTools(n *yaml.Node) {
	r.At(n, "tools: the tools of a role are where they are registered: tools: [{server: NAME, allow: [{tool: NAME, roles: [ROLE]}]}]")
}

// checkGrant refuses a grant that gives nothing, and approvals by principals that are
// not people.
func checkGrant(r *parser, d *decl, v api.Grant, what string) {
	if len(v.Subagents) == 0 && len(v.Approve) == 0 {
		r.At(d.at("subagents"), "%s: lists no subagents and no roles to approve, so it would grant nothing", what)
	}
	if len(v.Approve) > 0 && v.Principal != "" && !v.Principal.Person() {
		r.At(d.at("approve"), "approve: %s is not a person; only local: and human: principals approve calls of tools", v.Principal)
	}
	if v.Append && len(v.Subagents) == 0 {
		r.At(d.at("append"), "append: has no effect without subagents: [NAME]")
	}
	if v.ApproveOwn && len(v.Approve) == 0 {
		r.At(d.at("approveOwn"), "approveOwn: has no effect without approve: [ROLE]")
	}
	if len(v.Reuse) > 0 && len(v.Subagents) == 0 {
		r.At(d.at("reuse"), "reuse: has no effect without subagents")
	}
	if slices.Contains(v.Reuse, v.Principal) && v.Principal != "" {
		r.At(d.at("reuse"), "reuse: %s reuses its own results without it", v.Principal)
	}
	checkWrites(r, d, v)
}
