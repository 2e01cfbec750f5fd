package deploy

import (
	"encoding/json"
	"slices"
	"text/template"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// checkSubagent enforces what can be known from the declaration alone:
//
//   - the agent is an adapter of this version, with the command that it needs;
//   - role and tier are said, never assumed;
//   - a subagent of tier observe returns no patch, so it has no verify
//     command, which would judge one;
//   - schemas compile and describe an object, and the prompt parses.
func (r *reader) checkSubagent(d *decl, v api.Subagent) {
	r.checkAgent(d, v)
	for _, field := range []string{"role", "tier"} {
		if d.pos[field] == nil {
			r.At(d.node, "subagent: the key %q is missing", field)
		}
	}
	if n := d.pos["tier"]; n != nil && n.Value == api.Observe.String() && v.Verify != nil {
		r.At(d.at("verify"), "verify: judges a patch, but a subagent of tier observe returns none; say tier: reversible or drop verify")
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
			r.At(d.node, "subagent: the key \"agent\" is missing; this version knows: command")
		}
	case "command":
		if len(v.Command) == 0 {
			r.At(d.at("command"), "subagent: agent \"command\" needs a command, such as [./rewrite.sh]")
		}
	case "claude-code", "codex", "opencode", "gemini":
		r.At(d.at("agent"), "agent: %q is not supported yet in this version, which knows: command", v.Agent)
	default:
		r.At(d.at("agent"), "agent: %q is unknown; this version knows: command", strictyaml.Clip(v.Agent))
	}
	if v.Agent != "command" && v.Agent != "" && v.Command != nil {
		r.At(d.at("command"), "command: is for agent \"command\" only")
	}
}

// schema refuses a JSON Schema that would fail, or mean nothing, when it is
// used. Schemas that refer to other documents are refused, because nothing
// here fetches them.
func (r *reader) schema(n *yaml.Node, what string, raw json.RawMessage, object bool) {
	if n == nil || raw == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.At(n, "%s: want a JSON Schema, which is a mapping, got %s", what, strictyaml.KindOf(n))
		return
	}
	var given any
	if err := json.Unmarshal(raw, &given); err == nil {
		err = checkKeywords(given)
		if err != nil {
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
		r.At(n, "%s: not a JSON Schema that compiles: %s", what, strictyaml.OneLine(err.Error()))
		return
	}
	if object && s.Type != "" && s.Type != "object" || object && len(s.Types) > 0 && !slices.Contains(s.Types, "object") {
		r.At(n, "%s: the input of a dispatch is a JSON object, but this schema wants another type", what)
	}
}

func (r *reader) checkTarget(d *decl, v api.Target) {
	want := func(field, got, value string) {
		switch {
		case d.pos[field] == nil:
			r.At(d.node, "target: the key %q is missing; this version knows: %s", field, value)
		case got != value && got != "":
			r.At(d.at(field), "%s: %q is not supported in this version, which knows: %s", field, strictyaml.Clip(got), value)
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
