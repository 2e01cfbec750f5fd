package mcpserve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// Each error names the member, is actionable for a model, and is short. Models pass
// empty strings for optional members.
func TestInvalidArgumentsAreReportedByMember(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"subagent":"a","target":""}`:                               "target: must not be empty; omit it instead",
		`{"subagent":"a","resume":""}`:                               "resume: must not be empty",
		`{"subagent":"a","dispatchId":"-abc"}`:                       `dispatchId: pattern: "-abc" does not match`,
		`{"subagent":"A b"}`:                                         `subagent: pattern: "A b" does not match`,
		`{"subagent":"a","env":["go",""]}`:                           "env: ",
		`{"subagent":"a","source":{"name":""}}`:                      "source.name: must not be empty",
		`{"subagent":null}`:                                          `subagent: type: null has type "null", want "string"`,
		`{"subagent":"a","wait":-1}`:                                 "wait: minimum: -1 is less than 0",
		`{"subagent":"a","wait":51}`:                                 "wait: maximum: 51 is greater than 50",
		`{"subagent":"a","wait":1e300}`:                              "wait: maximum: 1000",
		`{"subagent":"a","image":"x"}`:                               `unknown fields "image"`,
		`{"subagent":"a","env":"` + strings.Repeat("x", 9999) + `"}`: "env: type: xxx",
	} {
		text := argumentError[dispatchInput](t, arguments)
		if !strings.Contains(text, want) || len(text) > 600 || strings.Contains(text, "reflect") {
			t.Errorf("%.80s: %s", arguments, text)
		}
	}
}

func argumentError[In any](t *testing.T, arguments string) string {
	t.Helper()
	schema, err := inputSchema[In]()
	if err != nil {
		t.Fatal(err)
	}
	var resolved *jsonschema.Resolved
	if resolved, err = schema.Resolve(nil); err != nil {
		t.Fatal(err)
	}
	if _, err = decodeArguments[In](json.RawMessage(arguments), resolved); err == nil {
		t.Fatalf("%s was accepted", arguments)
	}
	return err.Error()
}
