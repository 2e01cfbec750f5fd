package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

// newTeamPage starts a machine whose page is served under its account, with a browser.
func newTeamPage(t *testing.T) (*team, *teamPage) {
	t.Helper()
	cert, key, pin := teamCertificate(t)
	port := teamFree(t)
	origin := fmt.Sprintf("https://%s:%d", teamHost, port)
	s := newTeam(t, func(s *team) {
		s.MkdirAll("/etc/bailiwick/tls", 0, 0, 0o755)
		s.Write("/etc/bailiwick/tls/cert.pem", string(cert), 0, 0, 0o644)
		s.Write("/etc/bailiwick/tls/key.pem", string(key), 0, machine.Page, 0o640)
		s.Write("/etc/bailiwick/service.yaml", fmt.Sprintf("version: 1\norchestrator: {}\nweb: {origin: %q, listen: \"127.0.0.1:%d\", certificate: /etc/bailiwick/tls/cert.pem, key: /etc/bailiwick/tls/key.pem}\n", origin, port), 0, 0, 0o644)
	})
	run := func(args ...string) string {
		var quotedArgs []string
		for _, a := range args {
			quotedArgs = append(quotedArgs, "'"+a+"'")
		}
		return s.ok(machine.Alice, "bailiwick "+strings.Join(quotedArgs, " "))
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // it ends after the browser
	t.Cleanup(stop)
	p := &teamPage{t: t, run: run, origin: origin, pin: pin, command: func() *exec.Cmd { return s.Command(ctx, machine.Page, filepath.Join(bin, "bailiwick-web"), "team") }}
	p.serve()
	return s, p
}

// enrolAll enrols people on devices of their own and signs them in.
func (p *teamPage) enrolAll(people ...string) []*tab {
	p.t.Helper()
	var devices []*tab
	for _, who := range people {
		p.run("principal", "add", who)
		device := p.device()
		p.run("operators", "admit", who, p.enrolled(device, p.invite(who), who))
		p.signIn(device, who)
		devices = append(devices, device)
	}
	return devices
}

// In mode system the page runs under an account of its own. Two people enrol, sign in and
// decide together what takes two. The account of the page may nothing by itself, and a
// session that is stolen from a browser is of no use over the socket to another account.
// Controls: the same requests of people's accounts; the session in the browser.
//
// takeover system, page: no define, widen, replay, approve, read a secret
// takeover system, page: until start, read work
//
// proves R-S2, R-B9, R-P3
func TestTheTeamsPageHasAnAccountOfItsOwn(t *testing.T) {
	t.Parallel()
	s, p := newTeamPage(t)
	run, origin := p.run, p.origin
	for _, args := range []string{
		"whoami", "status", "run list", "operators list", "audit list", "decision list", "stop --all", "principal add human:eve",
		"subagent list", "dispatch run greet", "ceiling set human:eve irreversible --key /home/alice/.config/bailiwick/operator.key", "secret list", "approval list", "token list", "session list",
	} {
		if out, err := s.sh(machine.Page, "bailiwick "+args); err == nil || !strings.Contains(out, "is the account of the page") && !strings.Contains(out, "permission denied") {
			t.Errorf("the page itself: %s: %v %s", args, err, out)
		}
	}
	for _, script := range []string{
		"cat /var/lib/bailiwick-launch/identity", "ls /var/lib/bailiwick", "touch /var/lib/bailiwick-catalog/catalog/x", "touch /etc/bailiwick/operators.json", "cat /home/alice/.config/bailiwick/operator.key",
	} {
		if out, err := s.sh(machine.Page, script); err == nil {
			t.Errorf("the page itself: %s: %s", script, out)
		}
		if out, err := s.sh(machine.Root, script); err != nil {
			t.Errorf("control: root: %s: %v %s", script, err, out)
		}
	}
	if out, err := s.sh(machine.Bob, "bailiwick whoami"); err != nil || !strings.Contains(out, "local:bob") {
		t.Errorf("control: %v %s", err, out)
	}

	people := p.enrolAll("human:alice", "human:bob")
	alice, bob := people[0], people[1]
	run("operators", "threshold", "2", "--key", "/home/alice/.config/bailiwick/operator.key")

	submitted := make(chan string, 1)
	go func() {
		out, err := s.sh(machine.Alice, "bailiwick ceiling set local:bob stateful --passkey")
		submitted <- fmt.Sprint(out, " ", err)
	}()
	var pending api.PendingDecision
	for late := range polling(patience) {
		var list []api.PendingDecision
		must(t, json.Unmarshal([]byte(run("decision", "list", "-o", "json")), &list))
		if len(list) > 0 {
			pending = list[0]
			break
		}
		if late {
			t.Fatalf("no decision is pending: %s", <-submitted)
		}
	}
	for n, tab := range []*tab{alice, bob} {
		if status := tab.visit(origin + "/sign/" + string(pending.ID)); status != http.StatusOK || !strings.Contains(tab.text("dl"), fmt.Sprintf("%d of 2", n)) {
			t.Fatalf("status %d: %s", status, tab.text("main"))
		}
		tab.loads("the signature", func() { tab.click("#sign") })
	}
	bob.awaitText("#receipt", "log entry")
	if said := <-submitted; !strings.Contains(said, "decision") || !strings.HasSuffix(said, "<nil>") {
		t.Errorf("ceiling set: %s", said)
	}

	handle := p.handle(alice)
	get := func(uid int) string {
		out, err := s.sh(uid, `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un("/run/bailiwick/api.sock")) or die "$!"; select(S); $| = 1; print "GET /v1/runtime/who HTTP/1.1\r\nHost: a\r\nConnection: close\r\n`+api.SessionHeader+`: `+handle+`\r\n\r\n"; print STDOUT <S>'`)
		if err != nil {
			t.Fatalf("uid %d: %v %s", uid, err, out)
		}
		return out
	}
	for _, uid := range []int{machine.Alice, machine.Bob, machine.Service} {
		if out := get(uid); !strings.Contains(out, "401 Unauthorized") || strings.Contains(out, "human:alice") {
			t.Errorf("a stolen session with uid %d: %s", uid, out)
		}
	}
	if out := get(machine.Page); !strings.Contains(out, "human:alice") { // what a taken-over page may
		t.Errorf("control: the page: %s", out)
	}

	t.Log("replay: neither a decision that was signed, nor a session that has ended")
	list := run("session", "list", "-o", "json")
	if n := len(strings.Split(run("audit", "list", "--kind", "operator.recorded"), "\n")); true {
		bob.visit(origin + "/sign/" + string(pending.ID))
		if now := len(strings.Split(run("audit", "list", "--kind", "operator.recorded"), "\n")); now != n {
			t.Errorf("%d decisions, %d before", now, n)
		}
	}
	var sessions []struct{ ID, Principal string }
	must(t, json.Unmarshal([]byte(list), &sessions))
	for _, one := range sessions {
		if one.Principal == "human:alice" {
			run("session", "end", one.ID)
		}
	}
	if out := get(machine.Page); !strings.Contains(out, "401 Unauthorized") || strings.Contains(out, "human:alice") {
		t.Errorf("the page with an ended session: %s", out)
	}
}

// handle returns the session of a browser.
func (p *teamPage) handle(t *tab) string {
	p.t.Helper()
	var jar struct {
		Cookies []struct{ Name, Value string }
	}
	t.must("Network.getCookies", nil, &jar)
	if len(jar.Cookies) != 1 || jar.Cookies[0].Name != "__Host-bailiwick-session" {
		p.t.Fatalf("cookies %+v", jar.Cookies)
	}
	return jar.Cookies[0].Value
}

// takenPage is other code in the place of the page: the same account, with a session that
// it got to see.
type takenPage struct {
	s      *team
	handle string
}

// call calls the service and returns the answer.
func (x *takenPage) call(method, path, body string) string {
	x.s.t.Helper()
	script := "curl -s -i -m 20 --unix-socket /run/bailiwick/api.sock -X " + method + " -H '" + api.SessionHeader + ": " + x.handle + "'"
	if body != "" {
		script += " -H 'Content-Type: application/json' -d '" + body + "'"
	}
	out, err := x.s.sh(machine.Page, script+" http://a"+path)
	if err != nil {
		x.s.t.Fatalf("%s %s: %v %s", method, path, err, out)
	}
	return out
}

// Other code in the place of the page has the session of an operator and everything that
// her browser sent: a login, and a signature about another decision. It submits decisions and
// invites itself, and nothing of it is in force: a decision takes an assertion of her passkey
// over exactly that decision. Control: the one that she signs.
//
// proves R-B9, R-S2
func TestATakenOverPageDecidesNothing(t *testing.T) {
	t.Parallel()
	s, p := newTeamPage(t)
	alice := p.enrolAll("human:alice")[0]
	x := &takenPage{s, p.handle(alice)}
	if got := x.call("GET", "/v1/runtime/who", ""); !strings.Contains(got, "human:alice") {
		t.Fatalf("the session: %s", got)
	}
	added := func(who string) bool { return strings.Contains(p.run("principal", "list", "-o", "name"), who) }
	submit := func(who string) (l api.PendingDecision) {
		t.Helper()
		got := x.call("POST", "/v1/operator/pending", `{"record": {"v": 0, "verb": "principal.add", "principal": "`+who+`"}}`)
		_, body, _ := strings.Cut(got, "\r\n\r\n")
		if err := json.Unmarshal([]byte(body), &l); err != nil || l.ID == "" {
			t.Fatalf("submit: %s", got)
		}
		return l
	}
	text := base64.StdEncoding.EncodeToString
	eve, mallory := submit("human:eve"), submit("human:mallory")

	own, err := softkey.New(false)
	must(t, err)
	own.Origin, own.RPID = p.origin, teamHost
	forged, err := own.Assert([32]byte(eve.Challenge))
	must(t, err)
	assertion, err := json.Marshal(api.Assertion(forged))
	must(t, err)
	var begun api.PasskeyChallenge
	_, body, _ := strings.Cut(x.call("POST", "/v1/login/passkey/begin", `{"origin": "`+p.origin+`"}`), "\r\n\r\n")
	must(t, json.Unmarshal([]byte(body), &begun))
	other := p.asserted(alice, "human:alice", text(mallory.Challenge))
	for name, attack := range map[string]struct{ path, body, want string }{
		"without a signature":     {"/v1/operator/pending/" + string(eve.ID) + "/sign", `{}`, "want one of"},
		"no envelope":             {"/v1/operator/records", `{"envelope": "` + text(eve.Payload) + `"}`, "operator record"},
		"an own passkey":          {"/v1/operator/pending/" + string(eve.ID) + "/sign", `{"assertion": ` + string(assertion) + `}`, "no operator key is this passkey"},
		"a login of hers":         {"/v1/operator/pending/" + string(eve.ID) + "/sign", `{"assertion": ` + p.asserted(alice, "human:alice", text(begun.Challenge)) + `}`, "another challenge"},
		"her signature elsewhere": {"/v1/operator/pending/" + string(eve.ID) + "/sign", `{"assertion": ` + other + `}`, "another challenge"},
	} {
		if got := x.call("POST", attack.path, attack.body); strings.Contains(got, "200 OK") || !strings.Contains(got, attack.want) {
			t.Errorf("%s: %s", name, got)
		}
	}

	_, body, _ = strings.Cut(x.call("POST", "/v1/operator/invitations", `{"principal": "human:alice"}`), "\r\n\r\n")
	var in api.Invitation
	must(t, json.Unmarshal([]byte(body), &in))
	_, code, _ := strings.Cut(in.Link, "#")
	_, body, _ = strings.Cut(x.call("POST", "/v1/login/enrol", `{"code": "`+code+`"}`), "\r\n\r\n")
	var about api.EnrolAnswer
	must(t, json.Unmarshal([]byte(body), &about))
	own.Challenge = (*[32]byte)(about.Challenge)
	enrolment, err := own.Enrol()
	enrolment.RPID = teamHost
	must(t, err)
	own.Challenge = nil
	made, err := json.Marshal(api.EnrolRequest{Code: code, Enrolment: (*api.Enrolment)(&enrolment)})
	must(t, err)
	if got := x.call("POST", "/v1/login/enrol", string(made)); !strings.Contains(got, "200 OK") {
		t.Errorf("it enrols a passkey that waits: %s", got)
	}
	if got := x.call("POST", "/v1/operator/pending/"+string(eve.ID)+"/sign", `{"assertion": `+string(assertion)+`}`); !strings.Contains(got, "no operator key is this passkey") {
		t.Errorf("the passkey that waits signs: %s", got)
	}
	login, err := own.Assert([32]byte(begun.Challenge))
	must(t, err)
	finish, err := json.Marshal(api.PasskeyLogin{ID: begun.ID, Assertion: api.Assertion(login)})
	must(t, err)
	if got := x.call("POST", "/v1/login/passkey/finish", string(finish)); !strings.Contains(got, "401 Unauthorized") {
		t.Errorf("the passkey that waits signs in: %s", got)
	}
	if added("human:eve") || added("human:mallory") {
		t.Fatal("a decision of the page is in force")
	}

	if got := x.call("POST", "/v1/operator/pending/"+string(mallory.ID)+"/sign", `{"assertion": `+other+`}`); !strings.Contains(got, "200 OK") || !added("human:mallory") {
		t.Errorf("control: what alice signed: %s", got)
	}
	wantIn(t, "the log", p.run("audit", "list", "--kind", "operator.recorded"), "human:mallory") // whatever the page showed her
	if got := x.call("POST", "/v1/operator/pending/"+string(mallory.ID)+"/sign", `{"assertion": `+other+`}`); strings.Contains(got, "200 OK") {
		t.Errorf("the same again: %s", got)
	}
}

// Alice submits a task that writes. Bob and Carol approve it on two devices, at the page under
// its account, by passkeys of their own. The launcher, which does not believe the service,
// verifies both before it starts the attempt. The evidence names both offline. Controls: one
// signature starts nothing; the one of Alice, who submitted, is refused; a trust file
// without the operators does not verify.
//
// proves R-B9, R-P1, R-A7
func TestFourEyesOnAMachine(t *testing.T) {
	t.Parallel()
	s, p := newTeamPage(t)
	w := s.world(machine.Alice)
	p.w = w
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "ship", script: "echo shipped > a.txt", more: "    effect: write\n"})
	w.replace(manifest, "principal: \""+w.me()+"\",", "principal: \""+w.me()+"\", writes: {by: [\"human:bob\", \"human:carol\"], count: 2},")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("ceiling", "set", "local:alice", "reversible")
	people := p.enrolAll("human:bob", "human:carol", "human:alice")
	bob, carol, alice := people[0], people[1], people[2]

	w.write("eyes.yaml", "id: eyes\nsource: {name: repo}\ntasks:\n  - {id: ship, subagent: ship}\n", 0o644)
	w.must("run", "submit", w.path("eyes.yaml"), "-q")
	id := w.awaitAsked("eyes", "ship")
	p.vote(bob, id)
	if alice.visit(p.origin + "/sign"); alice.count("[data-approval="+id+"]") != 0 {
		t.Error("who submitted is offered a vote")
	}
	if got := task(t, w.run("eyes"), "ship"); got.DispatchID != "" {
		t.Fatalf("with one person the attempt %s was started", got.DispatchID)
	}
	p.vote(carol, id)
	if got := w.awaitSettled("eyes"); got.State != api.RunDone {
		t.Fatalf("the run is %s: %s", got.State, w.must("run", "show", "eyes"))
	}
	wantIn(t, "the patch", w.must("dispatch", "patch", string(task(t, w.run("eyes"), "ship").DispatchID)), "+shipped")

	trust, bundle := w.trust(), w.exported("eyes")
	verifies := func(trust evidence.Trust, status int) string {
		t.Helper()
		text, err := trust.Encode()
		must(t, err)
		w.write("auditor.json", string(text), 0o644)
		d := w.verifyOffline(bundle, "--trust", w.path("auditor.json"))
		if d.status != status {
			t.Errorf("want exit status %d: %s", status, d)
		}
		return d.stdout
	}
	wantIn(t, "bailiwick-verify", verifies(trust, 0), "human:bob", "human:carol", "local:alice")
	trust.Operators = nil
	verifies(trust, 1)
}

