package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// A plan is written by anybody who may submit one. Its schema cannot make the
// service recurse without end, which no recover stops, or work for minutes, and a
// small plan does not become a large one in memory.
//
// proves R-O2
func TestParametersAreBounded(t *testing.T) {
	parse := func(schema, input string) []string {
		begun := time.Now()
		p, problems := Parse([]byte(`{"parameters":` + schema + `,"tasks":[{"id":"a","subagent":"x","input":{"x":` + input + `}}]}`))
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%.60s: took %s", schema, took)
		}
		var said []string
		for _, p := range problems {
			said = append(said, p.Message)
		}
		if p != nil && len(said) > 0 {
			t.Errorf("%.60s: both a plan and problems", schema)
		}
		return said
	}
	// Controls: the library follows a reference, here to a part that is not its own
	// parent, and a plan of ordinary parameters is accepted.
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(`{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`), &s); err != nil {
		t.Fatal(err)
	}
	rules, err := s.Resolve(nil)
	if err != nil || rules.Validate(map[string]any{"x": 7.0}) == nil || rules.Validate(map[string]any{"x": "a"}) != nil {
		t.Fatalf("the control follows no reference: %v", err)
	}
	big := strings.Repeat("x", 100_000)
	if said := parse(`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{3,200000}|x+$","default":"xyz"},"b":{"default":"`+big+`"}}}`, `["${params.a}","${params.b}"]`); len(said) != 1 || !strings.Contains(said[0], "not a JSON Schema") {
		t.Errorf("a pattern that the library refuses: %.300q", said)
	}
	if said := parse(`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{3,20}$","default":"xyz"},"b":{"default":"`+big+`"}}}`, `["${params.a}","${params.b}","${params.b}"]`); said != nil {
		t.Errorf("an ordinary plan: %.300q", said)
	}
	for _, schema := range []string{
		`{"$ref":"#"}`, `{"$REF":"#"}`, `{"\u0024dynamicRef":"#"}`, `{"properties":{"a":{"default":1,"allOf":[{"$ref":"#/properties/a"}]}}}`,
		`{"$defs":{"a":{"not":{"$ref":"#/$defs/a"}}},"not":{"anyOf":[{"$ref":"#/$defs/a"}]}}`,
	} {
		if said := parse(schema, `1`); len(said) == 0 || !strings.Contains(said[0], "cannot refer to a schema") {
			t.Errorf("%s: %.300q", schema, said)
		}
	}
	rule := strings.Repeat(`{"items":{"minimum":0}},`, 20_000)
	for name, schema := range map[string]string{
		"many rules":       `{"properties":{"a":{"default":[` + strings.Repeat("1,", 100_000) + `1],"allOf":[` + rule + `{}]}}}`,
		"a hard pattern":   `{"properties":{"a":{"default":"` + big + `","pattern":"((x?){0,30}){0,30}y"}}}`,
		"a hard key":       `{"properties":{"a":{"default":{"` + big + `":1},"patternProperties":{"((x?){0,30}){0,30}y":{}}}}}`,
		"in another case":  `{"properties":{"a":{"default":"` + big + `","Pattern":"((x?){0,30}){0,30}y"}}}`,
		"many repetitions": `{"properties":{"a":{"default":"` + big + big + `","pattern":"` + strings.Repeat("(x?){0,999}", 30) + `y"}}}`,
	} {
		if said := parse(schema, `1`); len(said) == 0 || !strings.Contains(said[0], "too large together") {
			t.Errorf("%s: %.300q", name, said)
		}
	}
	for name, input := range map[string]string{
		"whole values": `[` + strings.Repeat(`"${params.a}",`, 20_000) + `1]`,
		"texts":        `"` + strings.Repeat(`${params.a}`, 20_000) + `"`,
	} {
		if said := parse(`{"properties":{"a":{"default":"`+big+`"}}}`, input); len(said) != 1 || !strings.Contains(fmt.Sprint(said), "with its parameters inserted") {
			t.Errorf("%s: %.300q", name, said)
		}
	}
}
