package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

// A person enrols a passkey in a browser, an operator adds it, and it signs a decision at
// the signing page, which shows exactly what is signed. The evidence verifies offline.
// Controls: a passkey that is no operator key, and evidence whose trust file names other
// operators.
//
// proves R-B9, R-A7
func TestAPersonSignsInABrowser(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	w.replace(manifest, "grants:\n", "grants:\n  - {principal: \"agent:claude\", subagents: [look], sources: [repo], targets: [local], ceiling: reversible}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()
	first := w.trust()
	token, _ := w.token("agent:claude")
	p := w.servePage("--sign-addr", "127.0.0.1:0")
	tab := p.open()
	tab.authenticator(members{"transport": "usb", "defaultBackupEligibility": false, "defaultBackupState": false})
	p.signIn(tab, p.sign)
	if got := tab.text("h1"); got != "Sign decisions" {
		t.Fatalf("after signing in: %q", got)
	}
	accessible := func() {
		t.Helper()
		tab.scheme("light")
		if found := tab.axe(); len(found) > 0 {
			t.Errorf("%s, light: %q", tab.text("h1"), found)
		}
		tab.scheme("dark")
		if found := tab.axeColours(); len(found) > 0 {
			t.Errorf("%s, dark: %q", tab.text("h1"), found)
		}
	}
	accessible()
	tab.visit(p.sign + "/enrol")
	accessible()
	tab.fill("#name", "ann")
	tab.click("#enrol")
	tab.await("document.getElementById('enrolment').value !== ''")
	var enrolment string
	tab.eval("document.getElementById('enrolment').value", &enrolment)

	decided := make(chan done, 1)
	submit := func(tier string) api.PendingDecision {
		go func() {
			decided <- w.try("ceiling", "set", "agent:claude", tier, "--passkey", "--reason", "<img src=x onerror=alert(1)>")
		}()
		l := w.pending()
		tab.visit(p.sign + "/" + string(l.ID))
		return l
	}
	// Before an operator adds it, the page has nothing to sign with.
	l := submit("reversible")
	if n := tab.count("#sign"); n != 0 {
		t.Error("a passkey that is no operator key may sign")
	}
	w.must("decision", "sign", string(l.ID))
	if d := <-decided; d.status != 0 {
		t.Fatalf("ceiling set: %s", d)
	}

	key := w.addPasskey("ann", []byte(enrolment))
	l = submit("stateful")
	for _, want := range []string{"Consent to agent:claude acting up to the tier STATEFUL", "<img src=x onerror=alert(1)>"} {
		if shown := tab.text("#text"); !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q: %s", want, shown)
		}
	}
	if shown := tab.text("#payload"); shown != string(l.Payload) {
		t.Errorf("the page shows %s, signed is %s", shown, l.Payload)
	}
	if n := tab.count("main img"); n != 0 {
		t.Error("a reason became an element")
	}
	accessible()
	tab.loads("sign", func() { tab.click("#sign") })
	tab.awaitText("#receipt", "log entry")
	if d := <-decided; d.status != 0 {
		t.Fatalf("ceiling set: %s", d)
	}
	if said := w.must("audit", "list", "--kind", "operator.recorded"); !strings.Contains(said, string(key.ID)) {
		t.Errorf("the log does not name %s: %s", key.ID, said)
	}
	// A task of a run of an AI waits for this account: it reads the action, and approves it.
	plan := `{"id":"one","source":{"name":"repo"},"tasks":[{"id":"build","subagent":"look"},{"id":"ship","depends_on":["build"],"approval":{"by":["` + w.me() + `"],"show":["build"]}}]}`
	_, err := w.conn().Runtime().With(w.exchange(token).Handle, nil).Submit(t.Context(), api.RunRequest{Plan: []byte(plan)})
	must(t, err)
	asked := w.awaitAsked("one", "ship")
	tab.visit(p.sign + "/")
	accessible()
	tab.loads("submit", func() { tab.click("[data-approval=" + asked + "] button") })
	for _, want := range []string{"approve the task below", asked} {
		if shown := tab.text("#text"); !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q: %s", want, shown)
		}
	}
	tab.loads("sign", func() { tab.click("#sign") })
	tab.awaitText("#receipt", "log entry")
	if got := w.awaitSettled("one"); got.State != api.RunDone {
		t.Fatalf("run one is %s", got.State)
	}
	// A page that shows another record than the one whose challenge it has signs nothing.
	submit("observe")
	tab.eval("document.getElementById('payload').textContent += ' '", nil)
	tab.click("#sign")
	tab.awaitText("#problem", "not that of the record shown")
	w.must("decision", "sign", string(w.pending().ID))
	<-decided

	bundle := w.exported("one")
	other := first
	alone := seal.RootOf(key)
	other.Operators = &alone
	for _, c := range []struct {
		trust  evidence.Trust
		status int
	}{{first, 0}, {other, 1}} {
		text, err := c.trust.Encode()
		must(t, err)
		w.write("auditor.json", string(text), 0o644)
		if d := w.verifyOffline(bundle, "--trust", w.path("auditor.json")); d.status != c.status {
			t.Errorf("want exit status %d: %s", c.status, d)
		}
	}
	p.quiet(tab)
}

