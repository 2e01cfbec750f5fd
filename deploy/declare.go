package deploy

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
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
		"model":        func(n *yaml.Node) { v.Model = r.Line(n, "model") },
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
	}, "egress", "tools", "secrets", "requires")
	if d.node.Kind == yaml.MappingNode {
		r.checkSubagent(d, v)
	}
	r.declare(d, api.KindSubagent, v.Name, v.Description, v)
}

func (r *reader) verify(n *yaml.Node) *api.Verify {
	v := &api.Verify{}
	r.Fields(n, "verify", map[string]func(*yaml.Node){
		"command":    func(n *yaml.Node) { v.Command = r.Texts(n, "verify.command") },
		"timeout":    func(n *yaml.Node) { r.Scalar(n, "verify.timeout", &v.Timeout) },
		"reportOnly": func(n *yaml.Node) { v.ReportOnly = r.Bool(n, "verify.reportOnly") },
	})
	if len(v.Command) == 0 && n.Kind == yaml.MappingNode {
		r.At(n, "verify: the key \"command\" is missing or empty")
	}
	return v
}

func (r *reader) limits(n *yaml.Node) api.Limits {
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
	}, "cost", "tokens", "turns")
	if err := v.Check(); err != nil {
		r.At(n, "limits.%v", err)
	}
	return v
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (r *reader) env(d *decl, what string) {
	v := api.Env{Values: map[string]string{}}
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"values": func(n *yaml.Node) {
			if n.Kind != yaml.MappingNode {
				r.At(n, "values: want a mapping of names to texts, got %s", strictyaml.KindOf(n))
				return
			}
			seen := map[string]*yaml.Node{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				if key := n.Content[i]; r.Key(key, "values", seen) {
					r.envValue(key, n.Content[i+1], v.Values)
				}
			}
		},
	}, "secrets", "egress")
	r.declare(d, api.KindEnv, v.Name, v.Description, v)
}

func (r *reader) envValue(key, value *yaml.Node, values map[string]string) {
	switch {
	case !envName.MatchString(key.Value):
		r.At(key, "values: %q is not the name of an environment variable", strictyaml.Clip(key.Value))
	case strings.HasPrefix(strings.ToUpper(key.Value), "BAILIWICK_"):
		r.At(key, "values: names beginning with BAILIWICK_ are reserved for the worker")
	}
	values[key.Value] = r.Text(value, "values."+strictyaml.Clip(key.Value))
}

var remoteRepo = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://|[^/]*:)`)

func (r *reader) source(d *decl, what string) {
	var v api.Source
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"repo":        d.in("repo", func(n *yaml.Node) { v.Repo = r.Line(n, "repo") }),
	}, "credentials", "env", "submodules")
	switch n := d.at("repo"); {
	case v.Repo == "":
		if d.node.Kind == yaml.MappingNode && d.pos["repo"] == nil {
			r.At(n, "%s: the key \"repo\" is missing", what)
		}
	case filepath.IsAbs(v.Repo):
		v.Repo = filepath.Clean(v.Repo)
	case remoteRepo.MatchString(v.Repo):
		r.At(n, "repo: %q is not a path; clone it on the service's machine and use the path of the clone", strictyaml.Clip(v.Repo))
	case strings.HasPrefix(v.Repo, "~"):
		r.At(n, "repo: %q: ~ is not expanded; write the full path", strictyaml.Clip(v.Repo))
	default:
		v.Repo = filepath.Join(r.m.dir, v.Repo)
	}
	r.declare(d, api.KindSource, v.Name, v.Description, v)
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
		"limits":      d.in("limits", func(n *yaml.Node) { v.Limits = r.limits(n) }),
	}, "egress", "image", "namespace")
	if d.node.Kind == yaml.MappingNode {
		r.checkTarget(d, v)
	}
	r.declare(d, api.KindTarget, v.Name, v.Description, v)
}

func (r *reader) hostPaths(n *yaml.Node, what string) []string {
	all := r.Texts(n, what)
	for i, p := range all {
		if p == "" {
			continue
		}
		if err := api.CheckHostPath(p); err != nil {
			r.At(n.Content[i], "%s[%d]: %v", what, i, err)
		}
	}
	return all
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
		}, "tools")
	}
	r.declare(d, api.KindRole, v.Name, v.Description, v)
}

func (r *reader) grant(d *decl, what string) {
	var v api.Grant
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":         d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"principal":    d.in("principal", func(n *yaml.Node) { r.Scalar(n, "principal", &v.Principal) }),
		"subagents":    r.names(d, "subagents", &v.Subagents),
		"envs":         r.names(d, "envs", &v.Envs),
		"sources":      r.names(d, "sources", &v.Sources),
		"capabilities": r.names(d, "capabilities", &v.Capabilities),
		"targets":      r.names(d, "targets", &v.Targets),
		"ceiling":      d.in("ceiling", func(n *yaml.Node) { r.Scalar(n, "ceiling", &v.Ceiling) }),
	}, "tools", "budget", "pipelines")
	if d.node.Kind != yaml.MappingNode {
		return
	}
	if d.pos["principal"] == nil {
		r.At(d.node, "%s: the key \"principal\" is missing", what)
	}
	if len(v.Subagents) == 0 {
		r.At(d.at("subagents"), "%s: lists no subagents, so it would grant nothing", what)
	}
	if d.pos["name"] == nil && v.Principal != "" {
		d.unnamed, d.pos["name"] = &v, d.at("principal")
		r.unnamed = append(r.unnamed, d)
		return
	}
	r.declare(d, api.KindGrant, v.Name, "", v)
}
