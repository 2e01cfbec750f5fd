package runverbs

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// An answer names the dispatch and the attempt whose question is open when it is
// given, so that it reaches no other question if it arrives late or twice.
//
// proves R-D7
func TestAnswersPinTheQuestion(t *testing.T) {
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
		"run answer r-one --task other blue":                 `{"task":"other","text":"blue"}`, // the service refuses it
	} {
		body = ""
		if status, out, errs := at(t, socket, line); status != 0 || body != want {
			t.Errorf("%s: exit status %d, requested %s, want %s; %s%s", line, status, body, want, out, errs)
		}
	}
	// The suggested command names the attempt too: it may be typed tomorrow.
	if _, out, errs := do(t, socket, "run", "show", "r-one"); !strings.Contains(out, "answer: bailiwick run answer r-one --task ask --attempt 2 --option N") {
		t.Errorf("%s%s", out, errs)
	}
}

// Without --task the answer goes to the only task that asks. Where several ask,
// or none does, nothing is sent.
func TestAnswerNeedsNoTaskWhileOneAsks(t *testing.T) {
	var sent []string
	asking := func(tasks ...api.TaskID) string {
		s := newRunService(api.RunTask{Task: "idle", State: api.TaskWaiting, Subagent: "edit"})
		for _, id := range tasks {
			s.run.Tasks = append(s.run.Tasks, api.RunTask{Task: id, State: api.TaskWaiting, Asks: true, Subagent: "edit", DispatchID: api.DispatchID("d-" + id)})
		}
		s.run.State = api.RunWaiting
		s.steer = func(_ string, b []byte) (any, error) {
			sent = append(sent, strings.TrimSpace(string(b)))
			return s.run, nil
		}
		return s.serve(t)
	}
	if status, _, errs := at(t, asking("one"), "run answer r-one yes"); status != 0 || len(sent) != 1 || sent[0] != `{"task":"one","dispatchId":"d-one","text":"yes"}` {
		t.Errorf("status %d, sent %v, %s", status, sent, errs)
	}
	sent = nil
	if status, _, errs := at(t, asking("one", "two"), "run answer r-one yes"); status != 1 || !strings.Contains(errs, "2 tasks of run r-one ask: one, two") || !strings.Contains(errs, "--task") {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, _, errs := at(t, asking(), "run answer r-one yes"); status != 1 || !strings.Contains(errs, "has no open question") {
		t.Errorf("status %d, %s", status, errs)
	}
	if len(sent) > 0 {
		t.Errorf("sent %v", sent)
	}
}
