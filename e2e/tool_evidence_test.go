package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Evidence about an agent that calls tools of a real server, one with an approval, shows
// each call and who approved it, compares the arguments and answers, and is refused where
// a call, a vote or what was approved is missing. The service finds the same.
//
// proves R-G4, R-G6, R-A7
func TestEvidenceShowsToolCallsAndApprovals(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		c := newCounter(t)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.init()
		w.manifest(subagent{name: "works", script: toolScript + `
call counter_add 1; call tell 2; call counter_secret 3
call counter_sign 4; call report 5
echo two > a.txt`})
		w.replace(manifest, "roles: [transform, quality]", "roles: [transform, quality]\n"+strings.Replace(c.tools(), "wait: 1s", "wait: 20s", 1))
		w.replace(manifest, "ceiling: reversible}", "ceiling: reversible, approve: [transform], approveOwn: true}")
		w.must("catalog", "plan", "--pin", "--connect", "-f", w.path(manifest))
		w.must("catalog", "apply", "--connect", "-f", w.path(manifest))
		w.up()
		id := w.detached("works", "--source", "repo")
		var waiting []api.ApprovalView
		for late := range polling(time.Minute) {
			if len(waiting) != 0 {
				break
			}
			if late {
				t.Fatal("no call waits for an approval")
			}
			must(t, json.Unmarshal([]byte(w.must("approval", "list", "-o", "json")), &waiting))
		}
		w.must("approval", "approve", string(waiting[0].Action.ID))
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFinished, "")
		if d.Calls == nil || d.Calls.Record == nil || d.Calls.Allowed < 4 || d.Calls.Denied < 1 || c.total("sign") != 1 {
			t.Errorf("%+v, %d signed", d.Calls, c.total("sign"))
		}
		r := w.verifyEvidence(id, "--with-blobs")
		text := r.Text()
		for _, words := range []string{
			"1 approved by people before", "pass  tool calls", "are those in the log", "approved a call of counter/sign by dispatch " + id,
		} {
			if !strings.Contains(text, words) {
				t.Errorf("%q is not in\n%s", words, text)
			}
		}
		must(t, os.Remove(w.path("tmp", id+".evidence")))
		w.must("audit", "verify", "--log")
		if log := w.must("audit", "list", "--kind", "evidence.refused", "-o", "jsonl"); strings.Contains(log, "evidence.refused") {
			t.Errorf("the service refuses its own evidence: %s", log)
		}
	})
}