// ownPage is the page that a person of a machine serves to themselves.
type ownPage struct {
	s    *team
	uid  int
	url  string
	sent string // Cookie header
}

func (s *team) servePage(uid int) *ownPage {
	s.t.Helper()
	web := s.start(uid, `exec "$@"`, nil, filepath.Join(bin, "bailiwick"), "web", "serve", "--addr", "127.0.0.1:0", "--steer", "-o", "json")
	line, err := web.out.ReadBytes('\n')
	if err != nil {
		web.end()
		s.t.Fatalf("bailiwick web serve: %v %s", err, web.errs.String())
	}
	var shown struct{ URL string }
	must(s.t, json.Unmarshal(line, &shown))
	return &ownPage{s: s, uid: uid, url: strings.TrimSuffix(shown.URL, "/")}
}

// ask sends a request of an account, as a browser sends a link, or with a form. It returns
// the answer with its header.
func (p *ownPage) ask(uid int, path, form string) string {
	p.s.t.Helper()
	script := "curl -s -i -m 20 -H 'Sec-Fetch-Site: same-origin' -H 'Cookie: " + p.sent + "'"
	if form != "" {
		script += " -d '" + form + "'"
	}
	out, _ := p.s.sh(uid, script+" '"+p.url+path+"'") // without an answer it fails
	return out
}

