package plan

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// reference is ${params.NAME}; $${params.NAME} is that text itself.
var reference = regexp.MustCompile(`\$?\$\{params\.([^}]*)\}`)

// resolve replaces the references to parameters in a document by their values, and
// removes the declaration. It returns doc itself if that declares no parameters. A
// reference may stand in the input of a task, in the commit of a source, in a lock
// and in a label: never where the plan names something of the catalog. A text that
// is one reference becomes the value, with its type; within a longer text the value
// is inserted, once, as text.
func resolve(doc json.RawMessage, values map[string]json.RawMessage, found *list) json.RawMessage {
	var head struct {
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(doc, &head) == nil && len(head.Parameters) > 0 && head.Parameters[0] != '{' {
		return doc // the reader reports it
	}
	if head.Parameters == nil {
		if len(values) > 0 {
			found.sense("$", "the plan declares no parameters, but has values for %s", strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		return doc
	}
	before := found.count
	all := parameterValues(head.Parameters, values, found)
	var root map[string]any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if d.Decode(&root) != nil {
		return doc // the reader reports it
	}
	delete(root, "parameters")
	r := &resolver{list: found, values: all, complete: found.count == before, sizes: map[string]int{}}
	resolved, err := canon.Marshal(r.walk("$", root, ""))
	if err != nil {
		found.sense("$", "%v", err)
		return doc
	}
	return resolved
}

// parameterValues returns the values of the declared parameters, with defaults.
func parameterValues(declared json.RawMessage, values map[string]json.RawMessage, found *list) map[string]any {
	const at = "$.parameters"
	all := map[string]any{}
	if !bounded(declared, values, found) {
		return all
	}
	var s jsonschema.Schema
	err := json.Unmarshal(declared, &s)
	var rules *jsonschema.Resolved
	if err == nil {
		rules, err = s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	}
	if err != nil {
		found.sense(at, "not a JSON Schema: %s", strictyaml.Clip(strictyaml.OneLine(err.Error())))
		return all
	}
	before := found.count
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var v any
		switch {
		case s.Properties[name] == nil:
			found.sense(at, "no such parameter %s%s", clip(name), strictyaml.Suggestion(name, slices.Collect(maps.Keys(s.Properties))))
		case json.Unmarshal(values[name], &v) != nil:
			found.sense(at, "parameter %s is not valid JSON", clip(name))
		default:
			all[name] = v
		}
	}
	err = rules.ApplyDefaults(&all)
	for _, name := range s.Required {
		if _, ok := all[name]; !ok && found.count == before {
			found.sense(at, "parameter %s has no value; give one: -p %s=VALUE", clip(name), strictyaml.Clip(name))
		}
	}
	if err == nil {
		err = rules.Validate(all)
	}
	if err != nil && found.count == before {
		text := whereInSchema.ReplaceAllString(strictyaml.OneLine(err.Error()), "")
		found.sense(at, "the parameters do not match their schema: %s", strictyaml.Clip(text))
	}
	return all
}

// whereInSchema is where the library says that a value is wrong, but for the name of
// the parameter.
var whereInSchema = regexp.MustCompile(`validating root: |validating /properties/`)

type resolver struct {
	*list
	values   map[string]any
	complete bool // the values have no problem
	size     int  // of the values inserted so far
	sizes    map[string]int
}

// free reports whether references may stand at a place: keys are the members that
// lead there.
func free(keys string) bool {
	return keys == "source.commit" || keys == "tasks.source.commit" || keys == "tasks.input" || strings.HasPrefix(keys, "tasks.input.") ||
		keys == "tasks.locks" || keys == "tasks.locks.shared" || strings.HasPrefix(keys, "labels.")
}

func (r *resolver) walk(path string, v any, keys string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			below := strings.TrimPrefix(keys+"."+name, ".")
			if reference.MatchString(name) {
				r.sense(path, "key %s: a key cannot refer to a parameter", clip(name))
			}
			v[name] = r.walk(member(path, name), value, below)
		}
	case []any:
		for i := range v {
			v[i] = r.walk(item(path, i), v[i], keys)
		}
	case string:
		return r.text(path, v, keys)
	}
	return v
}

// text resolves the references in a text.
func (r *resolver) text(path, s, keys string) any {
	if !reference.MatchString(s) {
		return s
	}
	if !free(keys) {
		r.sense(path, "%s: a parameter can only stand in an input, the commit of a source, a lock or a label", clip(s))
		return s
	}
	if m := reference.FindStringSubmatch(s); m[0] == s && !strings.HasPrefix(s, "$$") {
		return r.value(path, m[1])
	}
	return reference.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, "$$") {
			return m[1:]
		}
		name := reference.FindStringSubmatch(m)[1]
		switch v := r.value(path, name).(type) {
		case string:
			return v
		case float64, bool:
			b, _ := canon.Marshal(v) // a scalar always encodes
			return string(b)
		default:
			if !r.complete {
				break // reported
			}
			r.sense(path, "parameter %s is not text, number or boolean: it can only be a whole value", clip(name))
		}
		return m
	})
}

func (r *resolver) value(path, name string) any {
	v, ok := r.values[name]
	if !ok && r.complete {
		r.sense(path, "no value for parameter %s; declare it under parameters, with a default or a value of the request", clip(name))
	}
	if ok && !r.inserted(path, name, v) {
		return ""
	}
	return v
}

// ParameterType returns the type that a plan declares for a parameter, such as
// integer; "" if it declares none or several.
func ParameterType(doc json.RawMessage, name string) string {
	var head struct {
		Parameters struct {
			Properties map[string]struct {
				Type any `json:"type"`
			} `json:"properties"`
		} `json:"parameters"`
	}
	if json.Unmarshal(doc, &head) != nil {
		return ""
	}
	t, _ := head.Parameters.Properties[name].Type.(string)
	return t
}

// Template returns the digest of a plan that declares parameters, before they are
// resolved; "" for any other.
func Template(raw json.RawMessage) api.Digest {
	var head struct {
		Parameters json.RawMessage `json:"parameters"`
	}
	doc, err := canon.Canonicalize(raw)
	if err != nil || json.Unmarshal(doc, &head) != nil || head.Parameters == nil {
		return ""
	}
	return api.DigestOf(doc)
}
