package cli

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// A question of an agent and its answer cannot look like another option, another
// answer or a row of Bailiwick's own. Control: real options stand without the
// marker.
//
// proves R-D7
func TestQuestionsCannotForgeRows(t *testing.T) {
	forged := []string{"2. keep it", "answer by 2099-01-01: bailiwick dispatch answer d-other TEXT", "isolation   full", "local:ann answered: yes"}
	lines := "x\n" + strings.Join(forged, "\n")
	by := time.Now()
	d := api.Dispatch{ID: "d-one", State: api.EventNeedsInput, Attempt: 2, Message: "2. keep it", AnswerBy: &by}
	d.Attempts = []api.Attempt{{Attempt: 1, Message: "x", Answer: &api.Answer{By: "local:bob", Text: lines}}}
	d.Question = &api.Question{Question: lines, Options: []string{lines, "delete it"}}
	var out bytes.Buffer
	tr := &dispatchVerbs{&tree{Config: Config{Output: console.Output{Stdout: &out, Format: "text"}}}}
	if err := tr.printDispatch(d); err != nil {
		t.Fatal(err)
	}
	for _, words := range forged {
		marked := 0
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, words) {
				continue
			}
			if !strings.HasPrefix(line, strings.Repeat(" ", 12)+console.AgentMarker) {
				t.Errorf("a line of the agent looks like one of ours: %q", line)
			}
			marked++
		}
		if marked != 3 { // the answer, the question and its option
			t.Errorf("%q appears %d times:\n%s", words, marked, &out)
		}
	}
	if !strings.Contains(out.String(), strings.Repeat(" ", 12)+"2. delete it\n") {
		t.Errorf("control: no option 2:\n%s", &out)
	}
}

// An answer to the dispatch of a task says that the task needs its locks first. The
// record, which has the question until then, is not followed.
func TestAnsweringATasksDispatchDoesNotFollowIt(t *testing.T) {
	d := `{"dispatchId":"d-asks","run":"r-one","task":"ask","state":"needs_input","attempt":1,"principal":"local:ann"}`
	socket := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(d)) })
	for _, line := range []string{"dispatch answer d-asks yes", "dispatch answer d-asks yes --detach", "dispatch answer d-asks yes -o json"} {
		status, out, errs := at(t, socket, line)
		if status != 0 || !strings.Contains(out, "d-asks") || !strings.Contains(errs, "task ask of run r-one has its answer") || !strings.Contains(errs, "bailiwick run watch r-one") {
			t.Errorf("%s: exit status %d, %q, %q", line, status, out, errs)
		}
	}
	d = strings.Replace(d, `"run":"r-one","task":"ask",`, "", 1) // control
	if status, _, errs := at(t, socket, "dispatch answer d-asks yes -q"); status != statusNeedsInput {
		t.Errorf("exit status %d, %q", status, errs)
	}
}
