package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

const (
	cutScript = `for i in 1 2; do curl -s --max-time 20 -d '{"model":"tiny-1","max_tokens":50,"messages":[]}' "$BAILIWICK_MODEL_URL/v1/chat/completions" || true; done > /dev/null; echo done`
	cutMore   = "    model: local/small\n    limits: {tokens: 4000, cost: 8}\n    prompt: x\n"
)

// meterTrial gives the grant of a trial a budget that it never uses up, and a model that
// cuts each connection instead of answering.
func (k *trial) meterTrial() {
	k.t.Helper()
	model := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	k.t.Cleanup(model.Close)
	k.replace(manifest, "sources:\n", `models:
  - {name: local, api: openai-chat, endpoint: "`+model.URL+`", levels: {small: tiny-1}, prices: {tiny-1: {input: 1000, output: 5000}}}
sources:
`)
	k.replace(manifest, "ceiling: reversible}", "ceiling: reversible, budget: {dispatches: 1M, tokens: 1G, cost: 100000usd}}")
}

// wrongBudgets checks that each attempt settles once what it reserved of each budget,
// and the whole reservation if requests to its model were not counted, or its worker
// left no result.
func (s *story) wrongBudgets(say func(string, ...any)) {
	type key struct {
		attempt int
		budget  string
	}
	reserved, settled := map[key]api.Spend{}, map[key]int{}
	for _, e := range s.entries {
		ended, end := endEvent(e.Kind)
		for _, b := range e.Detail.Budgets {
			k := key{e.Attempt, b.Budget}
			if !end {
				reserved[k] = b.Reserved
				continue
			}
			settled[k]++
			most := reserved[k]
			whole := len(s.did(e.Attempt, failpoint.WorkerAgent)) > 0 && (ended == api.EventFinished || e.Detail.Reason == string(api.ReasonLost))
			if s.kind.uncounted > 0 && whole && (b.Spent.Tokens != most.Tokens || b.Spent.Cost != most.Cost) {
				say("UNTRUE: attempt %d has uncounted requests, reserved %+v of %s and spent %+v", e.Attempt, most, b.Budget, b.Spent)
			}
			if b.Spent.Tokens > most.Tokens || b.Spent.Cost > most.Cost {
				say("UNTRUE: attempt %d reserved %+v of %s and spent %+v", e.Attempt, most, b.Budget, b.Spent)
			}
		}
	}
	for k := range reserved {
		if settled[k] != 1 {
			say("LOST or DOUBLED: attempt %d settled %s %d times", k.attempt, k.budget, settled[k])
		}
	}
	for k := range settled {
		if _, ok := reserved[k]; !ok {
			say("UNTRUE: attempt %d settled %s without a reservation", k.attempt, k.budget)
		}
	}
	if r := s.record; r.State == api.EventFinished && s.kind.uncounted > 0 && (r.Outcome == nil || r.Outcome.Usage.Model == nil || r.Outcome.Usage.Model.Uncounted != s.kind.uncounted) {
		say("UNTRUE: its agent made %d requests that were not counted, and its result does not say so: %+v", s.kind.uncounted, r.Outcome)
	}
}

// The positive control of the check of budgets: it reports each planted fault.
//
// proves R-O11
func TestKillChecksDetectFaultsOfBudgets(t *testing.T) {
	t.Parallel()
	at := func(kind string, reserved, spent int64) entry {
		e := entry{Kind: kind, Attempt: 1}
		e.Detail.Budgets = append(e.Detail.Budgets, struct {
			Budget   string    `json:"budget"`
			Reserved api.Spend `json:"reserved"`
			Spent    api.Spend `json:"spent"`
		}{"grant g", api.Spend{Tokens: reserved}, api.Spend{Tokens: spent}})
		return e
	}
	accepted, finished := at("dispatch.accepted", 2000, 0), at("dispatch.finished", 0, 2000)
	for name, c := range map[string]struct {
		entries   []entry
		uncounted int64
		want      string
	}{
		"good":                {[]entry{accepted, finished}, 2, ""},
		"settled as counted":  {[]entry{accepted, at("dispatch.finished", 0, 100)}, 2, "UNTRUE: attempt 1 has uncounted"},
		"more than reserved":  {[]entry{accepted, at("dispatch.finished", 0, 2001)}, 2, "UNTRUE: attempt 1 reserved"},
		"never settled":       {[]entry{accepted}, 2, "LOST or DOUBLED"},
		"settled twice":       {[]entry{accepted, finished, finished}, 2, "LOST or DOUBLED"},
		"never reserved":      {[]entry{finished}, 2, "without a reservation"},
		"a request forgotten": {[]entry{accepted, finished}, 1, "does not say so"},
	} {
		s := &story{id: "d", kind: kind{uncounted: 2}, entries: c.entries, hits: []hit{{name: failpoint.WorkerAgent, subject: "d/1"}}}
		s.record = &api.Dispatch{State: api.EventFinished, Outcome: &api.ResultSummary{Usage: api.Usage{Model: &api.ModelUsage{Uncounted: c.uncounted}}}}
		var bad []string
		s.wrongBudgets(func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) })
		if c.want == "" && len(bad) > 0 || c.want != "" && !strings.Contains(strings.Join(bad, "\n"), c.want) {
			t.Errorf("%s: %q, want %q", name, bad, c.want)
		}
	}
}
