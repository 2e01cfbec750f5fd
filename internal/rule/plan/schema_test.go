package plan

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

func schema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(api.PlanSchema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPublishedSchemaIsTheLinkedOne(t *testing.T) {
	b, err := os.ReadFile("../../../docs/schema/plan.json")
	if err != nil || !bytes.Equal(b, api.PlanSchema()) {
		t.Errorf("docs/schema/plan.json differs from api/plan.schema.json (%v): copy it", err)
	}
}

// keysOf are the members that encoding/json knows of a struct.
func keysOf(t reflect.Type) map[string]bool {
	keys := map[string]bool{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys[name] = true
	}
	return keys
}

func TestSchemaHasTheFieldsOfTheTypesWithDescriptions(t *testing.T) {
	var root jsonschema.Schema
	if err := json.Unmarshal(api.PlanSchema(), &root); err != nil {
		t.Fatal(err)
	}
	task := root.Properties["tasks"].Items
	need := task.Properties["needs"].AdditionalProperties
	for name, c := range map[string]struct {
		schema *jsonschema.Schema
		typ    reflect.Type
	}{
		"plan": {&root, reflect.TypeFor[api.Plan]()}, "limits": {root.Properties["limits"], reflect.TypeFor[api.PlanLimits]()},
		"task": {task, reflect.TypeFor[api.PlanTask]()}, "retry": {task.Properties["retry"], reflect.TypeFor[api.Retry]()},
		"need": {need, reflect.TypeFor[api.Need]()}, "source": {root.Properties["source"], reflect.TypeFor[api.SourceRequest]()},
		"source of a task": {task.Properties["source"], reflect.TypeFor[api.SourceRequest]()},
	} {
		want := keysOf(c.typ)
		for key, s := range c.schema.Properties {
			if !want[key] {
				t.Errorf("%s: the schema has %q and the type has not", name, key)
			}
			if s.Title == "" || s.Description == "" && key != "tasks" {
				t.Errorf("%s: %q has no title or description", name, key)
			}
			delete(want, key)
		}
		if len(want) > 0 {
			t.Errorf("%s: the schema lacks %v", name, want)
		}
	}
	bounds := map[string][2]int{
		"tasks":    {*root.Properties["tasks"].MaxItems, api.MaxPlanTasks},
		"locks":    {*task.Properties["locks"].MaxItems, api.MaxTaskLocks},
		"needs":    {*task.Properties["needs"].MaxProperties, api.MaxTaskNeeds},
		"key":      {*task.Properties["locks"].Items.OneOf[0].MaxLength, api.MaxLockKey},
		"attempts": {int(*task.Properties["retry"].Properties["attempts"].Maximum), api.MaxAttempts},
		"priority": {int(*task.Properties["priority"].Maximum), api.MaxPriority},
		"reasons":  {len(task.Properties["retry"].Properties["on"].Items.Enum), len(api.Reasons())},
	}
	for name, b := range bounds {
		if b[0] != b[1] {
			t.Errorf("%s: the schema says %d, package api %d", name, b[0], b[1])
		}
	}
	for _, example := range root.Examples {
		b, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := Parse(b); problems != nil {
			t.Errorf("the example is refused: %v", problems)
		}
	}
}

// oddities are values that are wrong nearly everywhere, and right somewhere.
func oddities() []any {
	return []any{
		nil, true, false, 0, 1, -1, 20, 21, 100, 101, -101, 10001, 1.5, 1e30, "", "a", "A", "a-", "-a", "a b", "a\tb", "é", strings.Repeat("é", 256), strings.Repeat("x", 257),
		"2s", "2s..2m", "2m..2s", "1.5s..3m", "2s..", "0s", "90000h1s1s", "1ms", "-1s", "999999999999s", "lost", "denied", "gone", "../x", "/x", "\u202e", "\u0085",
		[]any{},
		[]any{"a"},
		[]any{"a", "a"},
		[]any{"lost"},
		[]any{1},
		[]any{nil},
		map[string]any{},
		map[string]any{"a": 1},
		map[string]any{"name": "a"},
		map[string]any{"shared": "k"},
		map[string]any{"shared": ""},
		map[string]any{"from": "a", "patch": true},
		map[string]any{"from": "a", "patch": true, "result": true},
		map[string]any{"from": "a", "output": "o"},
		map[string]any{"from": "a"},
		map[string]any{"a": map[string]any{"from": "a", "result": true}},
		map[string]any{"A!": map[string]any{"from": "a", "result": true}},
		[]any{map[string]any{"shared": "k"}, "k"},
		map[string]any{"attempts": 2},
		map[string]any{"on": []any{"lost"}},
		"any", "parts/*.csv", "*", "a*b*c", "$.a[*]", "$[*]", "$.a", "$", "$.a..b", "human:ann", "local:a b", "agent:x",
		[]any{"human:ann"},
		[]any{"human:ann", "human:ann"},
		[]any{"a", "human:ann"},
		map[string]any{"from": "a", "outputs": "p/*"},
		map[string]any{"from": "a", "items": "$.x[*]", "max": 3},
		map[string]any{"values": []any{"a", map[string]any{"name": "b"}}},
		map[string]any{"values": []any{"a"}, "from": "a"},
		map[string]any{"outputs": "p/*"},
		map[string]any{"from": "a", "items": "$[*]", "outputs": "*"},
		map[string]any{"verify": "a", "fix": "b"},
		map[string]any{"verify": map[string]any{"subagent": "a", "input": map[string]any{}}, "fix": "b", "attempts": 2},
		map[string]any{"of": []any{"a", "human:ann"}, "approve": 1},
		map[string]any{"by": []any{"human:ann"}, "count": 1, "show": []any{"a"}, "timeout": "1h"},
		map[string]any{"task": "a", "result": "$.x", "is": "y"},
		map[string]any{"task": "a", "result": "$.x", "is": nil},
	}
}

// keys are those of a plan anywhere, and some that are not.
func keys() []string {
	return []string{
		"id", "queue", "source", "limits", "tasks", "wall", "cost", "subagent", "input", "target", "env", "capabilities", "timeout", "locks", "retry", "depends_on",
		"needs", "priority", "attempts", "backoff", "on", "from", "patch", "output", "result", "shared", "name", "commit", "for_each", "quorum", "gate", "subagnet",
		"approval", "when", "after", "outputs", "items", "values", "max", "verify", "fix", "of", "approve", "by", "count", "show", "task", "is", "allow_failed", "x y",
	}
}

// spoil changes up to three things somewhere in a document.
func spoil(t *rapid.T, doc any) any {
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		doc = spoilOne(t, doc)
	}
	return doc
}

