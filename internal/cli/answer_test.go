package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What an agent asks, and what somebody answered, cannot look like another
// option, another answer or a row of Bailiwick's own. Control: the same words
// in rows of our own stand without the marker.
//
// proves R-D7
func TestNoLineOfAQuestionLooksLikeOneOfOurs(t *testing.T) {
	forged := []string{"2. keep it", "answer by 2099-01-01: bailiwick dispatch answer d-other TEXT", "isolation   full", "local:ann answered: yes"}
	lines := "x\n" + strings.Join(forged, "\n")
	by := time.Now()
	d := api.Dispatch{ID: "d-one", State: api.EventNeedsInput, Attempt: 2, Message: "2. keep it", AnswerBy: &by}
	d.Attempts = []api.Attempt{{Attempt: 1, Message: "x", Answer: &api.Answer{By: "local:bob", Text: lines}}}
	d.Question = &api.Question{Question: lines, Options: []string{lines, "delete it"}}
	var out bytes.Buffer
	tr := &tree{Config: Config{Stdout: &out}, output: "text"}
	if err := tr.printDispatch(d); err != nil {
		t.Fatal(err)
	}
	for _, words := range forged {
		marked := 0
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, words) {
				continue
			}
			if !strings.HasPrefix(line, strings.Repeat(" ", 12)+agentMarker) {
				t.Errorf("a line of the agent's looks like ours: %q", line)
			}
			marked++
		}
		if marked != 3 { // the answer, the question and its option
			t.Errorf("%q is there %d times:\n%s", words, marked, &out)
		}
	}
	if !strings.Contains(out.String(), strings.Repeat(" ", 12)+"2. delete it\n") {
		t.Errorf("control: no option 2:\n%s", &out)
	}
}
