package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// The wait for answers that an agent left outstanding takes nothing of the time of its
// verify command, and budgets of wall time reserve and count it. After the time-out of
// the agent the wait is short. The control leaves no answer outstanding.
//
// proves R-O11, R-D8
func TestOutstandingAnswersTakeNothingOfVerify(t *testing.T) {
	t.Parallel()
	model := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		<-r.Context().Done()
	}))
	t.Cleanup(model.Close)
	w := prepared(t, 0)
	ask := `curl -s --max-time 1 -d '{"model":"tiny-1","max_tokens":50,"messages":[]}' "$BAILIWICK_MODEL_URL/v1/chat/completions" || true; echo asked; `
	more := func(timeout string) string {
		return "    model: local/small\n    limits: {tokens: 2000, cost: 4, timeout: " + timeout + "}\n    prompt: x\n    verify: {command: [\"true\"], timeout: 10s}\n"
	}
	w.runManifest(
		subagent{name: "leaves", more: more("1m"), script: ask},
		subagent{name: "exceeds", more: more("4s"), script: ask + "sleep 600"},
		subagent{name: "asks-nothing", more: more("1m"), script: "echo asked"},
	)
	w.meters(model.URL)
	w.replace(manifest, "tokens: 5k, cost: 10usd}", "wall: 10m}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()
	for _, name := range []string{"leaves", "exceeds", "asks-nothing"} {
		id := w.detached(name, "--source", "repo")
		want := time.Minute + 10*time.Second + time.Duration(record.DrainTime)
		if name == "exceeds" {
			want -= 56 * time.Second
		}
		if got := w.budgets("list")[0].Reserved.Millis; got != want.Milliseconds() {
			t.Errorf("%s reserves %d ms, want %d", name, got, want.Milliseconds())
		}
		before := w.budgets("list")[0].Spent.Millis
		d := w.awaitEnd(id)
		took := time.Duration(w.budgets("list")[0].Spent.Millis-before) * time.Millisecond
		switch u := d.Outcome.Usage.Model; {
		case name == "exceeds":
			wantEnd(t, d, api.EventFailed, api.ReasonTimeout)
			if u.Uncounted != 1 || took < 9*time.Second || took > time.Duration(record.DrainTime) {
				t.Errorf("%s: %+v, settled %s", name, u, took)
			}
		case d.State != api.EventFinished || d.Outcome.Verify == nil || !d.Outcome.Verify.Passed:
			t.Errorf("%s: %s %s: %s; verify %+v", name, d.State, d.Reason, d.Message, d.Outcome.Verify)
		case name == "leaves" && (u.Uncounted != 1 || took < time.Duration(record.DrainTime) || took > want):
			t.Errorf("%s: %+v, settled %s", name, u, took)
		case name == "asks-nothing" && (u.Uncounted != 0 || took > time.Duration(record.DrainTime)):
			t.Errorf("%s: %+v, settled %s", name, u, took)
		}
		w.verifyEvidence(id)
	}
}
