package e2e

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// oidcProgram is an identity provider, which make setup builds.
var oidcProgram = toolProgram("oidc-3.52.0-2")

// office is a service that people reach over a network, and their identity provider.
type office struct {
	*world
	address  string // of this machine, as the other one reaches it
	service  string // URL
	issuer   string
	provider *exec.Cmd
	roots    *x509.CertPool

	redirects []string // where the provider may lead browsers back to
}

// portAt returns a port that nothing listens on at an address.
func portAt(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

// certificate writes a certificate for an address, its own authority.
func (w *world) certificate(address string, until time.Time) *x509.CertPool {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.ParseIP(address)}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(w.t, err)
	w.write("tls.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	w.write("tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), 0o600)
	c, err := x509.ParseCertificate(der)
	must(w.t, err)
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return pool
}

// provide starts the identity provider.
func (w *office) provide() {
	w.t.Helper()
	program, err := oidcProgram()
	must(w.t, err)
	w.provider = exec.Command(program, strings.TrimPrefix(w.issuer, "https://"), w.path("tls.pem"), w.path("tls.key"), w.path("users.json"))
	w.provider.Args = append(w.provider.Args, w.redirects...)
	w.provider.Dir, w.provider.Env = w.dir, w.env
	var said bytes.Buffer
	w.provider.Stderr = &said
	must(w.t, w.provider.Start())
	w.t.Cleanup(w.away)
	for range polling(time.Minute) {
		if c, err := tls.Dial("tcp", strings.TrimPrefix(w.issuer, "https://"), &tls.Config{RootCAs: w.roots}); err == nil {
			_ = c.Close()
			return
		}
	}
	w.t.Fatalf("the provider does not answer: %s", said.String())
}

// away ends the provider.
func (w *office) away() {
	if w.provider != nil && w.provider.Process != nil {
		_ = w.provider.Process.Kill()
		_ = w.provider.Wait()
		w.provider = nil
	}
}

func (w *office) users(text string) { w.write("users.json", text, 0o644) }

const staff = `{"ann": {"password": "a", "groups": ["eng"]}, "bob": {"password": "b", "groups": []}, "eve": {"password": "e", "groups": ["eng"]}}`

// newOffice starts a service at an address, with ann and bob in the signed catalog; both are
// in the group dev, which the provider calls eng.
func newOffice(t *testing.T, address string, more ...subagent) *office {
	t.Helper()
	w := &office{world: prepared(t, 0, more...), address: address}
	w.roots = w.certificate(address, time.Now().Add(time.Hour))
	w.issuer = "https://" + net.JoinHostPort(address, portAt(t, address))
	w.service = "https://" + net.JoinHostPort(address, portAt(t, address))
	w.users(staff)
	w.provide()
	w.configure("")
	b, err := os.ReadFile(w.path(manifest))
	must(t, err)
	text := strings.Replace(string(b), "grants:\n", "grants:\n  - {group: dev, subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}\n", 1)
	text += "identities:\n  - name: corp\n    issuer: " + w.issuer + "\n    client: bailiwick\n    groups: {dev: eng}\n    people:\n      - {principal: \"human:ann\", subject: ann, groups: [dev]}\n      - {principal: \"human:bob\", subject: bob, groups: [dev]}\n"
	w.write(manifest, text, 0o644)
	planned := w.must("catalog", "plan", "-f", w.path(manifest))
	wantIn(t, "the plan", planned, `subject "ann" logs in as human:ann`, "human:ann")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()
	w.must("principal", "add", "human:ann")
	w.must("ceiling", "set", "human:ann", "reversible")
	return w
}

func (w *office) configure(more string) {
	w.t.Helper()
	w.write("config/bailiwick/service.yaml", "version: 1\nserver: {listen: \""+strings.TrimPrefix(w.service, "https://")+"\", certificate: "+w.path("tls.pem")+", key: "+w.path("tls.key")+"}\n"+
		"login: {issuer: \""+w.issuer+"\", client: bailiwick, address: \""+strings.TrimPrefix(w.issuer, "https://")+"\", ca: "+w.path("tls.pem")+"}\norchestrator: {}\n"+more, 0o644)
}

