package e2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// metered is a subagent with a model and limits. It does what its input says: ask makes
// one request to the model.
func metered(w *world) subagent {
	return subagent{name: "metered", more: "    model: local/small\n    limits: {tokens: 2000, cost: 4}\n    prompt: \"{{.do}}\"\n", script: `set -e
GATE=` + w.path("gate") + `
ask() { curl -sS --fail-with-body -H 'Content-Type: application/json' -d '{"model":"tiny-1","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}' "$BAILIWICK_MODEL_URL/v1/chat/completions"; }
question() { echo '{"question": "which?"}' > .bailiwick/question.json; exit; }
if [ -e inputs/resume.json ]; then ask; exit; fi
eval "$(cat inputs/prompt.md)"`}
}

// spends is a world whose agents use a model under a budget of their grant.
func spends(t *testing.T) (*world, *scriptmodel.Server) {
	t.Helper()
	model := &scriptmodel.Server{Script: scriptmodel.Say("Three words here.")}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	w := prepared(t, 0)
	w.runManifest(metered(w))
	w.write(serviceConfig, "version: 1\n"+w.metricsAt(), 0o644)
	w.meters(server.URL)
	w.upRuns()
	w.downAtEnd()
	return w, model
}

// meters adds a model and a budget to the manifest, and applies it.
func (w *world) meters(url string) {
	w.t.Helper()
	w.replace(manifest, "sources:\n", `models:
  - {name: local, api: openai-chat, endpoint: "`+url+`", levels: {small: tiny-1}, prices: {tiny-1: {input: 1000, output: 5000}}}
sources:
`)
	w.replace(manifest, "ceiling: reversible}", "ceiling: reversible, budget: {tokens: 5k, cost: 10usd}}")
	w.must("catalog", "apply", "-f", w.path(manifest))
}

// budgets lists what bailiwick budget says.
func (w *world) budgets(args ...string) (list []api.BudgetStatus) {
	w.t.Helper()
	decode(w.t, w.must(append([]string{"budget", "-o", "json"}, args...)...), &list)
	return list
}

// wantSpent fails the test unless the budget of its grant has exactly what the model
// sent, and so many reservations of the limits of metered.
func (w *world) wantSpent(when string, model *scriptmodel.Server, less api.Tokens, reserved int64) {
	w.t.Helper()
	sum, _, _ := model.Sent()
	total, output := sum.Total()-less.Total(), sum.Output-less.Output
	for _, s := range w.budgets("list") {
		if string(s.Principal) != w.me() {
			continue
		}
		cost := api.Cost((total-output)*1000 + output*5000)
		if s.Spent.Tokens != total || s.Spent.Cost != cost || s.Reserved.Tokens != 2000*reserved || s.Reserved.Cost != api.Cost(4_000_000*reserved) || s.Left.Tokens != 5000-s.Spent.Tokens-s.Reserved.Tokens || s.Renews.IsZero() {
			w.t.Errorf("%s: %+v, the model sent %d tokens for %s", when, s, total, cost)
		}
		return
	}
	w.t.Errorf("%s: no budget of %s", when, w.me())
}

