package canon

import (
	"errors"
	"testing"
)

func TestSchemaErrorsAreAPathAndAReason(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"validating root: validating /properties/lines: minimum: 0/1 is less than 1.000000":                 "lines: minimum: 0 is less than 1",
		`validating root: required: missing properties: ["a" "b c"]`:                                        `missing: "a", "b c"`,
		`validating root: unexpected additional properties ["x"]`:                                           `unknown fields "x"`,
		`validating root: validating /properties/a/properties/b: type: 1 has type "integer", want "string"`: `a.b: type: 1 has type "integer", want "string"`,
		"another": "another",
	} {
		if got := SchemaText(errors.New(raw)); got != want {
			t.Errorf("SchemaText(%q) = %q, want %q", raw, got, want)
		}
	}
}
