package deploycli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/decisiontext"
)

// exampleAction is what the example votes are about.
func exampleAction(arguments string) api.ToolAction {
	return api.ToolAction{
		V: 1, ID: "a-aaaaaaaaaaaa", Tool: "warehouse/apply_schema_change", Arguments: json.RawMessage(arguments), Definition: api.DigestOf([]byte("d")),
		Tier: api.Stateful, Dispatch: "d-one", Run: "r-one", Task: "migrate", Subagent: "transform", Role: "transform", Target: "guarded", Principal: "agent:claude",
		Revision: api.DigestOf([]byte("r")), Policies: []string{"approval", "taint"}, Taint: &api.Taint{Dispatch: "d-one", Attempt: 1, Call: 3, Tool: "web/fetch"},
		Needs: 1, Expires: exampleDecision(api.VerbStopLift).At,
	}
}

const exampleArguments = `{"sql":"alter table a add b int"}`

func encoded(t testing.TB, a api.ToolAction) []byte {
	doc, err := canon.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func shownFor(r api.OperatorRecord) string {
	if r.Approval == "" {
		return decisiontext.Text(r, nil)
	}
	a := exampleAction(exampleArguments).Action()
	return decisiontext.Text(r, &a)
}

// Text in the arguments of a call can neither look like a row nor hide. Control: a row of
// the program is in the list.
//
// proves R-G6
func TestArgumentsCannotBeForged(t *testing.T) {
	r := exampleDecision(api.VerbApprove)
	want := rows(shownFor(r))
	if len(want) < 15 {
		t.Fatalf("control: %q", want)
	}
	for _, text := range append(hostile, "\u0430pply", "ap\u200dply") {
		raw, _ := json.Marshal(map[string]string{"sql": strings.ToValidUTF8(text, "")})
		a := exampleAction(string(raw)).Action()
		shown := decisiontext.Text(r, &a)
		if got := rows(shown); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q changes the rows:\n%s", text, shown)
		}
		for _, c := range shown {
			if c > 0x7f || c < ' ' && c != '\n' {
				t.Errorf("%q shows %q", text, c)
			}
		}
	}
}

// What is shown is what is signed: any other action than the one in the record is
// refused, and a record that is not a vote takes none.
//
// proves R-G6
func TestOnlyTheNamedActionIsShown(t *testing.T) {
	good := exampleAction(exampleArguments)
	r := exampleDecision(api.VerbApprove)
	r.Content = api.DigestOf(encoded(t, good))
	if _, err := readAction(r, encoded(t, good)); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(*api.ToolAction){
		"arguments": func(a *api.ToolAction) { a.Arguments = json.RawMessage(`{"sql":"drop table a"}`) },
		"tool":      func(a *api.ToolAction) { a.Tool = "warehouse/drop" },
		"dispatch":  func(a *api.ToolAction) { a.Dispatch = "d-two" },
		"role":      func(a *api.ToolAction) { a.Role = "quality" },
		"revision":  func(a *api.ToolAction) { a.Revision = api.DigestOf(nil) },
		"approval":  func(a *api.ToolAction) { a.ID = "a-bbbbbbbbbbbb" },
	} {
		other := good
		change(&other)
		if _, err := readAction(r, encoded(t, other)); err == nil {
			t.Errorf("%s: shown", name)
		}
	}
	if _, err := readAction(r, nil); err == nil {
		t.Error("no action is taken")
	}
	if _, err := readAction(exampleDecision(api.VerbStopLift), encoded(t, good)); err == nil {
		t.Error("an action is taken for another verb")
	}
}
