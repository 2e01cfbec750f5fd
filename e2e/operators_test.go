package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// operatorKey creates an operator key, home/NAME.key, that no set lists yet.
func (w *world) operatorKey(name string) (id, public string) {
	w.t.Helper()
	path := w.path("home", name+".key")
	id = strings.TrimSpace(w.must("operator", "keygen", "--key", path, "--name", name, "--insecure-unencrypted", "-o", "name"))
	return id, path + ".pub"
}

func (w *world) operatorKeys() (keys api.OperatorKeys) {
	w.t.Helper()
	decode(w.t, w.must("operators", "list", "-o", "json"), &keys)
	return keys
}

// A person's operator key is added, rotated and retired while the service runs. What the
// old key signed still verifies offline, from the first trust file; it signs nothing more.
// The threshold is raised, and a service with another operators.json does not start.
//
// proves R-B9, R-A7
func TestOperatorKeysAreRotatedWhileTheServiceRuns(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	w.upRuns()
	w.downAtEnd()
	w.token("human:bob")
	first := w.trust()
	mine := string(w.operatorKeys().Keys[0].ID)
	bob, public := w.operatorKey("bob")
	approve := func(run, key string) []string {
		t.Helper()
		if w.try("run", "show", run).status != 0 {
			w.write(run+".yaml", "id: "+run+"\nsource: {name: repo}\ntasks:\n  - {id: build, subagent: look}\n  - {id: ship, depends_on: [build], approval: {by: [\"human:bob\"]}}\n", 0o644)
			w.must("run", "submit", w.path(run+".yaml"), "-q")
		}
		return []string{"approval", "approve", w.awaitAsked(api.RunID(run), "ship"), "--principal-token-file", w.tokenFile("human:bob"), "--key", w.path("home", key+".key")}
	}
	done := func(run string) {
		t.Helper()
		if got := w.awaitSettled(api.RunID(run)); got.State != api.RunDone {
			t.Errorf("run %s is %s", run, got.State)
		}
		w.verifyEvidence(run)
		must(t, os.Remove(w.path("tmp", run+".evidence")))
	}

	w.refused(3, []string{"no operator key belongs to human:bob", "operators add FILE.pub --principal human:bob"}, approve("before", "bob")...)
	wantIn(t, "operators add", w.must("operators", "add", public, "--principal", "human:bob"), "Operator key "+bob+` of "bob" was added for human:bob. Set 2 is in force: 1 person of 2 keys must sign.`)
	w.must(approve("before", "bob")...)
	done("before")
	w.refused(1, []string{"already in force"}, "operators", "add", public, "--principal", "human:bob")
	w.refused(1, []string{"not the public half"}, "operators", "add", w.path("home/bob.key"), "--principal", "human:bob")

	next, public := w.operatorKey("bob2")
	w.must("operators", "rotate", bob, public, "--reason", "a new laptop")
	w.refused(1, []string{"key " + bob + " is retired since set 3"}, approve("after", "bob")...)
	w.refused(1, []string{"is retired since set 3"}, "operators", "add", w.path("home/bob.key.pub"), "--principal", "human:bob", "--key", w.path("home/bob.key"))
	w.refused(1, []string{"which set 3 retired"}, "operators", "add", w.path("home/bob.key.pub"), "--principal", "human:bob")
	w.must(approve("after", "bob2")...)
	done("after")
	done("before") // it has the votes of the retired key
	wantIn(t, "audit list", w.must("audit", "list", "--kind", "operator.recorded"), "set 3 of the operator keys in force: "+mine+", "+next+", 1 must sign", `"a new laptop"`)

	w.must("operators", "threshold", "2")
	w.refused(1, []string{"too few signatures: 1 of 2"}, "ceiling", "set", w.me(), "observe")
	w.refused(1, []string{"want 1 to 1"}, "operators", "retire", mine, "--key", w.path("home/bob2.key"), "--key", w.path("config/bailiwick/operator.key"))
	w.must("operators", "retire", mine, "--threshold", "1", "--key", w.path("home/bob2.key"), "--key", w.path("config/bailiwick/operator.key"))
	if w.unit != nil { // whose key is retired is no operator any more
		w.refused(3, []string{w.me() + " may not operator.read"}, "operators", "list")
		return
	}
	w.refused(1, []string{"the only one"}, "operators", "retire", next, "--key", w.path("home/bob2.key"))
	w.refused(1, []string{"is retired since set 5"}, "ceiling", "set", w.me(), "observe")
	list := w.must("operators", "list")
	wantIn(t, "operators list", list, "Set 5 is in force: 1 person of 1 key must sign each decision.")
	for id, want := range map[string]string{mine: "retired", bob: "retired", next: "in force"} {
		for line := range strings.Lines(list) {
			if strings.HasPrefix(line, id) != strings.Contains(line, id) || strings.HasPrefix(line, id) && !strings.Contains(line, want) {
				t.Errorf("%s: want %s: %q", id, want, line)
			}
		}
	}
	if got := strings.TrimSpace(w.must("operators", "list", "-o", "name")); got != next {
		t.Errorf("in force: %q", got)
	}
	wantIn(t, "doctor", w.try("doctor").stdout, "set 5 in force: 1 person of 1 operator key must sign", "operator.key is retired since set 5")

	w.must("down")
	root := w.path("data/bailiwick/operators.json")
	good, err := os.ReadFile(root)
	must(t, err)
	w.write("data/bailiwick/operators.json", string(append(w.rootOf(w.path("home/bob2.key")), '\n')), 0o644)
	w.refused(1, []string{"is not set 1 of the operator keys", "which put set 2 in force"}, "up")
	w.write("data/bailiwick/operators.json", string(good), 0o644)
	w.upRuns()
	w.refused(1, []string{"is retired since set 5"}, "ceiling", "set", w.me(), "stateful")
	w.must("ceiling", "set", w.me(), "stateful", "--key", w.path("home/bob2.key"))
	w.must(approve("later", "bob2")...)
	for _, run := range []string{"before", "after", "later"} {
		done(run)
	}

	// The auditor's first trust file verifies all; one that names other operators does not.
	text, err := first.Encode()
	must(t, err)
	w.write("first.json", string(text), 0o644)
	bundle := w.exported("later")
	if d := w.verifyOffline(bundle, "--trust", w.path("first.json")); d.status != 0 || !strings.Contains(d.stdout, "set 5 of their keys in force") {
		t.Errorf("by the first trust file: %s", d)
	}
	other := first
	newer, err := seal.ParseTrustRoot(w.rootOf(w.path("home/bob2.key")))
	must(t, err)
	other.Operators = &newer
	text, err = other.Encode()
	must(t, err)
	w.write("other.json", string(text), 0o644)
	if d := w.verifyOffline(bundle, "--trust", w.path("other.json")); d.status != 1 || !strings.Contains(d.stdout, string(report.RowAuthorisation)) {
		t.Errorf("by other operators: %s", d)
	}
}

