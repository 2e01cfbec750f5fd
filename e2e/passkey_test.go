package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// passkey enrols an authenticator in software and adds its operator key.
func (w *world) passkey(name string) (*softkey.Authenticator, seal.Key) {
	w.t.Helper()
	a, err := softkey.New(false)
	must(w.t, err)
	e, err := a.Enrol()
	must(w.t, err)
	text, err := json.Marshal(e)
	must(w.t, err)
	return a, w.addPasskey(name, text)
}

// pending waits for the one open pending decision.
func (w *world) pending() api.PendingDecision {
	w.t.Helper()
	for late := range polling(time.Minute) {
		var list []api.PendingDecision
		decode(w.t, w.must("decision", "list", "-o", "json"), &list)
		for _, l := range list {
			if l.State == api.PendingOpen {
				return l
			}
		}
		if late {
			w.t.Fatal("no decision is pending")
		}
	}
	panic("unreachable")
}

// touch signs a pending decision as the signing page does.
func (w *world) touch(a *softkey.Authenticator, l api.PendingDecision) (api.PendingDecision, error) {
	w.t.Helper()
	assertion, err := a.Assert([32]byte(l.Challenge))
	must(w.t, err)
	by := api.Assertion(assertion)
	return w.conn().Operator().SignPending(w.t.Context(), l.ID, api.PendingSignature{Assertion: &by})
}

// A passkey signs a decision that was submitted first, the evidence verifies offline, and
// each lie is refused by the service. Controls: the honest signature, and evidence whose
// trust file names other operators.
//
// proves R-B9, R-A7
func TestAPasskeyDecides(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	w.upRuns()
	w.downAtEnd()
	first := w.trust()
	a, key := w.passkey("ann")
	w.must("principal", "add", "agent:claude")

	decided := make(chan done, 1)
	go func() {
		decided <- w.try("ceiling", "set", "agent:claude", "stateful", "--passkey", "--reason", "ticket 12", "-o", "json")
	}()
	l := w.pending()
	shown := w.must("decision", "show", string(l.ID))
	for _, want := range []string{"Consent to agent:claude acting up to the tier STATEFUL", "ticket 12", "challenge"} {
		if !strings.Contains(shown, want) {
			t.Errorf("decision show lacks %q: %s", want, shown)
		}
	}
	for name, lie := range map[string]func(*softkey.Authenticator){
		"another origin":    func(a *softkey.Authenticator) { a.Origin = "http://localhost:8471" },
		"another port":      func(a *softkey.Authenticator) { a.Origin = "http://sign.bailiwick.localhost:1" },
		"another rpId":      func(a *softkey.Authenticator) { a.RPID = "localhost" },
		"another challenge": func(a *softkey.Authenticator) { a.Challenge = &[32]byte{} },
		"synced":            func(a *softkey.Authenticator) { a.Flags = 0x0d },
		"no verification":   func(a *softkey.Authenticator) { a.Flags = 0x01 },
	} {
		liar := *a
		lie(&liar)
		if _, err := w.touch(&liar, l); api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.Count = 10
	signed, err := w.touch(a, l)
	if err != nil || signed.Receipt == nil {
		t.Fatal(signed, err)
	}
	if d := <-decided; d.status != 0 || !strings.Contains(d.stdout, `"auditEntry"`) {
		t.Fatalf("ceiling set: %s", d)
	}
	if said := w.must("audit", "list", "--kind", "operator.recorded"); !strings.Contains(said, string(key.ID)) {
		t.Errorf("the log does not name %s: %s", key.ID, said)
	}

	inForce := w.must("decision", "show", strconv.FormatUint(signed.Receipt.Number, 10))
	wantIn(t, "decision show", inForce, "Consent to agent:claude acting up to the tier STATEFUL", "ticket 12", string(key.ID)+` "ann", passkey`, fmt.Sprintf("log entry #%d", signed.Receipt.AuditEntry), fmt.Sprintf("%x", l.Challenge))
	if d := w.try("decision", "show", "999"); d.status == 0 || !strings.Contains(d.stderr, "no decision 999: the newest is") {
		t.Errorf("a decision that does not exist: %s", d)
	}

	// A copied authenticator.
	go func() { decided <- w.try("ceiling", "set", "agent:claude", "reversible", "--passkey") }()
	l = w.pending()
	copied := *a
	copied.Count = 3
	if _, err := w.touch(&copied, l); err == nil || !strings.Contains(err.Error(), "counter did not rise") {
		t.Errorf("a copied authenticator: %v", err)
	}
	if d := <-decided; d.status == 0 || !strings.Contains(d.stderr, "counter did not rise") {
		t.Errorf("ceiling set: %s", d)
	}

	// One passkey alone signs nothing irreversible: a key of a file has to.
	go func() { decided <- w.try("ceiling", "set", "agent:claude", "irreversible", "--passkey") }()
	l = w.pending()
	if _, err := w.touch(a, l); err == nil || !strings.Contains(err.Error(), "one passkey alone") {
		t.Errorf("irreversible: %v", err)
	}
	<-decided
	w.must("ceiling", "set", "agent:claude", "irreversible")

	// Further signatures come of files: decision sign.
	go func() { decided <- w.try("ceiling", "set", "agent:claude", "observe", "--passkey") }()
	l = w.pending()
	w.must("decision", "sign", string(l.ID))
	if d := <-decided; d.status != 0 {
		t.Errorf("decision sign: %s", d)
	}

	// The evidence of a run has all of it, and verifies by the first trust file.
	w.write("run.yaml", "id: one\nsource: {name: repo}\ntasks:\n  - {id: build, subagent: look}\n", 0o644)
	w.must("run", "submit", w.path("run.yaml"), "-q")
	if got := w.awaitSettled("one"); got.State != api.RunDone {
		t.Fatalf("run one is %s", got.State)
	}
	w.verifyEvidence("one")
	must(t, os.Remove(w.path("tmp", "one.evidence")))
	bundle := w.exported("one")
	verify := func(trust evidence.Trust) done {
		t.Helper()
		text, err := trust.Encode()
		must(t, err)
		w.write("trust.json", string(text), 0o644)
		return w.verifyOffline(bundle, "--trust", w.path("trust.json"))
	}
	if d := verify(first); d.status != 0 {
		t.Errorf("by the first trust file: %s", d)
	}
	other := first
	alone := seal.RootOf(key)
	other.Operators = &alone
	if d := verify(other); d.status != 1 || !strings.Contains(d.stdout, string(report.RowAuthorisation)) {
		t.Errorf("by other operators: %s", d)
	}
}
