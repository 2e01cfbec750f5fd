package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

// teamHost is the name of the page of a team in tests; browsers resolve it to loopback.
const teamHost = "team.bailiwick.localhost"

// teamPage is the page of a team, served over TLS, and a browser that trusts its
// certificate.
type teamPage struct {
	*browser
	t       testing.TB
	w       *world // that it is of; nil: of a machine in mode system
	run     func(args ...string) string
	command func() *exec.Cmd // serves it
	origin  string
	pin     string // of the certificate
	stop    func() // the program that start started
}

// teamFree returns a port of loopback that is free now.
func teamFree(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// teamCertificate returns a certificate for teamHost, its key, and the SHA-256 of its public
// key in base64, with which a browser trusts it.
func teamCertificate(t testing.TB) (cert, key []byte, pin string) {
	t.Helper()
	return teamCertificateFor(t, teamHost, time.Now().Add(time.Hour))
}

func teamCertificateFor(t testing.TB, host string, until time.Time) (cert, key []byte, pin string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until, DNSNames: []string{host}}
	made, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	must(t, err)
	sum := sha256.Sum256(spki)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), base64.StdEncoding.EncodeToString(sum[:])
}

// teamSettings writes a certificate, its key and the section web of the configuration, with
// more sections, before the service starts.
func (w *world) teamSettings(more string) *teamPage {
	w.t.Helper()
	cert, key, pin := teamCertificate(w.t)
	w.write("tls/cert.pem", string(cert), 0o644)
	w.write("tls/key.pem", string(key), 0o600)
	port := teamFree(w.t)
	p := &teamPage{t: w.t, w: w, origin: fmt.Sprintf("https://%s:%d", teamHost, port), pin: pin}
	p.run = func(args ...string) string { return w.must(args...) }
	p.command = w.pageProgram
	w.write("config/bailiwick/service.yaml", fmt.Sprintf("version: 1\nweb: {origin: %q, listen: \"127.0.0.1:%d\", certificate: %q, key: %q}\n%s", p.origin, port, w.path("tls/cert.pem"), w.path("tls/key.pem"), more), 0o644)
	return p
}

// pageProgram is bailiwick-web for the team: on a machine under its account, to which the administrator
// gave the key.
func (w *world) pageProgram() *exec.Cmd {
	if w.unit == nil {
		return w.command(filepath.Join(bin, "bailiwick-web"), "team")
	}
	key := w.path("tls/key.pem")
	must(w.t, errors.Join(os.Chown(key, machine.Root, machine.Page), os.Chmod(key, 0o640)))
	of := w.unit.program(machine.Page, filepath.Join(bin, "bailiwick-web"), "team")
	cmd := exec.Command(of.Args[0], of.Args[1:]...) // it ends after the test's context
	cmd.Env, cmd.Dir = of.Env, of.Dir
	return cmd
}

// serve serves the page until the test ends, and starts the browser.
func (p *teamPage) serve() {
	p.t.Helper()
	p.start()
	p.t.Cleanup(func() { p.stop() })
	p.browser = newBrowser(p.t, "--ignore-certificate-errors-spki-list="+p.pin)
}

// start starts bailiwick-web; p.stop ends it.
func (p *teamPage) start() {
	p.t.Helper()
	cmd := p.command()
	out, err := cmd.StdoutPipe()
	must(p.t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	must(p.t, cmd.Start())
	first, err := bufio.NewReader(out).ReadString('\n')
	p.stop = func() {
		p.t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil || errs.Len() > 0 {
			p.t.Errorf("bailiwick-web team: %v: %s", err, errs.String())
		}
	}
	if err != nil || strings.TrimSpace(first) != "page  "+p.origin {
		p.stop()
		p.t.Fatalf("bailiwick-web team prints %q: %v", first, err)
	}
}

// restart ends the page and the service, and starts both again.
func (p *teamPage) restart() {
	p.t.Helper()
	p.stop()
	p.w.must("down")
	p.w.upRuns()
	p.start()
}

// badCertificates checks that the page does not start with a certificate that browsers
// refuse. What it starts with afterwards is the control.
func (p *teamPage) badCertificates() {
	p.t.Helper()
	good, key := p.w.read("tls/cert.pem"), p.w.read("tls/key.pem")
	for want, c := range map[string]struct {
		host  string
		until time.Time
	}{
		"web.certificate: it expired at": {teamHost, time.Now().Add(-time.Minute)},
		"not " + teamHost:                {"other.bailiwick.localhost", time.Now().Add(time.Hour)},
	} {
		cert, key, _ := teamCertificateFor(p.t, c.host, c.until)
		p.w.write("tls/cert.pem", string(cert), 0o644)
		p.w.write("tls/key.pem", string(key), 0o600)
		if out, err := p.command().CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			p.t.Errorf("want %q: %v: %s", want, err, out)
		}
	}
	p.w.write("tls/cert.pem", good, 0o644)
	p.w.write("tls/key.pem", key, 0o600)
}

