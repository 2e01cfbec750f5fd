package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// steering is every call that steers runs or queues, with a body that is right.
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

// Whoever calls by a token steers nothing, also where there is nothing to steer,
// and the log says that it was tried; the account itself is told how things are.
//
// proves R-T4
func TestWhoCallsByATokenSteersNoRun(t *testing.T) {
	h := newHouse(t)
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
		if a := h.call("POST", path, body); a.err(t).Code != api.CodeNotConfigured {
			t.Errorf("positive control: %s by the account: %+v", path, a)
		}
	}
}

// A service without an orchestrator says so of every call about runs, and
// checks no less for it.
//
// proves R-O1
func TestAServiceWithoutAnOrchestratorSaysSo(t *testing.T) {
	h := newHouse(t)
	for call, body := range map[string]string{
		"POST /v1/runtime/runs": `{"plan":{}}`, "GET /v1/runtime/runs": "", "GET /v1/runtime/runs/r-1": "",
		"GET /v1/runtime/runs/r-1/events": "", "GET /v1/runtime/runs/r-1/plan": "", "GET /v1/operator/queues": "",
	} {
		method, path, _ := strings.Cut(call, " ")
		if a := h.call(method, path, body); a.status != http.StatusNotImplemented || a.err(t).Code != api.CodeNotConfigured || a.err(t).Hint == "" {
			t.Errorf("%s: %+v", call, a)
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

// Only a plan may be as long as a plan.
func TestOnlyAPlanIsAsLongAsAPlan(t *testing.T) {
	h := newHouse(t)
	long := func(n int) string { return `{"plan":{"id":"` + strings.Repeat("x", n) + `"}}` }
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/runtime/runs", long(api.MaxPlan), http.StatusNotImplemented}, // it was read: there is no orchestrator
		{"/v1/runtime/runs", long(maxRunBody), http.StatusRequestEntityTooLarge},
		{"/v1/runtime/dispatches", long(maxBody), http.StatusRequestEntityTooLarge},
		{"/v1/operator/runs/r-1/cancel", long(maxBody), http.StatusRequestEntityTooLarge},
	} {
		if a := h.call("POST", c.path, c.body); a.status != c.status {
			t.Errorf("%s with %d bytes: %d %.200s", c.path, len(c.body), a.status, a.body)
		}
	}
}

// However much is wrong with a plan, an answer lists so much of it and no more.
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
		s.fail(w, &http.Request{}, e)
		var told api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || len(told.Problems) != want || w.Code != http.StatusBadRequest {
			t.Errorf("of %d: %d listed, status %d, %v", n, len(told.Problems), w.Code, err)
		}
	}
}
