package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// approvalWorld has an agent that makes one call with hostile arguments, which a human
// approves, until it has an answer.
func approvalWorld(t *testing.T, uid int, own bool) *world {
	t.Helper()
	w := newWorld(t, uid)
	w.init()
	w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
roles:
  - {name: transform, description: Changes the warehouse.}
tools:
  - {command: change, description: Changes the schema., run: [bash, -c, "cat; echo changed"], input: {type: object}, roles: [transform], tier: stateful, approval: {wait: 2s}, trust: trusted}
subagents:
  - name: changer
    agent: command
    role: transform
    tier: stateful
    target: local
    command:
      - bash
      - -c
      - |
        for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
          out=$(curl -sS -m 60 -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2025-11-25' --data '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"change","arguments":{"sql":"dr\u043ep \u202etable\u200b x"}}}' http://127.0.0.1:19514/mcp)
          echo "$out"
          case $out in *changed*|*denied*) exit 0;; esac
        done
        exit 1
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
grants:
  - {principal: "%[1]s", subagents: [changer], targets: [local], ceiling: stateful, approve: [transform], approveOwn: %[2]v}
  - {principal: "agent:claude", subagents: [changer], targets: [local], ceiling: stateful}
`, w.me(), own), 0o644)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.up()
	w.must("ceiling", "set", w.me(), "stateful")
	return w
}

// asked waits for the request of a dispatch.
func (w *world) asked(id api.DispatchID) api.ApprovalView {
	w.t.Helper()
	for range polling(30 * time.Second) {
		list, err := w.conn().Runtime().Approvals(w.t.Context(), false)
		must(w.t, err)
		for _, v := range list {
			if v.Action.Dispatch == id {
				return v
			}
		}
	}
	w.t.Fatalf("dispatch %s asks for no approval:\n%s", id, w.try("dispatch", "logs", string(id)))
	return api.ApprovalView{}
}

// A human sees the whole call, approves it once, and the agent gets the answer; a denial
// is told to the agent. The log has each step, and what hides in the arguments is shown.
//
// proves R-G6
func TestAHumanApprovesACall(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := approvalWorld(t, uid, true)
		for _, verb := range []string{"approve", "deny"} {
			id := api.DispatchID(strings.TrimSpace(w.must("dispatch", "run", "changer", "--detach")))
			v := w.asked(id)
			name := string(v.Action.ID)
			if out := w.must("approval", "list"); !strings.Contains(out, name) || !strings.Contains(out, "open") {
				t.Errorf("list: %s", out)
			}
			shown := w.must("approval", "show", name)
			for _, want := range []string{`dr\u043ep \u202etable\u200b x`, "change", "transform", string(id), w.me(), "stateful", string(v.Digest), "bailiwick approval approve " + name} {
				if !strings.Contains(shown, want) {
					t.Errorf("show lacks %q:\n%s", want, shown)
				}
			}
			if out := w.must("waiting"); !strings.Contains(out, "bailiwick approval show "+name) {
				t.Errorf("waiting: %s", out)
			}
			if out := w.must("approval", verb, name, "--reason", "ticket 12"); !strings.Contains(out, string(v.Digest)) {
				t.Errorf("%s: %s", verb, out)
			}
			w.refused(1, nil, "approval", verb, name)
			d := w.must("dispatch", "logs", "-f", string(id))
			if strings.Contains(d, "changed") != (verb == "approve") || strings.Contains(d, "ticket 12") != (verb == "deny") {
				t.Errorf("%s: the agent got %s", verb, d)
			}
			if n := len(w.entries("--kind", "approval.requested", "--dispatch", string(id))); n != 1 {
				t.Errorf("%d requests", n)
			}
			if n := len(w.entries("--kind", "tool.called", "--dispatch", string(id))); (n == 1) != (verb == "approve") {
				t.Errorf("%s: %d calls", verb, n)
			}
		}
	})
}

// No AI votes, by the API directly either, and nobody votes about work of their own
// without approveOwn. Control: the other way round it counts.
//
// takeover both modes, AI client: no approve
//
// proves R-G6
func TestNoAIVotes(t *testing.T) {
	t.Parallel()
	w := approvalWorld(t, 0, false)
	token, _ := w.token("agent:claude")
	w.must("ceiling", "set", "agent:claude", "stateful")
	ai := w.runtime(token, nil)
	mine := api.DispatchID(strings.TrimSpace(w.must("dispatch", "run", "changer", "--detach")))
	own := w.asked(mine)
	if !strings.Contains(own.WhyNot, "own work") {
		t.Errorf("own work: %q", own.WhyNot)
	}
	w.must("dispatch", "cancel", string(mine))
	d, err := ai.Dispatch(t.Context(), api.DispatchRequest{Subagent: "changer"})
	must(t, err)
	v := w.asked(d.ID)
	seen, err := ai.Approval(t.Context(), v.Action.ID)
	if err != nil || seen.Head != nil || !strings.Contains(seen.WhyNot, "only people") {
		t.Errorf("the AI sees %+v %v", seen, err)
	}
	envelope := json.RawMessage(`{}`)
	if _, err := ai.Vote(t.Context(), v.Action.ID, envelope); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("the AI votes: %v", err)
	}
	if doc, err := canon.Marshal(v.Action); err != nil || api.DigestOf(doc) != v.Digest {
		t.Errorf("the action is not what is signed: %v", err)
	}
	w.must("approval", "approve", string(v.Action.ID))
	if out := w.must("dispatch", "logs", "-f", string(d.ID)); !strings.Contains(out, "changed") {
		t.Errorf("control: %s", out)
	}
}