// device opens a browser of a person with an authenticator that copies nothing.
func (p *teamPage) device() *tab {
	p.t.Helper()
	t := p.openApart()
	t.scheme("light")
	t.authenticator(members{"transport": "internal", "defaultBackupEligibility": false, "defaultBackupState": false})
	return t
}

// invite returns the link of an invitation.
func (p *teamPage) invite(who string) string {
	p.t.Helper()
	return strings.TrimSpace(p.run("operators", "invite", who, "-o", "name"))
}

// enrolled opens a link, makes a passkey, and returns the fingerprint that the page shows.
func (p *teamPage) enrolled(t *tab, link, who string) string {
	p.t.Helper()
	t.visit("about:blank") // a link is a fragment of the page that may be open
	if status := t.visit(link); status != http.StatusOK {
		p.t.Fatalf("%s has status %d", link, status)
	}
	t.awaitText("#invited", who)
	if at := t.value("location.href"); at != p.origin+"/enrol" {
		p.t.Errorf("the code stays in the address bar: %s", at)
	}
	t.fill("#name", "laptop")
	t.click("#enrol")
	t.await("document.getElementById('fingerprint').textContent !== ''")
	return t.text("#fingerprint")
}

// signIn signs a person in with the passkey of the tab.
func (p *teamPage) signIn(t *tab, who string) {
	p.t.Helper()
	if status := t.visit(p.origin + "/inbox"); status != http.StatusUnauthorized {
		p.t.Errorf("without a session the page answers with status %d", status)
	}
	t.loads("the page after the login", func() { t.click("#passkey") })
	if got := t.value("location.pathname"); got != "/inbox" || t.text(".person") != who {
		p.t.Fatalf("after the login of %s: at %s:\n%s", who, got, t.text("body"))
	}
	t.forget()
}

// vote reads an approval and signs with the passkey of the tab.
func (p *teamPage) vote(t *tab, id string) {
	p.t.Helper()
	t.visit(p.origin + "/sign")
	t.loads("the vote", func() { t.click("[data-approval=" + id + "] button") })
	if shown := t.text("#text"); !strings.Contains(shown, id) {
		p.t.Fatalf("the page does not show %s: %s", id, t.text("body"))
	}
	t.loads("the signature", func() { t.click("#sign") })
	t.awaitText("#receipt", "log entry")
}

