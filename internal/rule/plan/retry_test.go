package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const chainPlan = `{"id":"r1","source":{"name":"service","commit":"HEAD"},"tasks":[
	{"id":"a","subagent":"x","input":{"n":1}},
	{"id":"b","subagent":"x","depends_on":["a"]},
	{"id":"c","subagent":"x","needs":{"p":{"from":"b","patch":true}}},
	{"id":"d","subagent":"x","source":{"name":"other"}},
	{"id":"e","subagent":"x","depends_on":["d"],"source":{"name":"other"}}]}`

func allDone(int) End { return End{State: api.TaskDone} }

// proves R-O4
func TestARetryTakesOverWhatNoChangeReaches(t *testing.T) {
	old := parse(t, chainPlan)
	all := func(int) bool { return true }
	ends := func(done func(int) bool) func(int) End {
		return func(i int) End {
			if done(i) {
				return End{State: api.TaskDone}
			}
			return End{State: api.TaskFailed}
		}
	}
	for _, c := range []struct {
		name    string
		sources []api.SourceRequest
		inputs  map[api.TaskID]json.RawMessage
		from    []api.TaskID
		done    func(int) bool
		taken   string
		changed []string
	}{
		{"nothing changed", nil, nil, nil, all, "abcde", nil},
		{"one task failed", nil, nil, nil, func(i int) bool { return i != 1 }, "ade", nil},
		{"from a task on", nil, nil, []api.TaskID{"b"}, all, "ade", nil},
		{"another input", nil, map[api.TaskID]json.RawMessage{"d": json.RawMessage(`{"n":2}`)}, nil, all, "abc", []string{"input of task d"}},
		{"the same input, spelled otherwise", nil, map[api.TaskID]json.RawMessage{"a": json.RawMessage(`{ "n" : 1.0 }`)}, nil, all, "abcde", nil},
		{"another commit", []api.SourceRequest{{Name: "service", Commit: "c0ffee"}}, nil, nil, all, "de", []string{"source service at c0ffee"}},
		{"everything", []api.SourceRequest{{Name: "other", Commit: "f00"}}, map[api.TaskID]json.RawMessage{"c": json.RawMessage(`{}`), "a": json.RawMessage(`{"n":3}`)}, []api.TaskID{"e"}, all, "", []string{"input of task a", "source other at f00"}},
	} {
		p, err := old.Edited("r2", c.sources, c.inputs)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		r, err := p.RetryOf(old, nil, ends(c.done), c.from)
		taken := ""
		for i, yes := range r.Taken {
			if yes {
				taken += string(p.Tasks[i].ID)
			}
		}
		if err != nil || taken != c.taken || !slices.Equal(r.Changed, c.changed) || p.ID != "r2" {
			t.Errorf("%s: takes over %q, changed %q, %v; want %q, %q", c.name, taken, r.Changed, err, c.taken, c.changed)
		}
	}
	if old.ID != "r1" || old.Tasks[0].Source.Commit != "HEAD" {
		t.Error("the old plan was changed")
	}
}

func TestARetryRefusesWhatThePlanDoesNotHave(t *testing.T) {
	old := parse(t, chainPlan)
	if _, err := old.Edited("r2", []api.SourceRequest{{Name: "gone", Commit: "x"}}, nil); err == nil || !strings.Contains(err.Error(), "no task of run r1 starts from it") {
		t.Errorf("a source: %v", err)
	}
	if _, err := old.Edited("r2", nil, map[api.TaskID]json.RawMessage{"z": nil}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("an input: %v", err)
	}
	if _, err := old.Edited("r2", nil, map[api.TaskID]json.RawMessage{"a": json.RawMessage(`7`)}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("an input that is not an object: %v", err)
	}
	if _, err := old.RetryOf(old, nil, allDone, []api.TaskID{"z"}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a task to run again: %v", err)
	}
	// Any other difference is another plan.
	for name, change := range map[string]string{
		"subagent":   strings.Replace(chainPlan, `{"id":"b","subagent":"x"`, `{"id":"b","subagent":"y"`, 1),
		"dependency": strings.Replace(chainPlan, `"depends_on":["d"],`, "", 1),
		"task":       strings.Replace(chainPlan, `{"id":"d"`, `{"id":"f","subagent":"x"},{"id":"d"`, 1),
		"no source":  strings.Replace(chainPlan, `"source":{"name":"service","commit":"HEAD"},`, "", 1),
		"source":     strings.Replace(chainPlan, `"source":{"name":"other"}`, `"source":{"name":"third"}`, 1),
		"queue":      strings.Replace(chainPlan, `"id":"r1"`, `"id":"r1","queue":"slow"`, 1),
	} {
		if _, err := parse(t, change).RetryOf(old, nil, allDone, nil); err == nil {
			t.Errorf("another %s is accepted", name)
		}
	}
	var doc strings.Builder
	inputs := map[api.TaskID]json.RawMessage{}
	for i := range MaxChanges + 1 {
		fmt.Fprintf(&doc, `,{"id":"t%d","subagent":"x"}`, i)
		inputs[api.TaskID(fmt.Sprintf("t%d", i))] = json.RawMessage(`{"n":1}`)
	}
	wide := parse(t, `{"id":"w","tasks":[`+doc.String()[1:]+`]}`)
	many, err := wide.Edited("w2", nil, inputs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := many.RetryOf(wide, nil, allDone, nil); api.CodeOf(err) != api.CodeTooLarge {
		t.Errorf("%d changes: %v", len(inputs), err)
	}
	delete(inputs, "t0")
	few, err := wide.Edited("w3", nil, inputs)
	if err == nil {
		_, err = few.RetryOf(wide, nil, allDone, nil)
	}
	if err != nil {
		t.Errorf("positive control: %v", err)
	}
}
