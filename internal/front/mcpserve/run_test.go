package mcpserve

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A run id becomes part of a URL path.
func TestRunIDsAreValidatedAgainstThePattern(t *testing.T) {
	for _, id := range []string{".", "..", "a/b", "a?b", "a%2fb", "A", "\u017f", "-a", strings.Repeat("r", 65)} {
		quoted, _ := json.Marshal(id)
		for tool, text := range map[string]string{
			"status": argumentError[statusInput](t, `{"runId":`+string(quoted)+`}`),
			"watch":  argumentError[watchInput](t, `{"runId":`+string(quoted)+`}`),
			"submit": argumentError[submitInput](t, `{"plan":{},"runId":`+string(quoted)+`}`),
		} {
			if !strings.Contains(text, "runId: pattern: ") {
				t.Errorf("%s of %q: %s", tool, id, text)
			}
		}
	}
	schema, err := inputSchema[statusInput]()
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r-1", "a", strings.Repeat("r", 64)} {
		if in, err := decodeArguments[statusInput](json.RawMessage(`{"runId":"`+id+`"}`), resolved); err != nil || string(in.RunID) != id {
			t.Errorf("positive control: %q: %v", id, err)
		}
	}
}

// Clients see the schema of a plan, but a plan that violates it is passed on: the
// service reports all problems at once.
//
// proves R-O2
func TestThePlanSchemaIsAdvertisedAndNotEnforced(t *testing.T) {
	for _, tool := range frozen(t).tools {
		if tool.definition.Name != toolSubmit {
			continue
		}
		b, err := json.Marshal(tool.definition.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		var shown struct{ Properties map[string]map[string]any }
		if err := json.Unmarshal(b, &shown); err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(api.PlanSchema(), &want); err != nil {
			t.Fatal(err)
		}
		delete(want, "$schema")
		got, _ := json.Marshal(shown.Properties["plan"])
		wanted, _ := json.Marshal(want)
		if string(got) != string(wanted) {
			t.Errorf("advertised schema:\n%s\nwant:\n%s", got, wanted)
		}
	}
	checked, err := inputSchema[submitInput]()
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := checked.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := `{"tasks":7,"what":[]}`
	in, err := decodeArguments[submitInput](json.RawMessage(`{"plan":`+plan+`}`), resolved)
	if err != nil || string(in.Plan) != plan {
		t.Errorf("%s, %v", in.Plan, err)
	}
	// The control: the advertised schema refuses it.
	shown, err := advertisedSchema[submitInput](checked)
	if err != nil {
		t.Fatal(err)
	}
	if strict, err := shown.Resolve(&jsonschema.ResolveOptions{}); err != nil || strict.Validate(map[string]any{"plan": map[string]any{"tasks": 7.0}}) == nil {
		t.Errorf("positive control: the advertised schema accepts anything, %v", err)
	}
}

// proves R-O2
func TestEveryProblemOfAPlanReachesTheModel(t *testing.T) {
	e := api.Errorf(api.CodeInvalid, "plan: 2 problems")
	e.Problems = []api.Problem{{Path: "$.tasks[0].id", Message: "missing"}, {Path: "$.tasks[1].needs.a", Message: "no such task"}}
	result, err := frozen(t).failed(t.Context(), toolSubmit, e)
	if err != nil || !result.IsError {
		t.Fatalf("%+v, %v", result, err)
	}
	text, _ := json.Marshal(result)
	for _, p := range e.Problems {
		if n := strings.Count(string(text), p.Path); n != 2 { // as text and as structured content
			t.Errorf("%s occurs %d times, want 2: %s", p.Path, n, text)
		}
	}
}

func TestEventPagesFollowTheirCursor(t *testing.T) {
	all := api.RunEvents{Next: "1000", Done: true}
	for i := range 999 {
		all.Events = append(all.Events, api.RunEvent{Seq: uint64(i + 1), Text: strings.Repeat("x", i)})
	}
	var seen []uint64
	for rounds := 0; len(all.Events) > 0; rounds++ {
		page := eventPage(all)
		if b, err := json.Marshal(page); err != nil || len(b) > 3*runPageMax || len(page.Events) == 0 {
			t.Fatalf("a page of %d events and %d bytes, %v", len(page.Events), len(b), err)
		}
		for i := range page.Events {
			seen = append(seen, page.Events[i].Seq)
		}
		all.Events = all.Events[len(page.Events):]
		if want := strconv.Itoa(len(seen) + 1); page.Next != want || page.Done != (len(all.Events) == 0) {
			t.Fatalf("after %d events: next %s, done %v", len(seen), page.Next, page.Done)
		}
	}
	if len(seen) != 999 {
		t.Errorf("%d events in all pages, want 999", len(seen))
	}
	if page := eventPage(api.RunEvents{}); page.Events == nil {
		t.Error("events is null without events")
	}
}

func TestLongTasksAreShortened(t *testing.T) {
	task := taskOf(&api.RunTask{Task: "a", After: make([]api.TaskID, 9999), Message: strings.Repeat("x", 9999)})
	if b, err := json.Marshal(task); err != nil || len(b) > 2000 || len(task.After)+task.MoreAfter != 9999 {
		t.Errorf("%d bytes, %d and %d more, %v", len(b), len(task.After), task.MoreAfter, err)
	}
}

// A model learns that it waits for people, whom, and what they run, and that it cannot
// approve; the list is bounded. Control: without a request it is told to watch.
//
// proves R-O9, R-B2
func TestAModelLearnsThatItWaitsForPeople(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := api.Run{RunID: "r-one", State: api.RunWaiting}
	if out := runOf(&run, nil); out.Approvals != nil || strings.Contains(out.Advice, "approv") {
		t.Errorf("control: %+v", out)
	}
	for range 99 {
		run.Approvals = append(run.Approvals, api.OpenApproval{
			ID: "a-aaaaaaaaaaaa", Task: "ship", Electorate: api.Electorate{By: []api.Principal{"human:ann", "human:bob"}, Needs: 2, Approved: 1}, Expires: at,
		})
	}
	out := runOf(&run, nil)
	if len(out.Approvals)+out.MoreApproval != 99 || len(out.Approvals) != runApprovals || out.Approvals[0].Expires != at || out.Approvals[0].Approved != 1 {
		t.Errorf("%d and %d more: %+v", len(out.Approvals), out.MoreApproval, out.Approvals[0])
	}
	for _, want := range []string{"task ship waits for the approval of 2 humans of human:ann, human:bob", "You cannot approve", "bailiwick approval show a-aaaaaaaaaaaa", "bailiwick approval approve a-aaaaaaaaaaaa", toolWatch} {
		if !strings.Contains(out.Advice, want) {
			t.Errorf("no %q in %q", want, out.Advice)
		}
	}
	run.Approvals = []api.OpenApproval{{ID: "a-bbbbbbbbbbbb", Task: "build", DispatchID: "d-one", Tool: "db/drop", Electorate: api.Electorate{Needs: 1}, Expires: at}}
	if got := runOf(&run, nil).Advice; !strings.HasPrefix(got, "a call of db/drop by task build waits for the approval of a human. ") {
		t.Errorf("%q", got)
	}
}
