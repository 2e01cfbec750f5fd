package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// newOfficePage is an office whose page people reach, with a browser.
func newOfficePage(t *testing.T) (*office, *teamPage) {
	t.Helper()
	w := newOffice(t, "127.0.0.1")
	p := w.teamSettings("")
	settings, err := os.ReadFile(w.path("config/bailiwick/service.yaml"))
	must(t, err)
	w.must("down")
	w.away()
	w.users(strings.Replace(staff, `"groups": []`, `"groups": ["eng"]`, 1))
	w.redirects = []string{p.origin + "/login/callback"}
	w.provide()
	w.configure(strings.TrimPrefix(string(settings), "version: 1\n"))
	w.upRuns()
	b, err := os.ReadFile(w.path("tls.pem"))
	must(t, err)
	block, _ := pem.Decode(b)
	own, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	sum := sha256.Sum256(own.RawSubjectPublicKeyInfo)
	p.pin += "," + base64.StdEncoding.EncodeToString(sum[:])
	p.command = w.pageProgram
	p.serve()
	return w, p
}

// atProvider leads a browser to the provider's form for a person.
func (w *office) atProvider(p *teamPage, tab *tab, who string) {
	w.t.Helper()
	if status := tab.visit(p.origin + "/budgets"); status != http.StatusUnauthorized {
		w.t.Errorf("without a session: status %d", status)
	}
	tab.loads("the provider", func() { tab.click("#oidc") })
	if at := tab.value("location.origin"); at != w.issuer {
		w.t.Fatalf("the browser is at %s:\n%s", at, tab.text("body"))
	}
	tab.fill("input[name=username]", who)
	tab.fill("input[name=password]", who[:1])
}

// signedIn opens a browser in which a person signed in with the team's account.
func (w *office) signedIn(p *teamPage, who string) *tab {
	w.t.Helper()
	tab := p.device()
	w.atProvider(p, tab, who)
	tab.click("button")
	tab.await("location.pathname === '/budgets' && document.readyState === 'complete'")
	if got := tab.text(".person"); got != "human:"+who {
		w.t.Fatalf("signed in as %q: %s", got, tab.text("body"))
	}
	return tab
}

// People sign in at the page with the account that their team's provider has of them: a real
// provider, the code flow with PKCE, in a browser. A subject that the catalog does not map gets no session
// and learns what to do. An answer of the provider opens a session in no other browser. Open
// sessions stay valid while the provider is away.
//
// proves R-D8, R-T4, R-P7
func TestPeopleSignInWithTheTeamsAccount(t *testing.T) {
	t.Parallel()
	w, p := newOfficePage(t)
	ann, eve, other := w.signedIn(p, "ann"), p.device(), p.device()
	ann.visit(p.origin + "/sessions")
	wantIn(t, "sessions", ann.text("main"), "human:ann", "oidc", "this one")

	w.atProvider(p, eve, "eve")
	eve.click("button")
	eve.await("location.pathname === '/login/callback' && document.readyState === 'complete'")
	wantIn(t, "a person without a principal", eve.text("main"), "Sign in", "eve")
	if eve.visit(p.origin+"/budgets") != http.StatusUnauthorized {
		t.Error("eve has a session")
	}
	wantIn(t, "the log", w.must("audit", "list", "--kind", "auth.refused"), "eve")

	// The answer to a login, in a browser that did not begin it.
	var answer string
	for _, r := range ann.sent() {
		if strings.HasPrefix(r.URL, p.origin+"/login/callback") {
			answer = r.URL
		}
	}
	if status := other.visit(answer); answer == "" || status != http.StatusBadRequest {
		t.Errorf("%q in another browser: status %d", answer, status)
	}
	wantIn(t, "another browser", other.text("main"), "not begun in this browser")

	w.away()
	if status := ann.visit(p.origin + "/budgets"); status != http.StatusOK || ann.text(".person") != "human:ann" {
		t.Errorf("an open session while the provider is away: status %d", status)
	}
}

