package deploy

import (
	"encoding/json"
	"slices"
	"text/template"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// checkSubagent validates a declaration on its own:
//
//   - the agent is an adapter of this version and has the command that it needs;
//   - role and tier are explicit;
//   - a subagent of tier observe, which returns no patch, has no verify command;
//   - schemas compile and describe an object, and the prompt parses.
func (r *reader) checkSubagent(d *decl, v api.Subagent) {
	r.checkAgent(d, v)
	for _, field := range []string{"role", "tier"} {
		if d.pos[field] == nil {
			r.At(d.node, "subagent: the key %q is missing", field)
		}
	}
	if n := d.pos["tier"]; n != nil && n.Value == api.Observe.String() && v.Verify != nil {
		r.At(d.at("verify"), "verify: a subagent of tier observe returns no patch to verify; use tier: reversible or remove verify")
	}
	r.schema(d.pos["input"], "input", v.Input, true)
	r.schema(d.pos["output"], "output", v.Output, false)
	if v.Prompt != "" {
		if _, err := template.New("prompt").Option("missingkey=error").Parse(v.Prompt); err != nil {
			r.At(d.at("prompt"), "prompt: %s", strictyaml.OneLine(err.Error()))
		}
	}
}

func (r *reader) checkAgent(d *decl, v api.Subagent) {
	switch v.Agent {
	case "":
		if d.pos["agent"] == nil {
			r.At(d.node, "subagent: the key \"agent\" is missing; this version supports: command")
		}
	case "command":
		if len(v.Command) == 0 {
			r.At(d.at("command"), "subagent: agent \"command\" needs a command, such as [./rewrite.sh]")
		}
	case "claude-code", "codex", "opencode", "gemini":
		r.At(d.at("agent"), "agent: %q is not supported in this version, which supports: command", v.Agent)
	default:
		r.At(d.at("agent"), "agent: unknown agent %q; this version supports: command", strictyaml.Clip(v.Agent))
	}
	if v.Agent != "command" && v.Agent != "" && v.Command != nil {
		r.At(d.at("command"), "command: only allowed with agent \"command\"")
	}
}

// schema refuses a JSON Schema that would fail or have no effect when it is used,
// or that refers to other documents, which are never fetched.
func (r *reader) schema(n *yaml.Node, what string, raw json.RawMessage, object bool) {
	if n == nil || raw == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.At(n, "%s: want a JSON Schema, which is a mapping, got %s", what, strictyaml.KindOf(n))
		return
	}
	var given any
	if json.Unmarshal(raw, &given) == nil {
		if err := checkKeywords(given); err != nil {
			r.At(n, "%s: not a JSON Schema: %v", what, err)
			return
		}
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		r.At(n, "%s: not a JSON Schema: %s", what, strictyaml.OneLine(err.Error()))
		return
	}
	if _, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true}); err != nil {
		r.At(n, "%s: the JSON Schema does not compile: %s", what, strictyaml.OneLine(canon.SchemaText(err)))
		return
	}
	if err := checkCycles(given); err != nil {
		r.At(n, "%s: %v", what, err)
		return
	}
	if object && s.Type != "" && s.Type != "object" || object && len(s.Types) > 0 && !slices.Contains(s.Types, "object") {
		r.At(n, "%s: the input of a dispatch is a JSON object, but this schema requires another type", what)
	}
}

func (r *reader) checkTarget(d *decl, v api.Target) {
	want := func(field, got, value string) {
		switch {
		case d.pos[field] == nil:
			r.At(d.node, "target: the key %q is missing; this version supports: %s", field, value)
		case got != value && got != "":
			r.At(d.at(field), "%s: %q is not supported in this version, which supports: %s", field, strictyaml.Clip(got), value)
		}
	}
	want("executor", v.Executor, "jail")
	want("level", v.Level, "full")
	if d.pos["mode"] == nil {
		r.At(d.node, "target: the key \"mode\" is missing: readonly, guarded or open")
	} else if _, err := v.Mode.Ceiling(); err != nil {
		r.At(d.at("mode"), "%v", err)
	}
}
