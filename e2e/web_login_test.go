package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// People sign in at the page with the account that their team's provider has of them: a real
// provider, the code flow with PKCE, in a browser. Who is nobody's subject gets no session
// and learns what to do. An answer of the provider opens a session in no other browser. Open
// sessions stay valid while the provider is away.
//
// proves R-D8, R-T4
func TestPeopleSignInWithTheTeamsAccount(t *testing.T) {
	t.Parallel()
	w := newOffice(t, "127.0.0.1")
	p := w.teamSettings("")
	settings, err := os.ReadFile(w.path("config/bailiwick/service.yaml"))
	must(t, err)
	w.must("down")
	w.away()
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
	p.command = func() *exec.Cmd { return w.command(filepath.Join(bin, "bailiwick-web"), "team") }
	p.serve()

	atProvider := func(tab *tab, who string) {
		t.Helper()
		if status := tab.visit(p.origin + "/budgets"); status != http.StatusUnauthorized {
			t.Errorf("without a session: status %d", status)
		}
		tab.loads("the provider", func() { tab.click("#oidc") })
		if at := tab.value("location.origin"); at != w.issuer {
			t.Fatalf("the browser is at %s:\n%s", at, tab.text("body"))
		}
		tab.fill("input[name=username]", who)
		tab.fill("input[name=password]", who[:1])
	}
	ann, eve, other := p.device(), p.device(), p.device()
	atProvider(ann, "ann")
	ann.click("button")
	ann.await("location.pathname === '/budgets' && document.readyState === 'complete'")
	if got := ann.text(".person"); got != "human:ann" {
		t.Fatalf("signed in as %q: %s", got, ann.text("body"))
	}
	ann.visit(p.origin + "/sessions")
	wantIn(t, "sessions", ann.text("main"), "human:ann", "oidc", "this one")

	atProvider(eve, "eve")
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
