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

// object is a JSON object that is passed on unchanged.
type object json.RawMessage

// UnmarshalJSON refuses anything but an object.
func (o *object) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("want a JSON object, got %.20s", b)
	}
	*o = append((*o)[:0], b...)
	return nil
}

// MarshalJSON returns the object as it was read.
func (o object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// schemaOptions describes the types with their own JSON form.
func schemaOptions() *jsonschema.ForOptions {
	var tiers []any
	for t := api.Observe; t <= api.Irreversible; t++ {
		tiers = append(tiers, t.String())
	}
	return &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[object]():          {Type: "object"},
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON value"}, // an empty schema is encoded as true, which some clients cannot read
		reflect.TypeFor[api.Tier]():        {Type: "string", Enum: tiers},
		reflect.TypeFor[api.Event]():       {Type: "string", Enum: enumValues(api.Events())},
		reflect.TypeFor[view]():            {Type: "string", Enum: enumValues(views())},
		reflect.TypeFor[api.RunState]():    {Type: "string", Enum: enumValues(api.RunStates())},
		reflect.TypeFor[api.TaskState]():   {Type: "string", Enum: enumValues(api.TaskStates())},
		reflect.TypeFor[api.Reason]():      {Type: "string", Enum: enumValues(api.Reasons())},
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[api.Cost]():        {Type: "string", Description: "a decimal number"},
	}}
}

func enumValues[T ~string](list []T) []any {
	out := make([]any, 0, len(list))
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// inputSchema derives the schema of a tool's input from its Go type.
func inputSchema[In any]() (*jsonschema.Schema, error) {
	options := schemaOptions()
	// Patterns make a refusal name the member.
	options.TypeSchemas[reflect.TypeFor[api.Name]()] = &jsonschema.Schema{Type: "string", Pattern: api.NamePattern()}
	options.TypeSchemas[reflect.TypeFor[api.DispatchID]()] = &jsonschema.Schema{Type: "string", Pattern: api.DispatchIDPattern()}
	options.TypeSchemas[reflect.TypeFor[api.RunID]()] = &jsonschema.Schema{Type: "string", Pattern: api.RunIDPattern()}
	longest := maxCursor
	options.TypeSchemas[reflect.TypeFor[cursorText]()] = &jsonschema.Schema{Type: "string", MaxLength: &longest}
	s, err := jsonschema.For[In](options)
	if err != nil {
		return nil, err
	}
	removeNull(s)
	var zero In
	bound(s, zero)
	return s, nil
}

// outputSchema derives the schema of a tool's output from its Go type; an error is
// the alternative.
func outputSchema[Out any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[Out](schemaOptions())
	if err != nil {
		return nil, err
	}
	failure, err := jsonschema.For[api.Error](schemaOptions())
	if err != nil {
		return nil, err
	}
	failure.Description = "why the call was refused or failed; no other member is set"
	s.Properties["error"] = failure
	s.PropertyOrder = append(s.PropertyOrder, "error")
	s.AnyOf = []*jsonschema.Schema{{Required: s.Required}, {Required: []string{"error"}}}
	s.Required = nil
	removeNull(s)
	return s, nil
}

// removeNull removes the type null, which inference adds for every nillable Go
// type: it is never written, and refused when read.
func removeNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if rest := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" }); len(rest) == 1 {
		s.Type, s.Types = rest[0], nil
	} else if len(rest) == 0 {
		s.Types = nil
	}
	for _, p := range s.Properties {
		removeNull(p)
	}
	removeNull(s.Items)
	removeNull(s.AdditionalProperties)
}

// bounded is an input whose numbers have bounds.
type bounded interface{ bounds() map[string]span }

// span bounds a number; high 0 means no upper bound.
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

// advertiser is an input with members whose schemas are advertised but not enforced
// here: the service validates them and reports all problems at once.
type advertiser interface {
	advertised() map[string]json.RawMessage
}

// advertisedSchema returns the schema of an input for clients.
func advertisedSchema[In any](checked *jsonschema.Schema) (*jsonschema.Schema, error) {
	var zero In
	more, ok := any(zero).(advertiser)
	if !ok {
		return checked, nil
	}
	s := checked.CloneSchemas()
	for name, text := range more.advertised() {
		var p jsonschema.Schema
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.Schema = "" // the root has it
		s.Properties[name] = &p
	}
	return s, nil
}
