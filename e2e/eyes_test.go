package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Who submitted a run has the tokens of two other people, and cannot approve it with the
// key of the account, with one key for both, or with a further key of the account. An
// installation from before keys had principals takes no vote until one decision says whose
// each key is. Control: two people with own keys.
//
// takeover both modes, backup: no approve
// takeover both modes, one operator key: until approve
//
// proves R-P1
func TestOneKeyIsNotTwoPeople(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	if w.on == nil { // the setup of a machine writes principals
		d := w.exec("jq", "-cS", ".keys |= map(del(.principal))", w.path("data/bailiwick/operators.json"))
		w.write("data/bailiwick/operators.json", d.stdout, 0o644)
	}
	w.upRuns()
	w.downAtEnd()
	w.token("human:ann")
	w.token("human:bob")
	w.write("eyes.yaml", "id: eyes\nsource: {name: repo}\ntasks:\n  - {id: build, subagent: look}\n  - {id: ship, depends_on: [build], approval: {by: [\"human:ann\", \"human:bob\"], count: 2}}\n", 0o644)
	w.must("run", "submit", w.path("eyes.yaml"), "-q")
	id := w.awaitAsked("eyes", "ship")
	with := func(who, key string) []string {
		return []string{"approval", "approve", id, "--principal-token-file", w.tokenFile("human:" + who), "--key", key}
	}
	mine := w.path("config/bailiwick/operator.key")
	_, public := w.operatorKey("ann")

	key := string(w.operatorKeys().Keys[0].ID)
	if w.on == nil {
		w.refused(3, []string{"have no principals", "bailiwick operators assign"}, with("ann", mine)...)
		w.refused(1, []string{"has no principal", "bailiwick operators assign"}, "operators", "add", public, "--principal", "human:ann")
		wantIn(t, "operators list", w.try("operators", "list").stderr, "Nobody can vote about approvals", "bailiwick operators assign")
		wantIn(t, "doctor", w.try("doctor").stdout, "no key has a principal")
		w.refused(1, []string{"an AI has no operator key"}, "operators", "assign", key+"=agent:claude")
		wantIn(t, "operators assign", w.must("operators", "assign", key+"="+w.me()), "Set 2 is in force")
	}
	w.refused(1, []string{"belongs to " + w.me() + ", and never to another principal"}, "operators", "assign", key+"=human:ann")
	wantIn(t, "operators list", w.must("operators", "list"), w.me())

	w.must("operators", "add", public, "--principal", "human:ann")
	w.refused(3, []string{"no operator key belongs to human:bob", "--principal human:bob"}, with("bob", mine)...)
	_, public = w.operatorKey("bob")
	w.must("operators", "add", public, "--principal", "human:bob")
	for name, by := range map[string][]string{"the account's": with("ann", mine), "another person's": with("bob", w.path("home/ann.key")), "both": append(with("ann", mine), "--key", w.path("home/ann.key"))} {
		if d := w.try(by...); d.status != 1 || !strings.Contains(d.stderr, "a vote counts only under the voter's own key") {
			t.Errorf("%s: %+v", name, d)
		}
	}
	w.must(with("ann", w.path("home/ann.key"))...)
	w.refused(1, []string{"belongs to human:ann, not to human:bob"}, with("bob", w.path("home/ann.key"))...)
	if got := w.run("eyes"); got.State == api.RunDone {
		t.Errorf("the run is %s with one person", got.State)
	}
	w.must(with("bob", w.path("home/bob.key"))...)
	if got := w.awaitSettled("eyes"); got.State != api.RunDone {
		t.Errorf("the run is %s", got.State)
	}
	w.verifyEvidence("eyes")
	must(t, os.Remove(w.path("tmp", "eyes.evidence")))
}
