package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// Values of keywords of JSON Schema 2020-12.
const (
	plainValue  = iota // anything
	oneSchema          // a schema
	schemaList         // a list of schemas
	namedSchema        // a mapping to schemas
)

func schemaKeywords() map[string]int {
	all := map[string]int{}
	for kind, names := range map[int]string{
		plainValue: "$schema $id $ref $anchor $dynamicRef $dynamicAnchor $vocabulary $comment type enum const multipleOf maximum " +
			"exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems maxContains " +
			"minContains maxProperties minProperties required dependentRequired title description default deprecated readOnly " +
			"writeOnly examples format contentEncoding contentMediaType",
		oneSchema:   "items contains additionalProperties propertyNames if then else not unevaluatedItems unevaluatedProperties contentSchema",
		schemaList:  "allOf anyOf oneOf prefixItems",
		namedSchema: "properties patternProperties $defs definitions dependentSchemas",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = kind
		}
	}
	return all
}

// checkKeywords refuses unknown keywords and types. Validators ignore them, so a
// misspelt one would accept what its author meant to refuse.
func checkKeywords(schema any) error { return checkSchema(schemaKeywords(), schema) }

func checkSchema(known map[string]int, schema any) error {
	m, ok := schema.(map[string]any)
	if !ok {
		return nil // true or false; anything else is refused elsewhere
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		kind, ok := known[key]
		if !ok && !strings.HasPrefix(key, "x-") {
			return fmt.Errorf("unknown keyword %q%s", strictyaml.Clip(key), strictyaml.Suggestion(key, slices.Collect(maps.Keys(known))))
		}
		if key == "type" {
			if err := checkTypes(m[key]); err != nil {
				return err
			}
		}
		for _, below := range schemasIn(kind, m[key]) {
			if err := checkSchema(known, below); err != nil {
				return err
			}
		}
	}
	return nil
}

func schemasIn(kind int, v any) []any {
	switch kind {
	case oneSchema:
		return []any{v}
	case schemaList:
		all, _ := v.([]any)
		return all
	case namedSchema:
		named, _ := v.(map[string]any)
		return slices.Collect(maps.Values(named))
	}
	return nil
}

func checkTypes(v any) error {
	types, ok := v.([]any)
	if !ok {
		types = []any{v}
	}
	for _, t := range types {
		switch t {
		case "null", "boolean", "object", "array", "number", "string", "integer":
		default:
			return fmt.Errorf("type %q is not one of null, boolean, object, array, number, string, integer", strictyaml.Clip(fmt.Sprint(t)))
		}
	}
	return nil
}