// Two people in two browsers: whatever Bob sends to the paths that steer what is Ann's
// changes nothing of it, shows him nothing, and is an entry of the log. Of sessions he sees and
// ends his own. Control: each request by Ann has its effect.
//
// proves R-S2, R-D8
func TestASessionSteersOnlyItsPersonsWork(t *testing.T) {
	t.Parallel()
	w, p := newOfficePage(t)
	w.must("token", "create", "human:ann", "--out", w.path("home/ann.token"))
	opened, err := w.conn().Exchange(t.Context(), strings.TrimSpace(w.read("home/ann.token")))
	must(t, err)
	submit := func(id api.RunID, do string) api.RunID {
		t.Helper()
		run, err := w.conn().As(opened.Handle).Runtime().Submit(t.Context(), request(t, planned(id, shellTask("a", do))))
		must(t, err)
		return run.RunID
	}
	const question = `echo '{"question": "Which?"}' > .bailiwick/question.json`
	held := submit("held", "GATE="+w.path("gate")+"\n"+awaitGate("never"))
	asks, alone, failed := submit("asks", question), submit("alone", question), submit("failed", "exit 3")
	t.Cleanup(func() { w.try("stop", "--all") }) // an agent that waits would outlive the service
	running := w.begunTask(held, "a")
	w.awaitEvent(asks, event("task.waiting", "a"))
	w.awaitEvent(alone, event("task.waiting", "a"))
	asked := string(task(t, w.run(alone), "a").DispatchID)
	if got := w.awaitSettled(failed); got.State != api.RunFailed {
		t.Fatalf("the run is %s", got.State)
	}
	ann, bob := w.signedIn(p, "ann"), w.signedIn(p, "bob")
	post := func(tab *tab, path, form string) (status int) {
		t.Helper()
		tab.eval("fetch("+quoted(path)+", {method: 'POST', headers: {'Content-Type': 'application/x-www-form-urlencoded'}, body: "+quoted(form)+" + '&csrf=' + document.querySelector('[name=csrf]').value}).then(r => r.status)", &status)
		return status
	}
	steps := []struct{ path, form string }{
		{"/runs/" + string(held) + "/pause", ""},
		{"/runs/" + string(held) + "/resume", ""},
		{"/runs/" + string(asks) + "/answer", "task=a&attempt=1&text=this"},
		{"/dispatches/" + asked + "/answer", "attempt=1&text=this"},
		{"/runs/" + string(failed) + "/retry", "key=k1"},
		{"/dispatches/" + running + "/cancel", "reason=x"},
		{"/runs/" + string(held) + "/cancel", "reason=x"},
	}
	before := w.steered(held, asks, alone, failed)
	for _, s := range steps {
		if status := post(bob, s.path, s.form); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("bob: %s: status %d", s.path, status)
		}
	}
	for _, path := range []string{"/runs/" + string(held), "/runs/" + string(held) + "/graph", "/dispatches/" + running, "/dispatches/" + running + "/log", "/log", "/catalog/1"} {
		if status := bob.visit(p.origin + path); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("bob reads %s: status %d", path, status)
		}
	}
	if after := w.steered(held, asks, alone, failed); after != before {
		t.Errorf("bob changed what is ann's: %s, before %s", after, before)
	}

	ann.visit(p.origin + "/sessions")
	hers := ann.value("document.querySelector('[data-session]').dataset.session")
	if bob.visit(p.origin + "/sessions"); strings.Contains(bob.text("main"), hers) {
		t.Error("bob sees the session of ann")
	}
	if status := post(bob, "/sessions/"+hers+"/end", ""); status != http.StatusNotFound {
		t.Errorf("bob ends the session of ann: status %d", status)
	}
	for _, s := range steps {
		if status := post(ann, s.path, s.form); status != http.StatusOK {
			t.Errorf("control: ann: %s: status %d", s.path, status)
		}
	}
	if got := w.awaitSettled(held); got.State != api.RunCancelled {
		t.Errorf("control: the run that ann cancelled is %s", got.State)
	}
	again := w.signedIn(p, "ann")
	if status := post(again, "/sessions/"+hers+"/end", ""); status != http.StatusOK {
		t.Errorf("control: ann ends her other session: status %d", status)
	}
	if status := ann.visit(p.origin + "/runs"); status != http.StatusUnauthorized {
		t.Errorf("the ended session: status %d", status)
	}
}

// steered is what steering runs changes of them.
func (w *world) steered(runs ...api.RunID) string {
	w.t.Helper()
	var all []string
	for _, id := range runs {
		r := w.run(id)
		all = append(all, fmt.Sprint(id, r.State, task(w.t, r, "a").State, task(w.t, r, "a").DispatchID))
	}
	list := w.must("run", "list", "-o", "name")
	return strings.Join(append(all, list), "\n")
}