// strangers makes hostile requests from the other machine, each over a connection of its own.
// Control: the one that says how to log in is answered.
func (w *office) strangers(far *island) {
	w.t.Helper()
	transport := far.transport()
	transport.TLSClientConfig, transport.DisableKeepAlives = &tls.Config{RootCAs: w.roots}, true
	made, public := 0, 0
	for _, call := range api.Calls() {
		for _, header := range []string{"", strings.Repeat("0", 64)} {
			body := io.Reader(http.NoBody)
			if call.Method() != http.MethodGet {
				body = strings.NewReader("{}")
			}
			req, err := http.NewRequestWithContext(w.t.Context(), call.Method(), w.service+call.Path("far-1", "x"), body)
			must(w.t, err)
			req.Header.Set("Content-Type", "application/json")
			if header != "" {
				req.Header.Set(api.SessionHeader, header)
			}
			resp, err := transport.RoundTrip(req)
			must(w.t, err)
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			made++
			switch {
			case resp.StatusCode == http.StatusOK && call == api.CallLoginMethods && header == "":
				public++
			case resp.StatusCode/100 == 2 || strings.Contains(string(b), w.dir):
				w.t.Errorf("a stranger's %s: %d %s", call, resp.StatusCode, b)
			}
		}
	}
	if made < 100 || public != 1 {
		w.t.Errorf("%d hostile requests, %d answers to how to log in", made, public)
	}
}

var userCode = regexp.MustCompile(`confirm the code (\S+)`)

// login logs a person in by the device flow, on the machine of p, with the password of the
// first letter.
func (w *office) login(p *world, who string, more ...string) done {
	w.t.Helper()
	cmd := p.command(filepath.Join(bin, "bailiwick"), append([]string{"login", w.service, "--ca", w.path("tls.pem")}, more...)...)
	var out, all bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	must(w.t, err)
	start := cmd.Start
	if p.net != nil {
		start = func() error { return p.net.start(cmd) }
	}
	must(w.t, start())
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if m := userCode.FindStringSubmatch(lines.Text()); m != nil {
			w.confirm(m[1], who, who[:1])
		}
	}
	_ = cmd.Wait() // the status says it
	return done{cmd.ProcessState.ExitCode(), out.String(), all.String()}
}

// confirm is a person at the provider's page.
func (w *office) confirm(code, who, password string) {
	w.t.Helper()
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, DisableKeepAlives: true}}
	resp, err := web.PostForm(w.issuer+"/device", url.Values{"user_code": {code}, "username": {who}, "password": {password}})
	must(w.t, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		w.t.Fatalf("the provider: %d %s", resp.StatusCode, b)
	}
}

// wire connects an island with this machine, and returns the address of this machine there.
func wire(t *testing.T) (*island, string) {
	t.Helper()
	far := newIsland(t)
	var thread int
	must(t, far.do(func() error { thread = unix.Gettid(); return nil }))
	n := thread % 16000 // a /30 of its own
	subnet := fmt.Sprintf("10.%d.%d.", 128+n/4096, n/64%64)
	here, there := fmt.Sprintf("%s%d", subnet, n%64*4+1), fmt.Sprintf("%s%d", subnet, n%64*4+2)
	name := fmt.Sprintf("bw%d", thread)
	ip := func(args ...string) *exec.Cmd { return exec.Command("ip", args...) }
	must(t, ip("link", "add", name, "type", "veth", "peer", "name", "far0", "netns", fmt.Sprint(thread)).Run())
	t.Cleanup(func() { _ = ip("link", "del", name).Run() }) // it ends with the island, too
	must(t, ip("addr", "add", here+"/30", "dev", name).Run())
	must(t, ip("link", "set", name, "up").Run())
	for _, args := range [][]string{{"addr", "add", there + "/30", "dev", "far0"}, {"link", "set", "far0", "up"}} {
		cmd := ip(args...)
		must(t, far.start(cmd))
		must(t, cmd.Wait())
	}
	return far, here
}