// The signing page is read in light and dark colours, at 1000 and at 360 pixels, without a
// violation of axe-core; hostile text of a caller and of an agent is text on it; and without
// scripts it reads, says what to do instead, and submits votes.
func TestTheSigningPageReads(t *testing.T) {
	t.Parallel()
	w := newPeopledWorld(t)
	w.passkey("ann")
	p := w.servePage("--sign-addr", "127.0.0.1:0")
	tab := p.open()
	p.signIn(tab, p.sign)
	tier := api.Observe
	pending, err := w.conn().Operator().SubmitDecision(t.Context(), api.PendingRequest{Record: api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: "human:bob", Ceiling: &tier, Reason: plantedText + "\u202e"}})
	must(t, err)
	vote := func() (path string) {
		t.Helper()
		if status := tab.visit(p.sign + "/"); status != http.StatusOK {
			t.Errorf("the list has status %d", status)
		}
		tab.loads("the vote", func() { tab.click("[data-approval] button[value='approval.approve']") })
		return tab.value("location.pathname")
	}
	byScript := vote()
	tab.script(false)
	byForm := vote()
	for path, c := range map[string]struct {
		hostile bool     // it shows text of others
		says    []string // without scripts
	}{
		"/":                      {false, []string{string(pending.ID), "bailiwick decision list", "Enrol a passkey"}},
		"/enrol":                 {false, []string{"needs JavaScript", "bailiwick decision sign ID"}},
		"/" + string(pending.ID): {true, []string{"needs JavaScript", "bailiwick decision sign " + string(pending.ID), "bailiwick decision show " + string(pending.ID)}},
		byScript:                 {true, []string{"needs JavaScript", "bailiwick decision sign " + byScript[1:]}},
		byForm:                   {true, []string{"needs JavaScript", "bailiwick decision sign " + byForm[1:]}},
	} {
		for _, script := range []bool{true, false} {
			tab.script(script)
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int{1000, 360} {
					name := fmt.Sprintf("%s, %s, %d pixels, script %v", path, scheme, width, script)
					tab.scheme(scheme)
					tab.size(width, 750)
					if status := tab.visit(p.sign + path); status != http.StatusOK {
						t.Errorf("%s: status %d", name, status)
					}
					if n := tab.wide(); n > 0 {
						t.Errorf("%s: %d px wider than the window", name, n)
					}
					for _, found := range tab.planted() {
						t.Errorf("%s: %s", name, found)
					}
					if !script {
						continue
					}
					for _, v := range tab.axe() {
						t.Errorf("%s: %s", name, v)
					}
				}
			}
			text := tab.text("main")
			if c.hostile && !strings.Contains(text, "</script>") {
				t.Errorf("%s does not show the hostile text: the test shows nothing: %s", path, text)
			}
			if n := tab.count("#sign:enabled, #enrol:enabled"); (n > 0) != (script && path != "/") {
				t.Errorf("%s, script %v: %d buttons that need it", path, script, n)
			}
			if !script {
				wantIn(t, path, text, c.says...)
			}
		}
	}
	if len(tab.dialogs) > 0 {
		t.Errorf("dialogs: %q", tab.dialogs)
	}
	p.quiet(tab)
}

// addPasskey adds the operator key of an enrolment.
func (w *world) addPasskey(name string, enrolment []byte) (k seal.Key) {
	w.t.Helper()
	if !json.Valid(enrolment) {
		w.t.Fatalf("enrolment: %s", enrolment)
	}
	cmd := w.command(filepath.Join(bin, "bailiwick"), "operator", "passkey", "--name", name)
	cmd.Stdin = strings.NewReader(string(enrolment))
	public, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("operator passkey: %v", err)
	}
	w.write(name+".pub", string(public), 0o644)
	decode(w.t, string(public), &k)
	w.must("operators", "add", w.path(name+".pub"), "--principal", w.me())
	return k
}
