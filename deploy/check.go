package deploy

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// checkSubagent validates a declaration on its own:
//
//   - the agent is an adapter of this version and has the command that it needs;
//   - role and tier are explicit;
//   - a subagent of tier observe, which returns no patch, has no verify command;
//   - schemas compile and describe an object, and the prompt parses
//     and names members of the input.
func checkSubagent(r *parser, d *decl, v api.Subagent) {
	checkAgent(r, d, v)
	for _, field := range []string{"role", "tier"} {
		if d.pos[field] == nil {
			r.At(d.node, "subagent: the key %q is missing", field)
		}
	}
	if n := d.pos["tier"]; n != nil && n.Value == api.Observe.String() && v.Verify != nil {
		r.At(d.at("verify"), "verify: a subagent of tier observe returns no patch to verify; use tier: reversible or remove verify")
	}
	if v.Effect == api.EffectPure && v.Tier > api.Reversible {
		r.At(d.at("effect"), "effect: a pure subagent changes nothing but its products, so its tier is observe or reversible, not %s", v.Tier)
	}
	r.schema(d.pos["input"], "input", v.Input, true)
	r.schema(d.pos["output"], "output", v.Output, false)
	if v.Prompt != "" {
		for _, problem := range checkPrompt(v.Prompt, v.Input) {
			r.At(d.at("prompt"), "prompt: %s", problem)
		}
	}
}

func checkAgent(r *parser, d *decl, v api.Subagent) {
	switch {
	case v.Agent == "":
		if d.pos["agent"] == nil {
			r.At(d.node, "subagent: the key \"agent\" is missing; want one of %s", api.OneOf(api.Agents()))
		}
		return
	case !slices.Contains(api.Agents(), v.Agent):
		r.At(d.at("agent"), "agent: unknown agent %q; want one of %s", strictyaml.Clip(v.Agent), api.OneOf(api.Agents()))
	case v.Agent == "command" && len(v.Command) == 0:
		r.At(d.at("command"), "subagent: agent \"command\" needs a command, such as [./rewrite.sh]")
	case v.Agent != "command" && d.pos["model"] == nil:
		r.At(d.node, "subagent: agent %q needs model: NAME/LEVEL, a model of the catalog and one of its levels", v.Agent)
	}
	if v.Agent != "command" && v.Command != nil {
		r.At(d.at("command"), "command: only allowed with agent \"command\"; %s is started by Bailiwick", strictyaml.Clip(v.Agent))
	}
	if v.Model != "" {
		if _, _, err := api.SplitModel(v.Model); err != nil {
			r.At(d.at("model"), "%v", err)
		}
		return
	}
	for field, set := range map[string]bool{"requireModel": v.RequireModel, "limits": v.Limits.Tokens > 0 || v.Limits.Cost > 0 || v.Limits.Turns > 0} {
		if set && d.pos["model"] == nil {
			r.At(d.at(field), "%s: there is nothing to count without model: NAME/LEVEL", field)
		}
	}
}

// schema refuses a JSON Schema that would fail or have no effect when it is used,
// or that refers to other documents, which are never fetched.
func (r *parser) schema(n *yaml.Node, what string, raw json.RawMessage, object bool) {
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
	if err := compiles(raw); err != nil {
		r.At(n, "%s: %v", what, err)
		return
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err == nil && object && (s.Type != "" && s.Type != "object" || len(s.Types) > 0 && !slices.Contains(s.Types, "object")) {
		r.At(n, "%s: the input of a dispatch is a JSON object, but this schema requires another type", what)
	}
}

// compiles refuses a JSON Schema that would fail when a value is checked, or whose check
// has no end.
func compiles(raw json.RawMessage) error {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("not a JSON Schema: %s", strictyaml.OneLine(err.Error()))
	}
	if _, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true}); err != nil {
		return fmt.Errorf("the JSON Schema does not compile: %s", strictyaml.OneLine(canon.SchemaText(err)))
	}
	var given any
	if err := json.Unmarshal(raw, &given); err != nil {
		return err
	}
	return checkCycles(given)
}

// isObjectSchema reports whether a schema says that its values are objects.
func isObjectSchema(raw json.RawMessage) bool {
	var s struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(raw, &s) == nil && s.Type == "object"
}

func checkTarget(r *parser, d *decl, v api.Target) {
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
