package mcpserve

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
)

// object is a JSON object that is handed on as it is.
type object json.RawMessage

// UnmarshalJSON refuses what is no object.
func (o *object) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("want a JSON object, got %.20s", b)
	}
	*o = append((*o)[:0], b...)
	return nil
}

// MarshalJSON writes what was read.
func (o object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// schemaOptions describe the types that write their own JSON.
func schemaOptions() *jsonschema.ForOptions {
	var tiers []any
	for t := api.Observe; t <= api.Irreversible; t++ {
		tiers = append(tiers, t.String())
	}
	return &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[object]():          {Type: "object"},
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON value"}, // an empty schema is written as true, which some clients do not read
		reflect.TypeFor[api.Tier]():        {Type: "string", Enum: tiers},
		reflect.TypeFor[api.Event]():       {Type: "string", Enum: enumOf(api.Events())},
		reflect.TypeFor[view]():            {Type: "string", Enum: enumOf(views())},
		reflect.TypeFor[api.RunState]():    {Type: "string", Enum: enumOf(api.RunStates())},
		reflect.TypeFor[api.TaskState]():   {Type: "string", Enum: enumOf(api.TaskStates())},
		reflect.TypeFor[api.Reason]():      {Type: "string", Enum: enumOf(api.Reasons())},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
	}}
}

func enumOf[T ~string](list []T) []any {
	out := make([]any, 0, len(list))
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// inputSchema derives the schema of a tool's input from its Go type.
func inputSchema[In any]() (*jsonschema.Schema, error) {
	options := schemaOptions()
	// So that a refusal says which member it is about.
	options.TypeSchemas[reflect.TypeFor[api.Name]()] = &jsonschema.Schema{Type: "string", Pattern: api.NamePattern()}
	options.TypeSchemas[reflect.TypeFor[api.DispatchID]()] = &jsonschema.Schema{Type: "string", Pattern: api.DispatchIDPattern()}
	options.TypeSchemas[reflect.TypeFor[api.RunID]()] = &jsonschema.Schema{Type: "string", Pattern: api.RunIDPattern()}
	s, err := jsonschema.For[In](options)
	if err != nil {
		return nil, err
	}
	plain(s)
	var zero In
	bound(s, zero)
	return s, nil
}

// outputSchema derives the schema of a tool's output: what its Go type says, or
// an error in its one shape.
func outputSchema[Out any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[Out](schemaOptions())
	if err != nil {
		return nil, err
	}
	failure, err := jsonschema.For[api.Error](schemaOptions())
	if err != nil {
		return nil, err
	}
	failure.Description = "why the call was refused or failed; nothing else is set then"
	s.Properties["error"] = failure
	s.PropertyOrder = append(s.PropertyOrder, "error")
	s.AnyOf = []*jsonschema.Schema{{Required: s.Required}, {Required: []string{"error"}}}
	s.Required = nil
	plain(s)
	return s, nil
}

// plain takes null away, which inference adds to whatever is nil in Go: it is
// never written and is refused when read.
func plain(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if rest := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" }); len(rest) == 1 {
		s.Type, s.Types = rest[0], nil
	} else if len(rest) == 0 {
		s.Types = nil
	}
	for _, p := range s.Properties {
		plain(p)
	}
	plain(s.Items)
	plain(s.AdditionalProperties)
}

// bounded is an input whose fields have bounds that their Go types cannot say.
type bounded interface{ bounds() map[string]span }

// span is what a number may be; no upper bound where high is 0.
type span struct{ low, high float64 }

// bound adds the bounds of the input type v to its schema.
func bound(s *jsonschema.Schema, v any) {
	b, ok := v.(bounded)
	if !ok {
		return
	}
	for name, span := range b.bounds() {
		p := s.Properties[name]
		p.Minimum = &span.low
		if span.high > 0 {
			p.Maximum = &span.high
		}
	}
}

// shower is an input of which more is shown than is checked here: the service
// checks it, and then says all that is wrong with it at once.
type shower interface {
	shown() map[string]json.RawMessage
}

// shownSchema is what clients are shown of an input.
func shownSchema[In any](checked *jsonschema.Schema) (*jsonschema.Schema, error) {
	var zero In
	more, ok := any(zero).(shower)
	if !ok {
		return checked, nil
	}
	s := checked.CloneSchemas()
	for name, text := range more.shown() {
		var p jsonschema.Schema
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.Schema = "" // that of the whole
		s.Properties[name] = &p
	}
	return s, nil
}