func spoilOne(t *rapid.T, v any) any {
	deeper := rapid.IntRange(0, 5).Draw(t, "deeper") > 0
	switch v := v.(type) {
	case map[string]any:
		if deeper && len(v) > 0 {
			key := rapid.SampledFrom(sortedKeys(v)).Draw(t, "member")
			if rapid.IntRange(0, 5).Draw(t, "delete") == 0 {
				delete(v, key)
			} else {
				v[key] = spoilOne(t, v[key])
			}
			return v
		}
		if rapid.Bool().Draw(t, "add") {
			v[rapid.SampledFrom(keys()).Draw(t, "key")] = rapid.SampledFrom(oddities()).Draw(t, "value")
			return v
		}
	case []any:
		if deeper && len(v) > 0 {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "item")
			v[i] = spoilOne(t, v[i])
			return v
		}
	}
	return rapid.SampledFrom(oddities()).Draw(t, "other")
}

// TestSchemaAndParseAgree: they are two descriptions of one shape.
//
// proves R-O2
func TestSchemaAndParseAgree(t *testing.T) {
	s := schema(t)
	valid, invalid := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var doc any
		if err := json.Unmarshal(drawPlan(t), &doc); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(spoil(t, doc))
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatal(err)
		}
		var found list
		read(raw, nil, &found)
		if err := s.Validate(value); (err == nil) != (found.shapes == 0) {
			t.Fatalf("%s\nthe schema: %v\nthe reader: %v", raw, err, found.problems())
		}
		if found.shapes == 0 {
			valid++
		} else {
			invalid++
		}
	})
	if valid == 0 || invalid == 0 {
		t.Errorf("%d documents fit the schema and %d do not: the generator is one-sided", valid, invalid)
	}
}