// What agents use of a model is reserved at its limit and settled by what the broker
// counted; who has no room learns what is left, when it is new again and who can raise
// it, on each way in, and a task waits for it. A question settles, its answer reserves again. Each principal has
// a balance of its own.
//
// proves R-O11
func TestABudgetOfAMeteredModel(t *testing.T) {
	t.Parallel()
	w, model := spends(t)
	run := func(do string) []string { return []string{"--source", "repo", "--set", "do=" + do} }
	dispatch := func(do string) string {
		return strings.TrimSpace(w.must(append([]string{"dispatch", "run", "metered", "-o", "name"}, run(do)...)...))
	}
	first := dispatch("ask")
	w.wantSpent("after one request", model, api.Tokens{}, 0)
	if out := w.must("budget", "show", string(w.budgets("list")[0].Grant)); !strings.Contains(out, "5000 tokens, 10usd") || !strings.Contains(out, " tokens, 0.0") {
		t.Errorf("budget show:\n%s", out)
	}

	// Two wait with their reservations; a third has no room.
	waits := "touch begun; ask; until ls $GATE | grep -qx go; do sleep 0.05; done; ask"
	var held []string
	for range 2 {
		id := w.detached(append([]string{"metered"}, run("echo begun; "+waits)...)...)
		w.awaitLog(id, "begun")
		held = append(held, id)
	}
	spent := w.budgets("list")[0].Spent
	facts := []string{
		"budget of grant", "tokens: ", fmt.Sprintf("%d of 5000 spent, 4000 reserved by attempts that have not ended, %d left", spent.Tokens, 1000-spent.Tokens),
		"this attempt may use 2000", "new again at ", "T00:00:00Z", "to raise it, change budget.tokens of grant", "bailiwick.yaml",
	}
	w.refused(1, append(facts, "bailiwick budget list"), append([]string{"dispatch", "run", "metered"}, run("ask")...)...)
	s := w.mcp(mcpJune)
	s.refused(api.CodeThrottled, append(facts, "try again when an attempt has ended"), "bailiwick_dispatch", members{"subagent": "metered", "source": members{"name": "repo"}, "input": members{"do": "ask"}})
	waiting := w.submit(planned("no-room", shellTask("a", "ask", as("metered"))))
	w.awaitEvent(waiting, event("task.started", "a"))
	all := w.metrics()
	for series, want := range map[string]float64{`reserved{currency="",grant="%s",of="tokens"}`: 4000, `limit{currency="usd",grant="%s",of="cost"}`: 10, `spent{currency="",grant="%s",of="tokens"}`: float64(spent.Tokens)} {
		if got, ok := all["bailiwick_budget_"+fmt.Sprintf(series, w.budgets("list")[0].Grant)]; !ok || got != want {
			t.Errorf("the metric %s is %v, want %v", series, got, want)
		}
	}
	w.open("go")
	for _, id := range held {
		wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	}
	if r := w.awaitSettled(waiting); r.State != api.RunDone {
		t.Errorf("the task that waited for the budget: %+v", r)
	}
	w.wantSpent("after all have ended", model, api.Tokens{}, 0)

	// A question settles its attempt; the answer is an attempt with its own reservation.
	asked := w.submit(planned("asks", shellTask("a", "ask; question", as("metered"))))
	w.awaitEvent(asked, event("task.waiting", "a"))
	w.wantSpent("while it waits for an answer", model, api.Tokens{}, 0)
	w.must("run", "answer", string(asked), "--task", "a", "this")
	if run := w.awaitSettled(asked); run.State != api.RunDone {
		t.Errorf("%+v", run)
	}
	w.wantSpent("after the answer", model, api.Tokens{}, 0)

	// Another principal spends nothing of it, and sees only its own.
	before, _, _ := model.Sent()
	w.admit("agent:ann")
	token, err := os.ReadFile(w.tokenFile("agent:ann"))
	must(t, err)
	ann := w.runtime(strings.TrimSpace(string(token)), nil)
	_, err = ann.Submit(t.Context(), request(t, planned("hers", shellTask("a", "ask", as("metered")))))
	must(t, err)
	w.awaitSettled("hers")
	after, _, _ := model.Sent()
	hers := api.Tokens{Input: after.Total() - after.Output - before.Total() + before.Output, Output: after.Output - before.Output}
	w.wantSpent("after a run of another principal", model, hers, 0)
	list, err := ann.Budgets(t.Context(), api.BudgetFilter{})
	if err != nil || len(list) != 1 || list[0].Principal != "agent:ann" || list[0].Spent.Tokens != hers.Total() || hers.Total() == 0 {
		t.Errorf("%v %+v, she used %+v", err, list, hers)
	}

	// A worker that is killed has spent all that it reserved.
	id := w.detached(append([]string{"metered"}, run("ask; echo begun; sleep 600")...)...)
	w.awaitLog(id, "begun")
	for _, pid := range w.workers() {
		kill(t, pid)
	}
	wantEnd(t, w.awaitEnd(id), api.EventFailed, api.ReasonLost)
	for _, s := range w.budgets("list") {
		if string(s.Principal) == w.me() && (s.Spent.Tokens != before.Total()+2000 || s.Reserved.Tokens != 0) {
			t.Errorf("a killed worker: %+v", s)
		}
	}
	for _, id := range []string{first, held[0], id} {
		w.verifyEvidence(id)
	}
	for _, id := range []string{"asks", "hers"} {
		w.verifyEvidence(id)
	}
	w.must("audit", "verify", "--log")
}

// A service that is killed between the reservation and the settlement settles after its
// restart, once, what the broker counted.
//
// proves R-O11, R-O6
func TestAKillBetweenReserveAndSettle(t *testing.T) {
	t.Parallel()
	model := &scriptmodel.Server{Script: scriptmodel.Say("Three words here.")}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	k := newTrial(t, 0, *seedFlag)
	k.mkdir("gate")
	k.manifest(metered(k.world))
	k.meters(server.URL)
	k.flags = []string{"--orchestrator"}
	k.up(func() {})
	for i, at := range []failpoint.Name{failpoint.AcceptCommitted, failpoint.StartCommitted, failpoint.EndCommit, failpoint.EndCommitted} {
		id := api.RunID(fmt.Sprintf("killed-%d", i))
		s := k.current()
		k.arm(fmt.Sprintf("%s 1 %s", at, failpoint.Kill))
		_, _ = k.conn().Runtime().Submit(t.Context(), request(t, planned(id, shellTask("a", "ask", as("metered"))))) // the answer may be lost
		<-s.ended
		k.up(func() {})
		if run := k.awaitSettled(id); run.State != api.RunDone {
			t.Errorf("%s: %+v", at, run)
		}
		k.wantSpent(string(at), model, api.Tokens{}, 0)
		k.verifyEvidence(string(id))
	}
	if _, _, turns := model.Sent(); turns != 4 {
		t.Errorf("%d answers of the model for 4 tasks", turns)
	}
}
