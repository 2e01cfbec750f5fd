package deploy

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (r *reader) capability(d *decl, what string) {
	var v api.Capability
	from := ""
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.line(n, "description") },
		"from":        d.in("from", func(n *yaml.Node) { from = r.line(n, "from") }),
		"requires": func(n *yaml.Node) {
			r.items(n, "requires", func(i int, item *yaml.Node) {
				v.Requires = append(v.Requires, r.requirement(item, fmt.Sprintf("requires[%d]", i)))
			})
		},
	})
	if from == "" {
		if d.node.Kind == yaml.MappingNode && d.pos["from"] == nil {
			r.at(d.node, "%s: the key \"from\" is missing; it names the directory of the capability's files", what)
		}
		return
	}
	r.bundle(d, from, &v)
	r.declare(d, api.KindCapability, v.Name, v.Description, v)
}

func (r *reader) requirement(n *yaml.Node, what string) api.Requirement {
	var v api.Requirement
	before := len(r.all)
	r.fields(n, what, map[string]func(*yaml.Node){
		"exec": func(n *yaml.Node) {
			v.Exec = r.line(n, what+".exec")
			if strings.ContainsAny(v.Exec, "/ ") {
				r.at(n, "%s.exec: want the name of a program", what)
			}
		},
		"git": func(n *yaml.Node) {
			v.Git = r.line(n, what+".git")
			if v.Git != "worktree" {
				r.at(n, "%s.git: want worktree", what)
			}
		},
	}, "env", "tool")
	if len(r.all) == before && (v.Exec == "") == (v.Git == "") {
		r.at(n, "%s: want either exec or git", what)
	}
	return v
}

func (r *reader) subagent(d *decl, what string) {
	var v api.Subagent
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":         d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"description":  func(n *yaml.Node) { v.Description = r.line(n, "description") },
		"agent":        d.in("agent", func(n *yaml.Node) { v.Agent = r.line(n, "agent") }),
		"command":      d.in("command", func(n *yaml.Node) { v.Command = r.texts(n, "command") }),
		"model":        func(n *yaml.Node) { v.Model = r.line(n, "model") },
		"system":       d.in("system", func(n *yaml.Node) { v.System = r.file(n, "system") }),
		"prompt":       d.in("prompt", func(n *yaml.Node) { v.Prompt = r.text(n, "prompt") }),
		"input":        d.in("input", func(n *yaml.Node) { v.Input = r.json(n, "input") }),
		"output":       d.in("output", func(n *yaml.Node) { v.Output = r.json(n, "output") }),
		"role":         d.in("role", func(n *yaml.Node) { v.Role = r.name(n, "role") }),
		"tier":         d.in("tier", func(n *yaml.Node) { r.scalar(n, "tier", &v.Tier) }),
		"capabilities": r.names(d, "capabilities", &v.Capabilities),
		"verify":       d.in("verify", func(n *yaml.Node) { v.Verify = r.verify(n) }),
		"limits":       d.in("limits", func(n *yaml.Node) { v.Limits = r.limits(n) }),
		"target":       d.in("target", func(n *yaml.Node) { v.Target = r.name(n, "target") }),
	}, "egress", "tools", "secrets", "requires")
	if d.node.Kind == yaml.MappingNode {
		r.checkSubagent(d, v)
	}
	r.declare(d, api.KindSubagent, v.Name, v.Description, v)
}

func (r *reader) verify(n *yaml.Node) *api.Verify {
	v := &api.Verify{}
	r.fields(n, "verify", map[string]func(*yaml.Node){
		"command":    func(n *yaml.Node) { v.Command = r.texts(n, "verify.command") },
		"timeout":    func(n *yaml.Node) { r.scalar(n, "verify.timeout", &v.Timeout) },
		"reportOnly": func(n *yaml.Node) { v.ReportOnly = r.truth(n, "verify.reportOnly") },
	})
	if len(v.Command) == 0 && n.Kind == yaml.MappingNode {
		r.at(n, "verify: the key \"command\" is missing or empty")
	}
	return v
}

func (r *reader) limits(n *yaml.Node) api.Limits {
	var v api.Limits
	r.fields(n, "limits", map[string]func(*yaml.Node){
		"timeout":   func(n *yaml.Node) { r.scalar(n, "limits.timeout", &v.Timeout) },
		"memory":    func(n *yaml.Node) { r.scalar(n, "limits.memory", &v.Memory) },
		"processes": func(n *yaml.Node) { v.Processes = r.count(n, "limits.processes") },
		"disk":      func(n *yaml.Node) { r.scalar(n, "limits.disk", &v.Disk) },
		"fileSize":  func(n *yaml.Node) { r.scalar(n, "limits.fileSize", &v.FileSize) },
		"files":     func(n *yaml.Node) { v.Files = r.count(n, "limits.files") },
		"cpu":       func(n *yaml.Node) { v.CPU = r.positive(n, "limits.cpu") },
		"log":       func(n *yaml.Node) { r.scalar(n, "limits.log", &v.Log) },
	}, "cost", "tokens", "turns")
	if err := v.Check(); err != nil {
		r.at(n, "limits.%v", err)
	}
	return v
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func (r *reader) env(d *decl, what string) {
	v := api.Env{Values: map[string]string{}}
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.line(n, "description") },
		"values": func(n *yaml.Node) {
			if n.Kind != yaml.MappingNode {
				r.at(n, "values: want a mapping of names to texts, got %s", kindOf(n))
				return
			}
			seen := map[string]*yaml.Node{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				if key := n.Content[i]; r.key(key, "values", seen) {
					r.envValue(key, n.Content[i+1], v.Values)
				}
			}
		},
	}, "secrets", "egress")
	r.declare(d, api.KindEnv, v.Name, v.Description, v)
}

