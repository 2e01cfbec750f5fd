package deploy

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// A schema whose check has no end is refused when it is planned: it would end the
// service at the first dispatch. The controls check values within values, or no
// value twice, and the library ends with them.
func TestASchemaWithoutAnEndIsRefused(t *testing.T) {
	for text, endless := range map[string]bool{
		`{"$ref":"#"}`: true,
		`{"type":"object","allOf":[{"$ref":"#"}]}`:                                                                                  true,
		`{"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`:                                         true,
		`{"properties":{"x/y":{"if":{"$ref":"#/properties/x~1y"}}}}`:                                                                true,
		`{"$anchor":"top","then":{"$ref":"#top"},"if":true}`:                                                                        true,
		`{"$dynamicAnchor":"top","oneOf":[{"$dynamicRef":"#top"}]}`:                                                                 true,
		`{"properties":{"next":{"$ref":"#"}}}`:                                                                                      false,
		`{"$defs":{"n":{"properties":{"all":{"items":{"$ref":"#/$defs/n"}}}}},"allOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}`: false,
		`{"$anchor":"top","additionalProperties":{"anyOf":[{"$ref":"#top"},{"type":"string"}]}}`:                                    false,
	} {
		var given any
		var s jsonschema.Schema
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		rules, err := s.Resolve(nil)
		if err != nil {
			t.Errorf("%s does not compile: %v", text, err)
			continue
		}
		if got := checkCycles(given); (got != nil) != endless {
			t.Errorf("%s: %v", text, got)
		}
		if !endless {
			if err := rules.Validate(map[string]any{"next": map[string]any{}}); err != nil {
				t.Errorf("control %s: %v", text, err)
			}
		}
	}
}