// Two people on two devices: invited by link, enrolled in their browsers, admitted by an
// operator's signature, signed in by passkey, they approve a task together. The evidence
// names both offline. Controls: a passkey that was not admitted does not sign in; an
// operator who has the wrong fingerprint admits nothing; one person's vote is not two; the
// session of one with the assertion of the other is refused. Restarts of page and service
// lose no link and no session.
//
// proves R-B9, R-P1, R-A7
func TestFourEyesOnTwoDevices(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	p := w.teamSettings("")
	w.upRuns()
	w.downAtEnd()
	first := w.trust()
	for _, who := range []string{"human:ann", "human:bob"} {
		w.must("principal", "add", who)
	}
	p.serve()
	ann, bob := p.device(), p.device()
	link := p.invite("human:ann")
	print1 := p.enrolled(ann, link, "human:ann")
	w.refused(1, []string{"has another fingerprint"}, "operators", "admit", "human:ann", "0000 0000 0000 0000 0000")
	w.refused(1, []string{"has not used the link yet"}, "operators", "admit", "human:bob", func() string { p.invite("human:bob"); return print1 }())
	if ann.visit(p.origin + "/login"); ann.count("#passkey") != 0 {
		t.Error("the page offers a passkey that was not admitted")
	}
	if said := w.must("operators", "invitations"); strings.Contains(said, strings.ReplaceAll(print1, " ", "")) {
		t.Errorf("the list shows the fingerprint: %s", said)
	}
	w.must("operators", "admit", "human:ann", print1)
	ann.visit(link) // used up
	ann.awaitText("#problem", "the link is not valid")
	ann.forget()
	link = p.invite("human:bob")
	p.restart() // loses no link, and no passkey that waits
	print2 := p.enrolled(bob, link, "human:bob")
	p.restart()
	bob.visit("about:blank")
	bob.visit(link) // used up
	bob.awaitText("#problem", "the link is not valid")
	bob.forget()
	w.must("operators", "admit", "human:bob", print2)
	p.signIn(ann, "human:ann")
	p.signIn(bob, "human:bob")

	w.write("eyes.yaml", "id: eyes\nsource: {name: repo}\ntasks:\n  - {id: build, subagent: look}\n  - {id: ship, depends_on: [build], approval: {by: [\"human:ann\", \"human:bob\"], count: 2}}\n", 0o644)
	w.must("run", "submit", w.path("eyes.yaml"), "-q")
	id := w.awaitAsked("eyes", "ship")
	p.restart()
	p.vote(ann, id)
	if got := w.run("eyes"); got.State == api.RunDone {
		t.Fatalf("the run is %s with one person", got.State)
	}
	ann.visit(p.origin + "/sign")
	if n := ann.count("[data-approval=" + id + "]"); n != 0 {
		t.Error("one person is offered a second vote")
	}
	p.stolen(bob, ann, id)
	p.vote(bob, id)
	if got := w.awaitSettled("eyes"); got.State != api.RunDone {
		t.Fatalf("the run is %s", got.State)
	}

	bundle, said := w.exported("eyes"), ""
	for _, c := range []struct {
		trust  evidence.Trust
		status int
	}{{first, 0}, {func() evidence.Trust { other := first; other.Operators = nil; return other }(), 1}} {
		text, err := c.trust.Encode()
		must(t, err)
		w.write("auditor.json", string(text), 0o644)
		d := w.verifyOffline(bundle, "--trust", w.path("auditor.json"))
		if d.status != c.status {
			t.Errorf("want exit status %d: %s", c.status, d)
		}
		if c.status == 0 {
			said = d.stdout
		}
	}
	wantIn(t, "bailiwick-verify", said, "human:ann", "human:bob")
}

// asserted has the passkey of a person sign a challenge, as a page that lies to them can, and
// returns the assertion.
func (p *teamPage) asserted(t *tab, who api.Principal, challenge string) (assertion string) {
	p.t.Helper()
	var keys api.OperatorKeys
	decode(p.t, p.run("operators", "list", "-o", "json"), &keys)
	var root struct {
		Keys []struct {
			Principal api.Principal
			Passkey   *struct{ ID string }
		}
	}
	must(p.t, json.Unmarshal(keys.Root, &root))
	credential := ""
	for _, k := range root.Keys {
		if k.Principal == who && k.Passkey != nil {
			credential = k.Passkey.ID
		}
	}
	t.eval(`(async () => {
		const text = b => btoa(String.fromCharCode(...new Uint8Array(b)));
		const bytes = s => Uint8Array.from(atob(s.replaceAll('-', '+').replaceAll('_', '/')), c => c.charCodeAt(0));
		const got = await navigator.credentials.get({publicKey: {challenge: bytes(`+quoted(challenge)+`), rpId: location.hostname, userVerification: 'required', allowCredentials: [{type: 'public-key', id: bytes(`+quoted(credential)+`)}]}});
		const r = got.response;
		return JSON.stringify({authenticatorData: text(r.authenticatorData), clientDataJSON: text(r.clientDataJSON), credentialId: text(got.rawId), signature: text(r.signature)});
	})()`, &assertion)
	return assertion
}

// stolen sends what Ann's passkey signs about Bob's vote, as it would if a page lied to her,
// in the session of Bob. It is refused.
func (p *teamPage) stolen(bob, ann *tab, id string) {
	p.t.Helper()
	bob.visit(p.origin + "/sign")
	bob.loads("the vote", func() { bob.click("[data-approval=" + id + "] button") })
	challenge := bob.value("document.getElementById('sign').dataset.challenge")
	assertion := p.asserted(ann, "human:ann", challenge)
	var answer struct {
		Status int
		Body   json.RawMessage
	}
	bob.eval(`fetch(location.pathname, {method: 'POST', headers: {'Content-Type': 'application/json', 'X-Csrf-Token': document.getElementById('sign').dataset.token}, body: `+quoted(assertion)+`}).then(async r => ({status: r.status, body: await r.json()}))`, &answer)
	if answer.Status == http.StatusOK || !strings.Contains(string(answer.Body), "own key") {
		p.t.Errorf("the assertion of another person is answered with %d %s", answer.Status, answer.Body)
	}
	bob.forget()
}

