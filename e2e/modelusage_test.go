package e2e

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// What a dispatch used of its model is in its record, in the table of its run, in
// metrics, statement and evidence, as the broker counted it; whatever the agent says
// of it counts nothing. The report names an agent that never called its model.
//
// proves R-D3, R-A7
func TestUsageOfAModelIsShown(t *testing.T) {
	t.Parallel()
	model := &scriptmodel.Server{Script: scriptmodel.Say("Three words here.")}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	const ask = `body='{"model":"tiny-1","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}'
exec 3<>/dev/tcp/127.0.0.1/19514
printf 'POST /model/local/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:19514\r\nx-api-key: %s\r\nanthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s' "$BAILIWICK_MODEL_KEY" ${#body} "$body" >&3
cat <&3; mkdir -p outputs; echo '{"inputTokens": 999999, "cost": 1}' > outputs/usage.json`
	w := prepared(t, 0)
	w.runManifest(subagent{name: "asks-model", script: ask, more: "    model: local/small\n"}, subagent{name: "silent", script: "echo nothing", more: "    model: local/small\n"})
	w.replace(manifest, "sources:\n", `models:
  - {name: local, api: anthropic-messages, endpoint: "`+server.URL+`", levels: {small: tiny-1}, prices: {tiny-1: {input: 1000, output: 5000}}}
sources:
`)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()
	id := w.submit(planned("work", api.PlanTask{ID: "a", Subagent: "asks-model"}, api.PlanTask{ID: "b", Subagent: "asks-model"}, api.PlanTask{ID: "c", Subagent: "silent"}))
	w.must("run", "wait", string(id))
	sum, _, _ := model.Sent()
	var run api.Run
	decode(t, w.must("run", "show", string(id), "-o", "json"), &run)
	if len(run.Usage) != 1 || sum.Total() == 0 || run.Usage[0].Tokens != sum || run.Usage[0].Requests != 2 || run.Usage[0].Cost != api.Cost((sum.Total()-sum.Output)*1000+sum.Output*5000) {
		t.Errorf("the run used %+v, the model sent %+v", run.Usage, sum)
	}
	text := w.must("run", "show", string(id))
	if !strings.Contains(text, "COST") || !strings.Contains(text, "2 requests, 2 turns") || strings.Count(text, " usd") != 4 {
		t.Errorf("%s", text)
	}
	for i := range run.Tasks {
		task, want := &run.Tasks[i], "1 request, 1 turn, "
		if task.Task == "c" {
			want = "made no request to its model"
		}
		if text := w.must("dispatch", "show", string(task.DispatchID)); !strings.Contains(text, want) || strings.Contains(text, "999999") {
			t.Errorf("task %s: want %q:\n%s", task.Task, want, text)
		}
		d := w.show(string(task.DispatchID))
		if u := d.Outcome.Usage.Model; u == nil || len(task.Usage) != 1 || task.Usage[0] != *u {
			t.Errorf("task %s: the run says %+v, the dispatch %+v", task.Task, task.Usage, u)
		}
	}
	if r := w.verifyEvidence(string(id)); r.Ran.Work[0].Model != "tiny-1" || r.Ran.Work[0].Usage == nil || r.Ran.Work[0].Usage.Requests != 1 {
		t.Errorf("the report says %+v", r.Ran.Work[0])
	}
}