// rootOf is an operators.json of one key, without a line feed.
func (w *world) rootOf(key string) []byte {
	w.t.Helper()
	k, err := seal.LoadPublic(key)
	must(w.t, err)
	b, err := seal.RootOf(k).Encode()
	must(w.t, err)
	return b[:len(b)-1]
}

// A service killed while it puts a set of operator keys in force has either the old set in
// force or the new one, as the log says; exactly one of the keys signs the next decision.
//
// proves R-B9, R-A2
func TestChangesOfOperatorKeysSurviveKills(t *testing.T) {
	for at, took := range map[failpoint.Name]bool{failpoint.DecideCommit: false, failpoint.DecideCommitted: true} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 11)
			k.up(func() {})
			before := k.operatorKeys()
			next, public := k.operatorKey("next")
			k.arm(string(at) + " 1 kill")
			if d := k.try("operators", "rotate", string(before.Keys[0].ID), public); d.status == 0 {
				t.Errorf("the service was not killed: %s", d)
			}
			<-k.current().ended
			k.arm()
			k.up(func() {})
			var after api.OperatorKeys
			must(t, k.insist(http.MethodGet, "/v1/operator/keys", nil, &after))
			set, good, bad := uint64(1), k.path("config/bailiwick/operator.key"), k.path("home/next.key")
			if took {
				set, good, bad = 2, bad, good
			}
			if after.Set != set || (len(after.Keys) == 2) != took {
				t.Errorf("after the kill: %+v", after)
			}
			k.refused(1, []string{"signed only by keys"}, "ceiling", "set", k.me(), "observe", "--key", bad)
			k.must("ceiling", "set", k.me(), "stateful", "--key", good)
			if !took {
				k.must("operators", "rotate", string(before.Keys[0].ID), public)
				k.must("ceiling", "set", k.me(), "observe", "--key", bad)
			}
			if keys := k.operatorKeys(); keys.Set != 2 || keys.Keys[1].ID != next {
				t.Errorf("at the end: %+v", keys)
			}
		})
	}
}