// reads checks a page as it is shown: without a violation of axe-core and no wider than the
// window, in light and dark colours, at 1000 and at 360 pixels.
func (p *teamPage) reads(t *tab, name string) {
	p.t.Helper()
	for _, width := range []int{1000, 360} {
		t.scheme("light")
		t.size(width, 750)
		if n := t.wide(); n > 0 {
			p.t.Errorf("%s, %d pixels: %d px wider than the window", name, width, n)
		}
		for _, v := range t.axe() {
			p.t.Errorf("%s, light, %d pixels: %s", name, width, v)
		}
		t.scheme("dark")
		for _, v := range t.axeColours() {
			p.t.Errorf("%s, dark, %d pixels: %s", name, width, v)
		}
	}
	t.scheme("light")
	t.size(1000, 750)
}

// The pages for people who are not signed in, and those about sessions and signatures, are
// read by everybody; without scripts they say what needs them. A person ends a session of
// another browser, and signs out: neither is of use afterwards.
func TestTheTeamsPageReads(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "look", script: "true"})
	p := w.teamSettings("")
	w.upRuns()
	w.downAtEnd()
	w.must("principal", "add", "human:ann")
	p.badCertificates()
	p.serve()
	ann := p.device()
	ann.visit(p.origin + "/login")
	wantIn(t, "a login page without a method", ann.text("main"), "bailiwick operators invite human:NAME")
	p.reads(ann, "the login without a method")
	ann.visit(p.origin + "/enrol")
	p.reads(ann, "the enrolment without a code")
	ann.fill("#code", "GUESS")
	ann.click("#check")
	ann.awaitText("#problem", "the link is not valid")
	p.reads(ann, "the enrolment with a wrong code")
	ann.forget()
	link := p.invite("human:ann")
	shown := p.enrolled(ann, link, "human:ann")
	wantIn(t, "what the operator runs", ann.text("#admit"), "bailiwick operators admit human:ann", shown)
	p.reads(ann, "the enrolment at its end")
	w.must("operators", "admit", "human:ann", shown)
	ann.visit(p.origin + "/login")
	p.reads(ann, "the login")
	ann.picture("team-login")
	ann.script(false)
	for path, want := range map[string]string{"/login": "Signing in with a passkey needs JavaScript", "/enrol": "Enrolling needs JavaScript"} {
		ann.visit(p.origin + path)
		wantIn(t, path+" without scripts", ann.text("main"), want)
	}
	ann.script(true)
	p.signIn(ann, "human:ann")

	w.write("one.yaml", "id: one\nsource: {name: repo}\ntasks:\n  - {id: build, subagent: look}\n  - {id: ship, depends_on: [build], approval: {by: [\"human:ann\"], show: [build]}}\n", 0o644)
	w.must("run", "submit", w.path("one.yaml"), "-q")
	id := w.awaitAsked("one", "ship")
	for _, path := range []string{"/", "/inbox", "/sign", "/sessions", "/who", "/runs/one"} {
		if status := ann.visit(p.origin + path); status != http.StatusOK {
			t.Errorf("%s has status %d", path, status)
		}
		p.reads(ann, path)
	}
	ann.visit(p.origin + "/inbox")
	ann.loads("the list", func() { ann.click("a[href='/sign#" + id + "']") })
	ann.loads("the vote", func() { ann.click("[data-approval=" + id + "] button") })
	p.reads(ann, "a pending decision")
	ann.picture("team-vote")

	// Without scripts the page shows everything, and its forms work.
	second := ann // the same authenticator signs in again
	session := func() string { return second.value("document.querySelector('[data-session]').dataset.session") }
	second.visit(p.origin + "/sessions")
	first := session()
	ann.script(false)
	ann.visit(p.origin + "/sessions")
	wantIn(t, "/sessions without scripts", ann.text("main"), first, "this one", "passkey from 127.0.0.1")
	if status := ann.loads("the end of the session", func() { ann.click("[data-session='" + first + "'] button") }); status != http.StatusUnauthorized {
		t.Errorf("after its end the session answers with status %d", status)
	}
	wantIn(t, "an ended session", ann.text("main"), "Sign in")
	ann.script(true)
	ann.forget()
	p.signIn(ann, "human:ann")
	ann.loads("sign out", func() { ann.click("#logout") })
	if got := ann.value("location.pathname"); got != "/login" {
		t.Errorf("after signing out at %s", got)
	}
	if status := ann.visit(p.origin + "/runs"); status != http.StatusUnauthorized {
		t.Errorf("after signing out the page answers with status %d", status)
	}
	said := w.must("audit", "list", "-o", "jsonl")
	for _, want := range []string{"session.opened", "session.ended"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log has no %s", want)
		}
	}
}
