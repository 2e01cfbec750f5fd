package mcpserve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// What is wrong with the arguments of a call is said with the member that it
// is about, in words that a model can act on, and briefly. Models give an empty
// text for what they have nothing for.
func TestBadArgumentsAreSaidByTheirMember(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"subagent":"a","target":""}`:                               "target: an empty text is no name or id; leave it out where there is none",
		`{"subagent":"a","resume":""}`:                               "resume: an empty text",
		`{"subagent":"a","dispatchId":"-abc"}`:                       `dispatchId: pattern: "-abc" does not match`,
		`{"subagent":"A b"}`:                                         `subagent: pattern: "A b" does not match`,
		`{"subagent":"a","env":["go",""]}`:                           "env: ",
		`{"subagent":"a","source":{"name":""}}`:                      "source.name: an empty text",
		`{"subagent":null}`:                                          `subagent: type: null has type "null", want "string"`,
		`{"subagent":"a","wait":-1}`:                                 "wait: minimum: -1 is less than 0",
		`{"subagent":"a","wait":51}`:                                 "wait: maximum: 51 is greater than 50",
		`{"subagent":"a","wait":1e300}`:                              "wait: maximum: 1000",
		`{"subagent":"a","image":"x"}`:                               `unknown fields ["image"]`,
		`{"subagent":"a","env":"` + strings.Repeat("x", 9999) + `"}`: "env: type: xxx",
	} {
		text := refusalOfArguments[dispatchInput](t, arguments)
		if !strings.Contains(text, want) || len(text) > 600 || strings.Contains(text, "reflect") {
			t.Errorf("%.80s: %s", arguments, text)
		}
	}
}

func refusalOfArguments[In any](t *testing.T, arguments string) string {
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
		t.Fatalf("%s passes", arguments)
	}
	return err.Error()
}
