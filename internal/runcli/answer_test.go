package runcli

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// An answer is to what is asked when it is given: it names the dispatch and the
// attempt, so that it goes to no other question, however late it arrives and
// however often it is sent.
//
// proves R-D7
func TestAnAnswerNamesTheQuestionThatItIsTo(t *testing.T) {
	s := newRunService(api.RunTask{Task: "ask", State: api.TaskWaiting, Asks: true, Subagent: "edit", DispatchID: "d-asks", Attempt: 1, Attempts: 1})
	s.run.State = api.RunWaiting
	s.dispatches["d-asks"] = api.Dispatch{
		ID: "d-asks", Run: "r-one", Task: "ask", State: api.EventNeedsInput, Attempt: 2, Principal: "local:ann", Subagent: "edit", Role: "coder", Target: "local", Manifest: api.DigestOf(nil),
		Question: &api.Question{Question: "Which?", Options: []string{"red", "blue"}},
	}
	var body string
	s.steer = func(_ string, b []byte) (any, error) {
		body = strings.TrimSpace(string(b))
		return s.run, nil
	}
	socket := s.serve(t)
	for line, want := range map[string]string{
		"run answer r-one --task ask blue":                   `{"task":"ask","dispatchId":"d-asks","text":"blue","attempt":2}`,
		"run answer r-one --task ask --option 2":             `{"task":"ask","dispatchId":"d-asks","option":2,"attempt":2}`,
		"run answer r-one --task ask --option 1 --attempt 1": `{"task":"ask","dispatchId":"d-asks","option":1,"attempt":1}`,
		"run answer r-one --task other blue":                 `{"task":"other","text":"blue"}`, // the service says that there is none
	} {
		body = ""
		if status, out, errs := at(t, socket, line); status != 0 || body != want {
			t.Errorf("%s: exit status %d, asked %s, want %s; %s%s", line, status, body, want, out, errs)
		}
	}
	// What is shown to be typed says it, too: it may be typed tomorrow.
	if _, out, errs := do(t, socket, "run", "show", "r-one"); !strings.Contains(out, "answer: bailiwick run answer r-one --task ask --attempt 2 --option N") {
		t.Errorf("%s%s", out, errs)
	}
}