// A person on another machine logs in with the team's provider and works there with the
// same commands. Control: without a login, and as a person that the catalog does not map,
// the same commands get nothing.
//
// proves R-T4, R-D8, R-P7
func TestPeopleLogInFromAnotherMachine(t *testing.T) {
	t.Parallel()
	far, here := wire(t)
	w := newOffice(t, here)
	p := newWorld(t, 0) // another machine: its own home, its own network
	p.net = far
	refused := func(what string, d done, status int, words ...string) {
		t.Helper()
		if d.status != status {
			t.Errorf("%s: %s", what, d)
		}
		wantIn(t, what, d.stderr, words...)
	}
	refused("without a login", p.try("--server", w.service, "whoami"), 4, "no login at", "bailiwick login "+w.service)
	d := w.login(p, "ann")
	if d.status != 0 || !strings.Contains(d.stdout, "as human:ann") {
		t.Fatalf("login: %s", d)
	}
	if strings.Contains(d.String(), "eyJ") {
		t.Errorf("a token is printed: %s", d)
	}
	info, err := os.Stat(p.path("config/bailiwick/logins.json"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("logins.json has the mode %v", info.Mode())
	}
	var who struct {
		api.Who
		Server string `json:"server"`
	}
	must(t, json.Unmarshal([]byte(p.must("whoami", "-o", "json")), &who))
	if who.Principal != "human:ann" || who.Auth != api.AuthSession || who.Server != w.service || who.Operator {
		t.Errorf("%+v", who)
	}
	// She works: a dispatch from there, to its patch.
	p.must("dispatch", "run", "sh", "--source", "repo", "--set", "do=echo far >> a.txt", "--id", "far-1")
	wantIn(t, "the patch", p.must("dispatch", "patch", "far-1"), "+far")
	wantIn(t, "the list", p.must("dispatch", "list"), "far-1")
	refused("an operator's verb", p.try("audit", "list"), 3)
	wantIn(t, "sessions", p.must("session", "list"), "human:ann", "(this)", "oidc")

	// Whom the catalog does not map, and whom the provider does not confirm.
	q := newWorld(t, 0)
	q.net = far
	refused("eve", w.login(q, "eve"), 4, `maps no person to subject "eve"`)
	refused("bob", w.login(q, "bob"), 4, `no longer says that the person is in "eng"`)
	refused("nobody", q.try("--server", w.service, "whoami"), 4, "no login")

	// The provider replaces its keys, and an ended session is renewed with the refresh token.
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, DisableKeepAlives: true}}
	resp, err := web.Post(w.issuer+"/rotate", "", nil)
	must(t, err)
	_ = resp.Body.Close()
	var before []api.SessionInfo
	must(t, json.Unmarshal([]byte(p.must("session", "list", "-o", "json")), &before))
	w.must("session", "end", before[0].ID)
	var after []api.SessionInfo
	must(t, json.Unmarshal([]byte(p.must("session", "list", "-o", "json")), &after))
	if len(after) != 1 || after[0].ID == before[0].ID || after[0].Principal != "human:ann" {
		t.Errorf("renewed: %+v", after)
	}

	// The provider is away: the session stays, and a login says so.
	w.away()
	p.must("whoami")
	refused("a login without the provider", w.login(q, "ann"), 1, "identity provider", "does not answer", "stays valid")
	// A restart of the service keeps the session.
	w.must("down")
	w.upRuns()
	p.must("whoami")
	w.provide()

	// A person who leaves: the catalog ends the session at once.
	w.replace(manifest, "      - {principal: \"human:ann\", subject: ann, groups: [dev]}\n", "")
	w.must("catalog", "apply", "-f", w.path(manifest))
	refused("after the offboarding", p.try("whoami"), 4)
	logged := w.must("audit", "list", "--kind", "session.opened")
	wantIn(t, "the log", logged, "human:ann logged in by oidc")
	wantIn(t, "the log", w.must("audit", "list", "--kind", "auth.refused"), `maps no person`)
	p.must("logout")
	refused("after the logout", p.try("--server", w.service, "whoami"), 4, "no login")
	w.strangers(far) // the last, since their address has no requests left then
}