func (r *reader) envValue(key, value *yaml.Node, into map[string]string) {
	switch {
	case !envName.MatchString(key.Value):
		r.at(key, "values: %q is not the name of an environment variable", clip(key.Value))
	case strings.HasPrefix(strings.ToUpper(key.Value), "BAILIWICK_"):
		r.at(key, "values: names beginning with BAILIWICK_ belong to the worker")
	}
	into[key.Value] = r.text(value, "values."+clip(key.Value))
}

var remoteRepo = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://|[^/]*:)`)

func (r *reader) source(d *decl, what string) {
	var v api.Source
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.line(n, "description") },
		"repo":        d.in("repo", func(n *yaml.Node) { v.Repo = r.line(n, "repo") }),
	}, "credentials", "env", "submodules")
	switch n := d.at("repo"); {
	case v.Repo == "":
		if d.node.Kind == yaml.MappingNode && d.pos["repo"] == nil {
			r.at(n, "%s: the key \"repo\" is missing", what)
		}
	case filepath.IsAbs(v.Repo):
		v.Repo = filepath.Clean(v.Repo)
	case remoteRepo.MatchString(v.Repo):
		r.at(n, "repo: %q is not a path; sources by URL come with the egress filter", clip(v.Repo))
	case strings.HasPrefix(v.Repo, "~"):
		r.at(n, "repo: %q: write the home directory out; nothing here expands ~", clip(v.Repo))
	default:
		v.Repo = filepath.Join(r.m.dir, v.Repo)
	}
	r.declare(d, api.KindSource, v.Name, v.Description, v)
}

func (r *reader) target(d *decl, what string) {
	var v api.Target
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":        d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"description": func(n *yaml.Node) { v.Description = r.line(n, "description") },
		"executor":    d.in("executor", func(n *yaml.Node) { v.Executor = r.line(n, "executor") }),
		"level":       d.in("level", func(n *yaml.Node) { v.Level = r.line(n, "level") }),
		"mode":        d.in("mode", func(n *yaml.Node) { v.Mode = api.Mode(r.line(n, "mode")) }),
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
	all := r.texts(n, what)
	for i, p := range all {
		if p == "" {
			continue
		}
		if err := api.CheckHostPath(p); err != nil {
			r.at(n.Content[i], "%s[%d]: %s", what, i, clip(err.Error()))
		}
	}
	return all
}

// role accepts a bare name as well as a mapping.
func (r *reader) role(d *decl, what string) {
	var v api.Role
	if d.node.Kind == yaml.ScalarNode {
		v.Name = r.name(d.node, what)
		d.pos["name"] = d.node
	} else {
		r.fields(d.node, what, map[string]func(*yaml.Node){
			"name":        d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
			"description": func(n *yaml.Node) { v.Description = r.line(n, "description") },
		}, "tools")
	}
	r.declare(d, api.KindRole, v.Name, v.Description, v)
}

func (r *reader) grant(d *decl, what string) {
	var v api.Grant
	r.fields(d.node, what, map[string]func(*yaml.Node){
		"name":         d.in("name", func(n *yaml.Node) { v.Name = r.name(n, "name") }),
		"principal":    d.in("principal", func(n *yaml.Node) { r.scalar(n, "principal", &v.Principal) }),
		"subagents":    r.names(d, "subagents", &v.Subagents),
		"envs":         r.names(d, "envs", &v.Envs),
		"sources":      r.names(d, "sources", &v.Sources),
		"capabilities": r.names(d, "capabilities", &v.Capabilities),
		"targets":      r.names(d, "targets", &v.Targets),
		"ceiling":      d.in("ceiling", func(n *yaml.Node) { r.scalar(n, "ceiling", &v.Ceiling) }),
	}, "tools", "budget", "pipelines")
	if d.node.Kind != yaml.MappingNode {
		return
	}
	if d.pos["principal"] == nil {
		r.at(d.node, "%s: the key \"principal\" is missing", what)
	}
	if len(v.Subagents) == 0 {
		r.at(d.at("subagents"), "%s: names no subagent, so it would grant nothing", what)
	}
	if d.pos["name"] == nil && v.Principal != "" {
		v.Name = nameOf(v.Principal)
		d.pos["name"] = d.at("principal")
	}
	r.declare(d, api.KindGrant, v.Name, "", v)
}

// nameOf derives the name of a grant from its principal: agent:claude gives
// agent-claude. Two grants that come to the same name need names of their own.
func nameOf(p api.Principal) api.Name {
	s := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' {
			return c
		}
		return '-'
	}, strings.ToLower(string(p)))
	return api.Name(strings.TrimRight(s[:min(64, len(s))], "-._"))
}
