package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// steering returns every steering call with a valid body.
func steering() map[string]string {
	return map[string]string{
		"/v1/operator/runs/r-1/cancel":      `{}`,
		"/v1/operator/runs/r-1/pause":       ``,
		"/v1/operator/runs/r-1/resume":      ``,
		"/v1/operator/runs/r-1/retry":       `{}`,
		"/v1/operator/runs/r-1/answer":      `{"task":"a","text":"yes"}`,
		"/v1/operator/queues/default/pause": ``, "/v1/operator/queues/default/resume": ``,
	}
}

// A caller by token steers nothing, even without an orchestrator, and the log has
// the attempt. The control is the account itself.
//
// proves R-T4
func TestACallerByTokenCannotSteerRuns(t *testing.T) {
	for _, h := range []*house{newHouse(t), newHouse(t, withRuns)} {
		steeredByToken(t, h)
	}
}

func steeredByToken(t *testing.T, h *house) {
	t.Helper()
	text, id := h.token("agent:claude", time.Hour)
	handle := h.session(text).Handle
	for path, body := range steering() {
		a := h.call("POST", path, body, api.SessionHeader, handle)
		e := a.err(t)
		if a.status != http.StatusForbidden || e.Code != api.CodeDenied || e.AuditEntry == nil {
			t.Errorf("%s by a token: %+v", path, a)
			continue
		}
		denials := h.logged(record.KindAccessDenied)
		if last := denials[len(denials)-1]; last.Seq != *e.AuditEntry || last.Entry.Token != id || last.Entry.Principal != "agent:claude" {
			t.Errorf("%s: the log has %+v", path, last)
		}
		if a := h.call("POST", path, body); a.status == http.StatusForbidden {
			t.Errorf("positive control: %s by the account: %+v", path, a)
		}
	}
}

// Without an orchestrator every call that starts or changes a run says so, after
// the same checks, and runs stay readable.
//
// proves R-O1
func TestAServiceWithoutAnOrchestratorSaysSo(t *testing.T) {
	h := newHouse(t)
	for call, body := range map[string]string{
		"POST /v1/runtime/runs": `{"plan":{}}`, "GET /v1/operator/queues": "", "POST /v1/operator/runs/r-1/cancel": `{}`,
		"POST /v1/operator/runs/r-1/pause": "", "POST /v1/operator/runs/r-1/retry": `{}`, "POST /v1/operator/runs/r-1/answer": `{"task":"a","text":"yes"}`,
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.call(method, path, body); a.status != http.StatusNotImplemented || a.err(t).Code != api.CodeNotConfigured || a.err(t).Hint == "" {
			t.Errorf("%s: %+v", call, a)
		}
	}
	if a := h.call("GET", "/v1/runtime/runs", ""); a.status != http.StatusOK || strings.TrimSpace(a.body) != "[]" {
		t.Errorf("the list of runs: %+v", a)
	}
	for _, path := range []string{"/v1/runtime/runs/r-1", "/v1/runtime/runs/r-1/events", "/v1/runtime/runs/r-1/plan"} {
		if a := h.call("GET", path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s of a run that does not exist: %+v", path, a)
		}
	}
	for call, body := range map[string]string{
		"POST /v1/runtime/runs": `{"plan":{},"more":1}`, "POST  /v1/runtime/runs": `{}`, "GET /v1/runtime/runs?limit=0": "",
		"GET /v1/runtime/runs/A": "", "GET /v1/runtime/runs/a%2Fb": "", "POST /v1/operator/queues/A/pause": "",
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.call(method, strings.TrimSpace(path), body); a.status != http.StatusBadRequest || a.err(t).Code != api.CodeInvalid || a.err(t).AuditEntry == nil {
			t.Errorf("%s: %+v", call, a)
		}
	}
}

// withRuns gives the house an orchestrator without a catalog.
func withRuns(h *house, cfg *Config) {
	runs, err := orchestrator.Open(h.t.Context(), orchestrator.Config{Store: h.store, Ledger: h.ledger, Dispatch: cfg.Dispatch, Now: h.now, Queues: map[api.Name]int{"wide": 20}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = runs.Close() })
	cfg.Runs, cfg.Reader = runs, runs
}

