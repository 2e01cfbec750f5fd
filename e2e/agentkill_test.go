package e2e

import (
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// inTurn is an agent that makes requests which are refused before, between and after
// two requests to its model, and says its secret; then it asks. Answered, it asks its
// model again.
const inTurn = `set -e
refused() { exec 3<>/dev/tcp/127.0.0.1/19514; printf 'CONNECT evil%s.example:443 HTTP/1.1\r\nHost: evil%s.example:443\r\n\r\n' $1 $1 >&3; read -r line <&3; exec 3>&-; }
ask() { curl -sS --fail-with-body -N -H 'Content-Type: application/json' -d '{"model":"scripted-1","stream":true,"messages":[{"role":"user","content":"'"$1"'"}]}' "$BAILIWICK_MODEL_URL/v1/chat/completions"; }
if [ -e inputs/resume.json ]; then ask third; refused 4; echo "resumed with $TOKEN" | tee -a a.txt outputs/o.txt; exit; fi
refused 1
ask first
refused 2
ask second
refused 3
echo "it is $TOKEN"
echo two > b.txt
echo '{"question": "which?", "options": ["red", "blue"]}' > .bailiwick/question.json
`

// A worker whose service is killed while its model speaks works on: its broker has the
// values of its secrets, and nothing of usage, refused requests and log is missing
// afterwards. The next attempt reads the secrets again. The evidence is whole, also
// when its content has been removed.
//
// proves R-C3, R-D6, R-O6, R-A7
func TestAnAgentOutlivesItsServiceInMidTurn(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		const value, rotated, key, newKey = "the-value-of-the-token", "the-rotated-token", "key-of-the-first", "key-of-the-second"
		say := scriptmodel.Say("the words of the model")
		m := &scriptmodel.Server{Script: func(turn *scriptmodel.Turn) scriptmodel.Reply {
			if turn.Items[len(turn.Items)-1].Text == "first" {
				return scriptmodel.Slow(500*time.Millisecond, say)(turn)
			}
			return say(turn)
		}}
		srv := httptest.NewServer(m)
		t.Cleanup(srv.Close)
		w := newWorld(t, uid)
		w.downAtEnd()
		w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "one\n"})
		w.init()
		w.manifest(subagent{name: "speak", script: inTurn, more: "    model: local/small\n    requireModel: true\n"})
		w.withSecrets()
		w.replace(manifest, "\nsecrets:\n", "\nmodels:\n  - {name: local, api: openai-chat, endpoint: \""+srv.URL+"\", credential: {header: authorization, prefix: \"Bearer \", secret: key}, levels: {small: scripted-1}}\nsecrets:\n  - {name: key, ref: \"file:key\"}\n")
		w.must("catalog", "apply", "-f", w.path(manifest))
		w.retention("{content: {age: 1s}}")
		w.upCollected()
		w.secret("token", value)
		w.secret("key", key)

		id := w.detached("speak", "--source", "repo", "--env", "tokens")
		awaitRequest(t, m, func(all []scriptmodel.Request) bool { return len(all) > 0 })
		kill(t, w.status().PID)
		w.must("up")
		first := w.awaitAsking(id)
		if first.Attempt != 1 || len(m.Requests()) != 2 {
			t.Errorf("attempt %d, %d requests", first.Attempt, len(m.Requests()))
		}
		sent, _, turns := m.Sent()
		if u := first.Outcome.Usage.Model; u == nil || u.Tokens != sent || u.Turns != turns || u.Requests != 2 || turns != 2 {
			t.Errorf("the broker counted %+v, the model sent %+v in %d turns", u, sent, turns)
		}
		if logged, recorded := w.hostsRefused(id); !slices.Equal(logged, evils(3)) || !slices.Equal(recorded, evils(3)) {
			t.Errorf("the log has %q, the record %q", logged, recorded)
		}
		if log := w.must("dispatch", "logs", id); strings.Count(log, "words") < 2 || !strings.Contains(log, "it is [redacted]") {
			t.Errorf("the log of the agent:\n%s", log)
		}

		w.secret("token", rotated)
		w.secret("key", newKey)
		w.must("dispatch", "answer", id, "--option", "2", "-q")
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFinished, "")
		for i, want := range []string{key, key, newKey} {
			if got := m.Requests()[i].Key(); got != want {
				t.Errorf("request %d has the key %q", i+1, got)
			}
		}
		if log := w.must("dispatch", "logs", id); !strings.Contains(log, "resumed with [redacted]") {
			t.Errorf("the log of the second attempt:\n%s", log)
		}
		w.verifyEvidence(id, "--with-blobs")

		network := []api.Digest{d.Outcome.Network.Digest, first.Outcome.Network.Digest}
		for late := range polling(30 * time.Second) { // kept for a second
			if !slices.ContainsFunc(network, w.hasBlob) {
				break
			}
			if late {
				t.Fatalf("one of the network records %s is stored", network)
			}
			w.must("gc")
		}
		w.refused(1, []string{"the network record of dispatch " + id + " was removed at"}, "dispatch", "network", id)
		must(t, os.Remove(w.path("tmp", id+".evidence")))
		w.verifyEvidence(id, "--with-blobs")
		w.must("audit", "verify", "--log")
		if found := w.filesWith(value, rotated, key, newKey); len(found) > 0 {
			t.Errorf("a value is in %v", found)
		}
		must(t, os.WriteFile(w.path("tmp/planted"), []byte(rotated), 0o600))
		if found := w.filesWith(value, rotated, key, newKey); len(found) != 1 {
			t.Errorf("the control: the sweep finds %v", found)
		}
	})
}