// The certificate is read again, one that has expired refuses the start, and a client
// verifies it.
//
// proves R-D8
func TestTheServerHasAValidCertificate(t *testing.T) {
	t.Parallel()
	w := newOffice(t, "127.0.0.1")
	token, _ := w.token("agent:far")
	w.write("home/far.token", token, 0o600)
	p := newWorld(t, 0)
	login := func(more ...string) done {
		t.Helper()
		return p.try(append([]string{"login", w.service, "--token", w.path("home/far.token")}, more...)...)
	}
	if d := login(); d.status != 4 || !strings.Contains(d.stderr, "is not trusted") || !strings.Contains(d.stderr, "--ca FILE") {
		t.Errorf("an unknown authority: %s", d)
	}
	if d := login("--ca", w.path("tls.pem")); d.status != 0 {
		t.Fatalf("the control: %s", d)
	}
	wantIn(t, "whoami", p.must("whoami"), "agent:far", "a token", w.service)
	session := p.mcp(mcpJuly, "--server", w.service, "--server-ca", w.path("tls.pem"), "--principal-token-file", w.path("home/far.token"))
	if r := session.call("bailiwick_subagents_list", map[string]any{}); r.IsError {
		t.Errorf("over MCP: %+v", r)
	}
	for _, args := range [][]string{{"--server", w.service}, {"--server-ca", "x"}, {"--server", "http://127.0.0.1:1", "--principal-token-file", "x"}, {"--server", w.service, "--socket", "s"}} {
		if d := p.exec(mcpProgram(), args...); d.status == 0 || !strings.Contains(d.stderr, "--server") && !strings.Contains(d.stderr, "server \"http") {
			t.Errorf("bailiwick-mcp %q: %s", args, d)
		}
	}
	if d := p.try("run", "cancel", "x"); d.status == 0 || d.status == 4 {
		t.Errorf("a token steers: %s", d)
	}
	must(t, os.Chmod(p.path("config/bailiwick/logins.json"), 0o644))
	if d := p.try("whoami"); d.status == 0 || !strings.Contains(d.stderr, "accessible to others") {
		t.Errorf("a login that others can read: %s", d)
	}
	must(t, os.Chmod(p.path("config/bailiwick/logins.json"), 0o600))

	w.must("down")
	w.certificate("127.0.0.1", time.Now().Add(-time.Hour))
	if d := w.try("up"); d.status == 0 || !strings.Contains(d.stderr, "server.certificate: it expired") {
		t.Errorf("an expired certificate: %s", d)
	}
	w.certificate("127.0.0.1", time.Now().Add(time.Hour))
	w.upRuns()
	st := w.status()
	if "https://"+st.Remote != w.service {
		t.Errorf("the status says %q", st.Remote)
	}
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	var kib int64
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, err = fmt.Sscan(rest, &kib)
			must(t, err)
		}
	}
	return kib << 10
}

// 200 remote clients that watch cost the service at most 64 MB. The time that they take is
// not compared.
func TestRemoteWatchersFitInMemory(t *testing.T) {
	t.Parallel()
	const watchers, most = 200, 64 << 20
	w := newOffice(t, "127.0.0.1")
	p := newWorld(t, 0)
	if d := w.login(p, "ann"); d.status != 0 {
		t.Fatalf("login: %s", d)
	}
	var kept struct {
		Servers map[string]struct {
			Session struct {
				Handle string `json:"handle"`
			} `json:"session"`
		} `json:"servers"`
	}
	b, err := os.ReadFile(p.path("config/bailiwick/logins.json"))
	must(t, err)
	must(t, json.Unmarshal(b, &kept))
	handle := kept.Servers[w.service].Session.Handle
	p.must("dispatch", "run", "sh", "--source", "repo", "--set", "do="+strings.TrimSpace(awaitGate("open")), "--id", "watched", "--detach")
	st, err := w.conn().Operator().Status(t.Context())
	must(t, err)
	config := &tls.Config{RootCAs: w.roots}
	watch := func() *tls.Conn {
		c, err := tls.Dial("tcp", strings.TrimPrefix(w.service, "https://"), config)
		must(t, err)
		_, err = fmt.Fprintf(c, "GET /v1/runtime/dispatches/watched/log?follow=true HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", api.SessionHeader, handle)
		must(t, err)
		line, err := bufio.NewReader(c).ReadString('\n')
		if must(t, err); !strings.Contains(line, "200") {
			t.Fatalf("a watcher gets %q", line)
		}
		return c
	}
	warm := watch()
	before := resident(t, st.PID)
	all := []*tls.Conn{warm}
	for range watchers {
		all = append(all, watch())
	}
	after := resident(t, st.PID)
	t.Logf("%d watchers: %.1f MB, from %.1f MB to %.1f MB", watchers, float64(after-before)/1e6, float64(before)/1e6, float64(after)/1e6)
	if after-before > most {
		t.Errorf("%d watchers cost %d bytes, more than %d", watchers, after-before, most)
	}
	for _, c := range all {
		_ = c.Close()
	}
	w.open("open")
	w.awaitEnd("watched")
}