// Each call reaches the orchestrator, and its refusals are logged.
//
// proves R-O1
func TestCallsAboutRunsReachTheOrchestrator(t *testing.T) {
	h := newHouse(t, withRuns)
	for call, body := range map[string]string{
		"GET /v1/runtime/runs/r-1": "", "GET /v1/runtime/runs/r-1/events?wait=1ms": "", "GET /v1/runtime/runs/r-1/plan": "",
		"POST /v1/operator/runs/r-1/cancel": `{}`, "POST /v1/operator/runs/r-1/pause": "", "POST /v1/operator/runs/r-1/resume": "",
		"POST /v1/operator/runs/r-1/retry": `{}`, "POST /v1/operator/runs/r-1/answer": `{"task":"a","text":"x"}`,
		"POST /v1/operator/queues/none/pause": "", "POST /v1/operator/queues/none/resume": "",
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.call(method, path, body); a.status != http.StatusNotFound || a.err(t).Code != api.CodeNotFound {
			t.Errorf("%s about a missing object: %+v", call, a)
		}
	}
	for call, body := range map[string]string{
		"GET /v1/runtime/runs/r-1/events?wait=61s": "", "GET /v1/runtime/runs/r-1?limit=1001": "", "GET /v1/runtime/runs/r-1?after=" + strings.Repeat("x", 300): "",
		"POST /v1/operator/runs/r-1/answer": `{"text":"x"}`, "POST /v1/operator/runs/r-1/cancel": `{"tusk":"a"}`, "POST /v1/runtime/runs": `{"plan":{"tasks":[]}}`,
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.call(method, path, body); a.status != http.StatusBadRequest || a.err(t).Code != api.CodeInvalid {
			t.Errorf("%s: %+v", call, a)
		}
	}
	if a := h.call("GET", "/v1/runtime/runs", ""); a.body != "[]" {
		t.Errorf("no runs are %+v", a)
	}
	for verb, by := range map[string]api.Principal{"pause": "local:root", "resume": ""} {
		var q api.Queue
		a := h.call("POST", "/v1/operator/queues/wide/"+verb, "")
		if err := json.Unmarshal([]byte(a.body), &q); err != nil || q.Name != "wide" || q.Slots != 20 || verb == "pause" && q.PausedBy != by {
			t.Errorf("%s: %+v, %v", verb, a, err)
		}
	}
	var queues []api.Queue
	if a := h.call("GET", "/v1/operator/queues", ""); json.Unmarshal([]byte(a.body), &queues) != nil || len(queues) != 2 {
		t.Errorf("the queues are %+v", a)
	}
	if len(h.logged(record.KindQueuePaused)) != 1 || len(h.logged(record.KindQueueResumed)) != 1 {
		t.Error("who paused a queue is not in the log")
	}
	// Another account may not steer queues.
	for _, call := range []string{"GET /v1/operator/queues", "POST /v1/operator/queues/wide/pause"} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.elsewhere(64321, method, path, ""); a.status != http.StatusForbidden || a.err(t).AuditEntry == nil {
			t.Errorf("%s by another account: %+v", call, a)
		}
	}
}

// Only the submission of a plan may be as large as a plan.
func TestOnlyASubmittedPlanMayBeLarge(t *testing.T) {
	h := newHouse(t)
	long := func(n int) string { return `{"plan":{"id":"` + strings.Repeat("x", n) + `"}}` }
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/runtime/runs", long(api.MaxPlan), http.StatusNotImplemented}, // it was read: there is no orchestrator
		{"/v1/runtime/runs", long(int(api.CallRunSubmit.Spec().MaxBody)), http.StatusRequestEntityTooLarge},
		{"/v1/runtime/dispatches", long(int(api.CallRunCancel.Spec().MaxBody)), http.StatusRequestEntityTooLarge},
		{"/v1/operator/runs/r-1/cancel", long(int(api.CallRunCancel.Spec().MaxBody)), http.StatusRequestEntityTooLarge},
	} {
		if a := h.call("POST", c.path, c.body); a.status != c.status {
			t.Errorf("%s with %d bytes: %d %.200s", c.path, len(c.body), a.status, a.body)
		}
	}
}

// A response lists a bounded number of problems.
func TestAnAnswerListsABoundedNumberOfProblems(t *testing.T) {
	s := &Server{gate: newGate(time.Now, 0)}
	all := make([]api.Problem, 3*api.MaxProblems)
	for i := range all {
		all[i] = api.Problem{Path: "$", Message: "x"}
	}
	for n, want := range map[int]int{0: 0, 1: 1, api.MaxProblems: api.MaxProblems, len(all): api.MaxProblems} {
		w := httptest.NewRecorder()
		e := api.Errorf(api.CodeInvalid, "plan")
		e.Problems = all[:n]
		s.fail(w, &http.Request{}, caller{}, e)
		var told api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || len(told.Problems) != want || w.Code != http.StatusBadRequest {
			t.Errorf("of %d: %d listed, status %d, %v", n, len(told.Problems), w.Code, err)
		}
	}
}
