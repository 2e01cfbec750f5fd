package e2e

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// moods is a model whose answer depends on what it is asked.
func moods(t *scriptmodel.Turn) scriptmodel.Reply {
	const words = "the words of the model"
	say := scriptmodel.Say(words)
	switch asked := t.Items[len(t.Items)-1].Text; asked {
	case "be overloaded once":
		return scriptmodel.Fail(1, 529, "1", say)(t)
	case "be overloaded":
		return scriptmodel.Fail(99, 529, "", say)(t)
	case "break off":
		return scriptmodel.Cut(99, 150, say)(t)
	case "be slow":
		return scriptmodel.Slow(200*time.Millisecond, say)(t)
	case "never end":
		return scriptmodel.Endless(5 * time.Millisecond)(t)
	}
	return say(t)
}

// asker asks its model once, without retries of its own.
const asker = `set -e
curl -sS --fail-with-body -N -H 'Content-Type: application/json' -d '{"model":"scripted-1","stream":true,"messages":[{"role":"user","content":"'"$(cat inputs/prompt.md)"'"}]}' \
  "$BAILIWICK_MODEL_URL/v1/chat/completions" >a.txt`

// Faults of a model end an agent that has no retries of its own with a clear reason, its
// work and its usage so far kept, and a run retries it as its plan says. When a worker
// is killed, its broker is gone with it: the model's server sees the end of the request.
//
// proves R-D6, R-D8, R-O4
func TestFaultsOfAModelHaveAClearEnd(t *testing.T) {
	t.Parallel()
	m := &scriptmodel.Server{Script: moods}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	w := prepared(t, 0)
	const more = "    prompt: \"{{.do}}\"\n    model: local/small\n"
	w.runManifest(subagent{name: "asker", script: asker, more: more}, subagent{name: "patient", script: asker + " || sleep 60\n", more: more})
	w.replace(manifest, "version: 1\n", "version: 1\nmodels:\n  - {name: local, api: openai-chat, endpoint: \""+srv.URL+"\", levels: {small: scripted-1}}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()

	id := w.submit(planned("faults",
		shellTask("retried", "be overloaded once", as("asker"), retrying(3)),
		shellTask("given-up", "be overloaded", as("asker"), retrying(2)),
		shellTask("broken", "break off", as("asker"), retrying(1)),
		shellTask("slow", "be slow", as("asker")),
		shellTask("endless", "never end", as("asker"), within(4*time.Second)),
		shellTask("late", "be overloaded", as("patient"), within(4*time.Second)),
		shellTask("costly", `hi"}],"model":"costly-2","stop":["`, as("asker")),
	))
	run := w.awaitSettled(id)
	wantStates(t, run, "failed; retried done; given-up failed agent; broken failed agent; slow done; endless failed timeout; late failed timeout; costly failed agent")
	for name, want := range map[api.TaskID]struct {
		attempts int
		message  string
	}{
		"retried": {2, ""}, "slow": {1, ""}, "endless": {1, ""},
		"late":     {1, `timeout of 4s exceeded: the model "local" answered 529`},
		"given-up": {2, `the model "local" answered 529`},
		"broken":   {1, `the model "local" failed: the answer broke off`},
		"costly":   {1, `the broker refused a request: `},
	} {
		got := task(t, run, name)
		if got.Attempt != want.attempts || !strings.Contains(got.Message, want.message) {
			t.Errorf("task %s: attempt %d, %q", name, got.Attempt, got.Message)
		}
	}
	for _, e := range w.history(id) {
		if e.Event != "task.started" {
			continue
		}
		d := w.show(string(e.DispatchID))
		if d.Outcome == nil || d.Outcome.Usage.Model == nil || d.Outcome.Usage.Model.Requests != 1 || d.Outcome.Network == nil {
			t.Errorf("task %s: dispatch %s has usage and network %+v", e.Task, d.ID, d.Outcome)
		} else if e.Task == "endless" && d.Outcome.Usage.Model.Turns != 1 {
			t.Errorf("the endless answer: %+v", d.Outcome.Usage.Model)
		}
	}
	w.tryKilledWorker(m)
}

// tryKilledWorker kills a worker in the middle of an answer.
func (w *world) tryKilledWorker(m *scriptmodel.Server) {
	t := w.t
	t.Helper()
	before := len(m.Requests())
	id := w.detached("asker", "--source", "repo", "--set", "do=never end")
	awaitRequest(t, m, func(all []scriptmodel.Request) bool { return len(all) > before })
	for _, pid := range w.workers() {
		kill(t, pid)
	}
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFailed, api.ReasonLost)
	m.Wait() // the broker has ended with its worker
}