// signIn signs the person in with a code that only they can get.
func (p *ownPage) signIn() {
	p.s.t.Helper()
	code := strings.TrimSpace(p.s.ok(p.uid, "bailiwick web open -o name"))
	got := p.ask(p.uid, "/login", "next=/&code="+code)
	p.sent, _, _ = strings.Cut(behind(got, "Set-Cookie: ", 200), ";")
}

// On a machine a person serves the page to themselves: a client of the machine's service as
// that account, which other accounts cannot use. Two people see and steer what is their
// own. Controls: the same requests by the account whose page it is.
//
// proves R-S2
func TestAPersonServesThePageOfAMachine(t *testing.T) {
	t.Parallel()
	s := newTeam(t, func(s *team) { s.Write("/etc/bailiwick/service.yaml", "version: 1\norchestrator: {}\n", 0, 0, 0o644) })
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "look", script: "true"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("ceiling", "set", "local:alice", "reversible")
	w.write("eyes.yaml", "id: eyes\nsource: {name: repo}\ntasks:\n  - {id: ship, approval: {by: [\"local:bob\"]}}\n", 0o644)
	w.must("run", "submit", w.path("eyes.yaml"), "-q")

	if out, err := s.sh(machine.Bob, "bailiwick web open"); err == nil || !strings.Contains(out, "no page is being served") {
		t.Errorf("bob gets a code: %v %s", err, out)
	}
	alice, bob := s.servePage(machine.Alice), s.servePage(machine.Bob)
	if got := alice.ask(machine.Alice, "/runs/eyes", ""); !strings.Contains(got, "401 Unauthorized") {
		t.Errorf("without a session: %s", got)
	}
	alice.signIn()
	bob.signIn()
	for _, uid := range []int{machine.Bob, machine.Service, machine.Page, machine.Root} {
		if got := alice.ask(uid, "/runs/eyes", ""); got != "" {
			t.Errorf("uid %d is answered by alice's page: %s", uid, got)
		}
	}
	if got := alice.ask(machine.Alice, "/runs/eyes", ""); !strings.Contains(got, "200 OK") || !strings.Contains(got, "Run eyes") {
		t.Errorf("alice sees her run: %s", got)
	}
	for _, path := range []string{"/runs/eyes", "/log", "/sign"} {
		if got := bob.ask(machine.Bob, path, ""); !strings.Contains(got, "403 Forbidden") && !strings.Contains(got, "404 Not Found") {
			t.Errorf("bob reads %s: %s", path, got)
		}
	}
	if got := bob.ask(machine.Bob, "/runs", ""); !strings.Contains(got, "200 OK") {
		t.Errorf("bob's own runs: %s", got)
	}
	if got := bob.ask(machine.Bob, "/runs/eyes/cancel", "reason=x"); !strings.Contains(got, "403 Forbidden") && !strings.Contains(got, "404 Not Found") {
		t.Errorf("bob cancels: %s", got)
	}
	if got := w.run("eyes"); got.State == api.RunCancelled {
		t.Error("bob cancelled the run of alice")
	}
	if got := alice.ask(machine.Alice, "/runs/eyes/cancel", "reason=x"); !strings.Contains(got, "303 See Other") {
		t.Errorf("alice cancels: %s", got)
	}
	if got := w.awaitSettled("eyes"); got.State != api.RunCancelled {
		t.Errorf("the run is %s", got.State)
	}
}
