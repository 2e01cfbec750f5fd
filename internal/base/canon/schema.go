package canon

import (
	"regexp"
	"strings"
)

// schemaPhrases are texts of the JSON Schema validator, and what we say.
var schemaPhrases = []struct { //nolint:gochecknoglobals // a table that nothing writes, of compiled expressions
	raw *regexp.Regexp
	say string
}{
	{regexp.MustCompile(`^validating root: `), ``},
	{regexp.MustCompile(`validating /properties/`), ``},
	{regexp.MustCompile(`/properties/`), `.`},
	{regexp.MustCompile(`validating [^\s:]*: `), ``},
	{regexp.MustCompile(`unexpected additional properties`), `unknown fields`},
	{regexp.MustCompile(`<invalid reflect.Value> has type`), `null has type`},
	{regexp.MustCompile(`(\d)/1 is`), `$1 is`}, // as math/big and %f print numbers
	{regexp.MustCompile(`(\d)\.000000$`), `$1`},
	{regexp.MustCompile(`required: missing properties: `), `missing: `},
	{regexp.MustCompile(`map\[[^\n]* has type "object"`), `an object has type "object"`}, // as fmt prints maps
}

// quotedList is how fmt prints several texts.
var quotedList = regexp.MustCompile(`\["[^"\]]*"(?: "[^"\]]*")*\]`)

// SchemaText is an error of the JSON Schema validator as a path and a reason, such
// as lines: minimum: 0 is less than 1.
func SchemaText(err error) string {
	text := err.Error()
	for _, p := range schemaPhrases {
		text = p.raw.ReplaceAllString(text, p.say)
	}
	return quotedList.ReplaceAllStringFunc(text, func(list string) string {
		return strings.ReplaceAll(strings.Trim(list, "[]"), `" "`, `", "`)
	})
}
