package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// input is the input of a request as the user gave it: an object, and members to
// set in it.
type input struct {
	members map[string]any
	set     []member
}

// member is one --set.
type member struct {
	flag  string // as given
	key   string
	text  bool // the value is a text, not JSON
	value any
}

// readInput reads an input object (JSON text, @FILE, or - for standard input) and
// what to set in it: KEY=TEXT, KEY:=JSON or KEY@FILE.
func readInput(a *console.Args, text string, set []string, stdin io.Reader) input {
	in := input{members: map[string]any{}}
	raw, err := console.ReadInput(text, stdin)
	a.Fail(err)
	if len(raw) > 0 {
		if in.members, err = decodeObject(raw); err != nil {
			a.Fail(api.Errorf(api.CodeInvalid, "input: %w", err))
		}
	}
	for _, s := range set {
		v, err := console.ParseValue("--set", s, stdin)
		a.Fail(err)
		if slices.ContainsFunc(in.set, func(m member) bool { return m.key == v.Key }) && err == nil {
			a.Fail(api.Errorf(api.CodeInvalid, "--set %s is given twice", v.Key))
		}
		m := member{flag: s, key: v.Key, text: v.JSON == nil, value: v.Text}
		if err == nil && v.JSON != nil {
			m.value, err = decodeValue(v.JSON)
			a.Fail(err)
		}
		in.set = append(in.set, m)
	}
	return in
}

// decodeObject decodes strict JSON. Numbers keep all their digits.
func decodeObject(raw []byte) (members map[string]any, err error) {
	v, err := decodeValue(raw)
	if err != nil {
		return nil, err
	}
	members, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("want a JSON object")
	}
	return members, nil
}

func decodeValue(raw []byte) (v any, err error) {
	if _, err := canon.Canonicalize(raw); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// document returns the input for a subagent, or for one that the caller cannot see
// if sub is nil. What was set has to fit its schema; the service checks all of it.
func (in input) document(sub *api.ArtifactInfo) (json.RawMessage, error) {
	var schema *jsonschema.Schema
	if sub != nil && len(sub.Input) > 0 {
		schema = &jsonschema.Schema{}
		if json.Unmarshal(sub.Input, schema) != nil {
			schema = nil
		}
	}
	for _, m := range in.set {
		if err := m.setIn(in.members, schema); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "--set %s: %w", m.flag, err).WithHint("see: bailiwick subagent show %s", sub.Name)
		}
	}
	return json.Marshal(in.members)
}

// setIn sets m in members, which schema describes. A key with dots is a path where
// the schema has such members; else it is the name of one.
func (m member) setIn(members map[string]any, schema *jsonschema.Schema) error {
	key := m.key
	if schema == nil {
		members[key] = m.value
		return nil
	}
	for schema.Properties[key] == nil {
		first, rest, dotted := strings.Cut(key, ".")
		inner := schema.Properties[first]
		if !dotted || inner == nil || len(inner.Properties) == 0 {
			break
		}
		below, ok := members[first].(map[string]any)
		if !ok {
			if members[first] != nil {
				return fmt.Errorf("member %q of --input is not an object", first)
			}
			below = map[string]any{}
			members[first] = below
		}
		members, schema, key = below, inner, rest
	}
	if err := m.check(schema, key); err != nil {
		return err
	}
	members[key] = m.value
	return nil
}

// check refuses a member that the schema does not have, and a value of another
// type.
func (m member) check(schema *jsonschema.Schema, key string) error {
	want := schema.Properties[key]
	if want == nil {
		if closed := schema.AdditionalProperties; closed == nil || closed.Not == nil || len(schema.PatternProperties) > 0 {
			return nil
		}
		known := slices.Sorted(maps.Keys(schema.Properties))
		if len(known) == 0 {
			return fmt.Errorf("the input has no members")
		}
		return fmt.Errorf("no such member %q; want one of %s", key, strings.Join(known, ", "))
	}
	types := want.Types
	if want.Type != "" {
		types = []string{want.Type}
	}
	if len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return isType(m.value, t) }) {
		return nil
	}
	if text, ok := m.value.(string); ok && m.text {
		v, err := decodeValue([]byte(text))
		if err == nil && slices.ContainsFunc(types, func(t string) bool { return isType(v, t) }) {
			return fmt.Errorf("%s wants %s; write %s", key, strings.Join(types, " or "), console.ShellText(m.key+":="+text))
		}
	}
	return fmt.Errorf("%s wants %s", key, strings.Join(types, " or "))
}

// isType reports whether a decoded value has a type of JSON Schema.
func isType(v any, name string) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	case json.Number:
		f, err := v.Float64()
		return name == "number" || name == "integer" && err == nil && f == math.Trunc(f)
	}
	return false
}
